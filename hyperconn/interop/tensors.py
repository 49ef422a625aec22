"""The three tensors of a site or head, from a module or a dict with any of the published names."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor


class Tensors(NamedTuple):
    """``fn`` (rows, nC), ``base`` (rows), ``scale`` (groups), as they are stored."""

    fn: Tensor
    base: Tensor
    scale: Tensor


def tensors_of(source: Any, who: str) -> Tensors:
    """Detached tensors of a module, or of a dict whose keys end in ``fn``, ``base`` and ``scale``.

    Raises:
        ValueError: one of the three is missing, or there are several of one.
    """
    named = source if isinstance(source, dict) else dict(source.named_parameters(recurse=False))
    return Tensors(*(_ending_in(named, part, who).detach() for part in Tensors._fields))


def copy_into(who: str, **pairs: tuple[Tensor, Tensor]) -> None:
    """Copy each source into its target.

    Raises:
        ValueError: the shapes differ.
    """
    for name, (target, source) in pairs.items():
        if target.shape != source.shape:
            raise ValueError(f"{who}: expected {name} {tuple(target.shape)}, got {tuple(source.shape)}.")
        with torch.no_grad():
            target.copy_(source)


def _ending_in(named: dict[str, Tensor], part: str, who: str) -> Tensor:
    found = [key for key in named if key == part or key.endswith((f".{part}", f"_{part}"))]
    if len(found) != 1:
        raise ValueError(f"{who}: expected one tensor named {part!r} (or …_{part}), got {found or list(named)}.")
    return named[found[0]]
