"""Whether a gradient may be overwritten: only if nothing else could ever see it."""

from __future__ import annotations

import functools
import sys
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function


def owned(gradient: Tensor | None, like: Tensor) -> Tensor:
    """A contiguous tensor with the value of the gradient that may be written to: itself, or a copy.

    Args:
        gradient: as handed to a backward; None stands for zero.
        like: gives shape, dtype and device of a missing gradient.
    """
    if gradient is None:
        return torch.zeros_like(like, memory_format=torch.contiguous_format)
    expected = _holders_of_fresh_gradient()
    if expected is not None and _holders(gradient) == expected and gradient.is_contiguous():
        return gradient
    return gradient.clone(memory_format=torch.contiguous_format)


def _holders(tensor: Tensor) -> tuple[int, int, int] | None:
    """References to the Python object, the tensor and its storage; None if they cannot be counted."""
    try:
        storage = tensor.untyped_storage()
        in_python, in_autograd = sys.getrefcount(tensor), tensor._use_count()  # type: ignore[attr-defined]
        return in_python, in_autograd, torch._C._storage_Use_Count(storage._cdata)
    except (AttributeError, RuntimeError, NotImplementedError):
        return None


@functools.cache
def _holders_of_fresh_gradient() -> tuple[int, int, int] | None:
    """The counts that a gradient shows which one backward has just made for another, measured once."""
    with torch.enable_grad(), torch.autocast("cpu", enabled=False):
        start = torch.ones(1, requires_grad=True, device="cpu")
        _Probe.apply(start).mul(2).backward()
    return _Probe.seen


class _Probe(Function):
    """An identity that notes who holds the gradient it is given."""

    seen: tuple[int, int, int] | None = None

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.view_as(tensor)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        _Probe.seen = _seen_from_here(gradient)
        return gradient


def _seen_from_here(gradient: Tensor) -> tuple[int, int, int] | None:
    return _holders(gradient)  # as many calls deep as in `owned`, since a call holds its arguments
