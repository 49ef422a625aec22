"""When a hand-written gradient may stand in for the specification."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad


def handwritten(*tensors: Tensor) -> bool:
    """Whether plain eager tensors are all there is.

    A compiler fuses the specification better than it could opaque functions; transforms
    (``torch.func``, forward-mode derivatives) and tensor subclasses bring their own rules for it.
    """
    if torch.compiler.is_compiling() or torch.jit.is_tracing() or torch._C._are_functorch_transforms_active():
        return False
    return all(_is_plain(tensor) for tensor in tensors)


def _is_plain(tensor: Tensor) -> bool:
    return type(tensor) in (Tensor, torch.nn.Parameter) and forward_ad.unpack_dual(tensor).tangent is None
