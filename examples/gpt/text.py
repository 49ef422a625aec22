"""Text as bytes: which files are read, how they are split, which windows a step trains on."""

from __future__ import annotations

import hashlib
import os
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from .model import BYTES
from .refusal import Refusal

HELD_OUT = 0.1  # the last tenth of the text is never trained on
SKIPPED = {"site-packages", "dist-packages", "test", "tests", "idlelib", "__pycache__"}
Batch = tuple[Tensor, Tensor]  # tokens (B, T) and the bytes that follow them (B, T)


class Text(NamedTuple):
    """Two stretches of bytes, ``uint8`` tensors of one axis, and a digest of both."""

    training: Tensor
    held_out: Tensor
    digest: str


def read_text(path: str | None, max_bytes: int, context: int) -> Text:
    """The first ``max_bytes`` of a file, of a folder's text files, or of the Python standard library.

    Raises:
        Refusal: nothing there, unreadable, or too short for one window of ``context`` bytes on both sides.
    """
    source = Path(sysconfig.get_path("stdlib") if path is None else path)
    try:
        content = _first_bytes(_files(source, ".py" if path is None else ""), max_bytes)
    except OSError as error:
        raise Refusal(f"--data {source}: cannot be read: {error.strerror}. Is the path right?") from error
    return split(content, context, str(source))


def split(content: bytes, context: int, source: str) -> Text:
    held_out = int(HELD_OUT * len(content))
    if held_out <= context:
        needed = int((context + 1) / HELD_OUT) + 1
        raise Refusal(
            f"--data {source}: expected at least {needed:,} bytes of text for --context {context}, "
            f"got {len(content):,}. Try a longer text or a shorter context."
        )
    everything = torch.frombuffer(bytearray(content), dtype=torch.uint8)
    digest = hashlib.sha256(content).hexdigest()
    return Text(everything[:-held_out], everything[-held_out:], digest)


def _files(source: Path, suffix: str) -> Iterator[Path]:
    """In one order on every machine, since the order decides what is held out."""
    if not source.is_dir():
        yield source
        return
    for folder, subfolders, names in os.walk(source):
        subfolders[:] = sorted(name for name in subfolders if name not in SKIPPED and not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if name.endswith(suffix))


def _first_bytes(files: Iterator[Path], max_bytes: int) -> bytes:
    content = bytearray()
    for file in files:
        if len(content) == max_bytes:
            break
        with file.open("rb") as stream:
            part = stream.read(max_bytes - len(content))
        content += b"" if b"\0" in part else part  # a zero byte: not text
    return bytes(content)


def training_batch(text: Text, step: int, seed: int, batch_size: int, context: int) -> Batch:
    """A function of seed and step alone: a resumed run needs no memory of what it has read."""
    generator = torch.Generator().manual_seed(step_seed(seed, step))
    starts = torch.randint(len(text.training) - context, (batch_size,), generator=generator)  # (B,)
    return _windows(text.training, starts, context)


def held_out_batches(text: Text, count: int, batch_size: int, context: int) -> list[Batch]:
    """The same windows at every evaluation, spread evenly over the held-out text."""
    last = len(text.held_out) - context - 1
    starts = torch.linspace(0, last, count * batch_size).long()  # (count · B,)
    return [_windows(text.held_out, part, context) for part in starts.split(batch_size)]


def step_seed(seed: int, step: int) -> int:
    """Distinct for every step of every seed below a million steps."""
    return seed * 1_000_000 + step


def bigram_loss(text: Text, batches: list[Batch], smoothing: float = 0.1) -> float:
    """Nats per byte of the best table "next byte given this byte", counted on the training text."""
    this, following = text.training[:-1].long(), text.training[1:].long()
    counts = torch.bincount(BYTES * this + following, minlength=BYTES * BYTES).view(BYTES, BYTES)
    table = counts.double() + smoothing
    log_probability = (table / table.sum(1, keepdim=True)).log()  # (256, 256)
    losses = [-log_probability[tokens, targets].mean() for tokens, targets in batches]
    return float(torch.stack(losses).mean())


def _windows(text: Tensor, starts: Tensor, context: int) -> Batch:
    windows = text[starts[:, None] + torch.arange(context + 1)].long()  # (B, T + 1)
    return windows[:, :-1], windows[:, 1:]
