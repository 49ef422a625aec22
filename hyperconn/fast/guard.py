"""Which of the equivalent forms of a function fits the moment."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def fusing() -> bool:
    """Whether a compiler will fuse what is computed now; an exported graph may be run as it is."""
    exporting = getattr(torch.compiler, "is_exporting", bool)
    return torch.compiler.is_compiling() and not exporting()


def transforming() -> bool:
    """Whether ``torch.func`` transforms what is computed now."""
    return torch._C._are_functorch_transforms_active()


def handwritten(*tensors: Tensor) -> bool:
    """Whether a hand-written gradient may stand in for the specification: with plain eager tensors only.

    Transforms (``torch.func``, forward-mode derivatives) and tensor subclasses bring rules of their own
    for the operations of the specification.
    """
    if torch.compiler.is_compiling() or torch._C._get_tracing_state() or transforming():
        return False
    return all(_is_plain(tensor) for tensor in tensors)


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and forward_ad.unpack_dual(tensor).tangent is None
