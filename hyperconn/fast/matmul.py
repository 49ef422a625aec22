"""Products of a tall matrix with a narrow one, which is where a projection spends its arithmetic.

Through oneDNN where it is at hand: the BLAS that comes with PyTorch leaves the wide vectors of some processors
unused, which doubles the time.
"""

from __future__ import annotations

import torch
from torch import Tensor

# Below these sizes, what oneDNN does around its product costs more than it saves.
LEAST_PRODUCTS = 2**22
LEAST_SUMMANDS = 32


def store_transposed_product(result: Tensor, left: Tensor, right: Tensor) -> None:
    """``result = left @ right.mT``: ``(a, k), (b, k) -> (a, b)``."""
    if _suits_onednn(left, right):
        result.copy_(_onednn(left, right))
    else:
        torch.mm(left, right.mT, out=result)


def add_product(total: Tensor, left: Tensor, right: Tensor) -> None:
    """``total += left @ right``, in place: ``(a, k), (k, b) -> (a, b)``."""
    if len(right) >= LEAST_SUMMANDS and _suits_onednn(left, right.mT):
        total.add_(_onednn(left, right.mT))
    else:
        total.addmm_(left, right)


def _onednn(left: Tensor, right: Tensor) -> Tensor:
    return torch.ops.mkldnn._linear_pointwise(left, right, None, "none", [], "")


def _suits_onednn(left: Tensor, right: Tensor) -> bool:
    if left.device.type != "cpu" or left.dtype != torch.float32 or right.dtype != torch.float32:
        return False
    return left.numel() * len(right) >= LEAST_PRODUCTS and onednn_at_hand()


def onednn_at_hand() -> bool:
    """Whether this build of PyTorch has oneDNN and its linear map, and the user has not switched it off."""
    has_it = torch.backends.mkldnn.is_available() and hasattr(torch.ops.mkldnn, "_linear_pointwise")
    return has_it and torch._C._get_mkldnn_enabled()
