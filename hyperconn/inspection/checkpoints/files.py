"""Files and folders to tensors."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from .archive import read_archive
from .errors import CheckpointError, one_line
from .safetensors_file import SafetensorsFile
from .tensors import Joined, Renamed, Tensors

SUFFIXES = (".safetensors", ".pt", ".pth", ".bin", ".ckpt")
CONFIG_BYTES, INDEX_BYTES = 1 << 20, 1 << 26


def open_checkpoint(path: str | Path) -> Tensors:
    """The state dict in a file, or in the shards of a folder; the larger tensors stay on the disk.

    Args:
        path: a ``.safetensors`` file, a file of ``torch.save`` (a state dict, or a training checkpoint that
            holds one under a key like ``"model"``), or a folder of either.

    Raises:
        CheckpointError: anything else; the message is one line.
    """
    path = Path(path)
    try:
        if path.is_dir():
            return Renamed(Joined([_open_file(shard) for shard in _shards(path)]))
        if not path.exists():
            raise CheckpointError("no such file or folder")
        return Renamed(_open_file(path))
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror or one_line(error)}") from error


def read_config(path: str | Path) -> dict[str, Any]:
    """``config.json`` beside a checkpoint; empty if there is none that can be read."""
    folder = Path(path) if Path(path).is_dir() else Path(path).parent
    try:
        content = _small_json(folder / "config.json", CONFIG_BYTES)
    except (OSError, ValueError, RecursionError):
        return {}
    return content if isinstance(content, dict) else {}


def _open_file(path: Path) -> Tensors:
    if path.stat().st_size == 0:
        raise CheckpointError(f"{path.name} is empty")
    return SafetensorsFile(path) if path.suffix == ".safetensors" else read_archive(path)


def _shards(folder: Path) -> list[Path]:
    """The files of the first suffix that occurs; with an index, all that it names."""
    for suffix in SUFFIXES:
        found = sorted(entry for entry in folder.iterdir() if entry.suffix == suffix and entry.is_file())
        if found:
            _check_complete(folder, {shard.name for shard in found}, suffix)
            return found
    raise CheckpointError(f"a folder without any file that ends in {', '.join(SUFFIXES)}")


def _check_complete(folder: Path, present: set[str], suffix: str) -> None:
    for index in folder.glob(f"*{suffix}.index.json"):
        try:
            named = set(_small_json(index, INDEX_BYTES)["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise CheckpointError(f"{index.name} is not an index of shards") from error
        if missing := sorted(str(name) for name in named - present):
            raise CheckpointError(f"{index.name} names {len(missing)} files that are missing, {missing[0]} for one")


def _small_json(path: Path, limit: int) -> Any:
    """Plain data; a pipe would never end and a longer file is no such file, so both read as nothing."""
    if not path.is_file():
        raise ValueError(f"{path.name} is no file")
    with path.open("rb") as file:
        return json.loads(file.read(limit))
