"""The dtype a site computes in, and tolerances that follow from it."""

from __future__ import annotations

import contextlib
import math

import torch
from torch import Tensor


def compute_dtype(tensor: Tensor) -> torch.dtype:
    """``float64`` for ``float64`` tensors, ``float32`` for everything narrower."""
    return torch.promote_types(tensor.dtype, torch.float32)


def widest_dtype(tensor: Tensor) -> torch.dtype:
    """``float64`` where the tensor's device has it, for the few steps that lose digits of ``float32``."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64


def parameter_dtype() -> torch.dtype:
    """The default dtype of the moment, but at least ``float32``."""
    return torch.promote_types(torch.get_default_dtype(), torch.float32)


def outside_autocast(tensor: Tensor) -> contextlib.AbstractContextManager[object]:
    """A context in which autocast leaves operations on the tensor's device alone."""
    kind = tensor.device.type
    if kind != "meta" and torch.is_autocast_enabled(kind):
        return torch.autocast(kind, enabled=False)
    return contextlib.nullcontext()


def tolerance(dtype: torch.dtype, size: int = 1) -> float:
    """How far a sum of ``size`` rounded terms of order one may be off, in absolute value."""
    return 8 * math.sqrt(size) * torch.finfo(dtype).eps
