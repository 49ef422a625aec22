"""One file that a run can go on from: written whole or not at all, read as tensors and plain data only."""

from __future__ import annotations

import contextlib
import io
import os
import zipfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict, set_state_dict
from torch.optim import Optimizer

import hyperconn as hc

from .model import GPT, Sizes
from .refusal import Refusal

# Full tensors by name, whether the model is sharded or not: any number of processes reads any checkpoint.
WHOLE = StateDictOptions(full_state_dict=True, cpu_offload=True)
TYPES = {"version": str, "options": list, "step": int, "digest": str, "model": dict, "optimizer": dict}


class Checkpoint(NamedTuple):
    """After ``step`` steps of a run started with ``options`` on the text with this digest."""

    version: str
    options: list[str]
    step: int
    digest: str
    model: dict[str, Any]
    optimizer: dict[str, Any]


def taken(model: nn.Module, optimizer: Optimizer, options: list[str], step: int, digest: str) -> Checkpoint:
    """The present state; in a sharded run every process has to call this."""
    return Checkpoint(hc.__version__, options, step, digest, *get_state_dict(model, optimizer, options=WHOLE))


def restore(checkpoint: Checkpoint, model: nn.Module, optimizer: Optimizer, path: Path) -> None:
    """Put model and optimizer where they were; learning rates and the like stay this run's own."""
    own = [{name: value for name, value in group.items() if name != "params"} for group in optimizer.param_groups]
    try:
        _check_moments(checkpoint.optimizer["state"], dict(model.named_parameters()))
        set_state_dict(
            model,
            optimizer,
            model_state_dict=checkpoint.model,
            optim_state_dict=checkpoint.optimizer,
            options=WHOLE,
        )
    except Exception as error:  # the file is not ours to trust: whatever does not fit is refused
        raise Refusal(f"--resume {path}: does not fit this model: {_first_line(error)}") from error
    for group, values in zip(optimizer.param_groups, own, strict=True):
        group.update(values)


def save(checkpoint: Checkpoint, path: Path) -> None:
    content = io.BytesIO()
    torch.save(checkpoint._asdict(), content)
    write_whole(path, content.getbuffer())


def write_whole(path: Path, content: bytes | memoryview) -> None:
    """A file that was there stays as it was until the new one is complete on the disk."""
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, path)
    except OSError as error:
        with contextlib.suppress(OSError):  # the error that is already on its way says more
            partial.unlink()
        raise Refusal(
            f"{path}: cannot be written: {error.strerror}. Whatever was there is untouched; try another --out."
        ) from error


def load(path: Path) -> Checkpoint:
    """What :func:`save` wrote.

    Raises:
        Refusal: no such file, or not a checkpoint of this script; nothing in it is executed.
    """
    try:
        _check_archive(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except OSError as error:
        raise Refusal(f"--resume {path}: cannot be read: {error.strerror or error}.") from error
    except Exception as error:  # zipfile and torch raise a dozen kinds for truncated and forged files
        raise Refusal(f"--resume {path}: not a checkpoint, or a damaged one ({type(error).__name__}).") from error
    if not isinstance(content, dict) or not _well_formed(content):
        raise Refusal(f"--resume {path}: expected a checkpoint with {', '.join(TYPES)}, got something else.")
    return Checkpoint(**content)


def check_model(checkpoint: Checkpoint, made_with: Sizes, wanted: Sizes, path: Path) -> None:
    """Refuse to go on with another model than the one the checkpoint holds.

    Raises:
        Refusal: names what differs, on both sides.
    """
    there = {"hyperconn": checkpoint.version} | canonical(made_with)
    here = {"hyperconn": hc.__version__} | canonical(wanted)
    different = [f"{name} {there[name]} (this run: {here[name]})" for name in here if there[name] != here[name]]
    if different:
        raise Refusal(f"--resume {path}: made with {', '.join(different)}. Use the same, or start a new run.")
    # Shapes are compared before anything is allocated, so that a forged size costs nothing.
    with torch.device("meta"):
        expected = GPT(wanted).state_dict()
    got = checkpoint.model
    if got.keys() != expected.keys() or any(_shape(got[name]) != expected[name].shape for name in expected):
        raise Refusal(f"--resume {path}: its tensors are not those of the options it was made with.")


def canonical(sizes: Sizes) -> dict[str, Any]:
    """With the constraint's own name, so that an alias is no difference."""
    return sizes._asdict() | {"constraint": hc.make_constraint(sizes.constraint, sizes.streams).name}


def _well_formed(content: dict[str, Any]) -> bool:
    right_types = content.keys() == TYPES.keys() and all(type(content[name]) is TYPES[name] for name in TYPES)
    return right_types and content["step"] >= 0 and all(type(option) is str for option in content["options"])


def _check_archive(path: Path) -> None:
    """torch.save does not compress; an archive that unpacks to more than its size is a bomb."""
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
            raise ValueError("compressed entries")


def _check_moments(state: dict[str, dict[str, Any]], parameters: dict[str, nn.Parameter]) -> None:
    """torch takes a missing moment for a fresh start, which would change the losses in silence."""
    for name, parameter in parameters.items():
        for moment in ("exp_avg", "exp_avg_sq"):
            if _shape(state[name][moment]) != parameter.shape:
                raise ValueError(f"the optimizer's {moment} of {name} has another shape")


def _shape(value: Any) -> torch.Size | None:
    return value.shape if isinstance(value, torch.Tensor) else None


def _first_line(error: Exception) -> str:
    return " ".join(str(error).split())[:300]
