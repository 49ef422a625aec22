"""Going on from a checkpoint: which file, with which options, and whether it is the same model."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path

from .checkpoint import Checkpoint, check_model, load
from .options import out_folder, parse, sizes
from .refusal import Refusal

CHECKPOINT = "checkpoint.pt"


def read_options(argv: Sequence[str]) -> tuple[argparse.Namespace, Checkpoint | None]:
    """What was typed; a resumed run starts from the options its checkpoint remembers, and the typed ones win.

    Raises:
        Refusal: a checkpoint that cannot be read, is finished, or holds another model.
    """
    typed = parse(argv)
    typed.out = str(out_folder(typed))
    if typed.resume is None:
        return typed, None
    path = _checkpoint_path(typed)
    checkpoint = load(path)
    options = parse(argv, checkpoint.options)
    options.out = typed.out
    check_model(checkpoint, sizes(parse([], checkpoint.options)), sizes(options), path)
    if checkpoint.step >= options.steps:
        raise Refusal(f"--resume {path}: is already at step {checkpoint.step}. Try --steps {2 * checkpoint.step}.")
    options.resume = str(path)
    return options, checkpoint


def _checkpoint_path(typed: argparse.Namespace) -> Path:
    path = Path(typed.resume or typed.out)
    return path / CHECKPOINT if path.is_dir() or not typed.resume else path
