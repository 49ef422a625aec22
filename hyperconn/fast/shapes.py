"""Tokens in one leading axis; and results that are no views.

A custom function must not return a view: autograd forbids changing it in place, which a branch may
want to do, and a view shares its storage, which the next backward must not write to.
"""

from __future__ import annotations

import torch
from torch import Tensor


def broadcast(tensor: Tensor, shape: torch.Size) -> Tensor:
    """``tensor.expand(shape)``, without a node in the graph when it has that shape."""
    return tensor if tensor.shape == shape else tensor.expand(shape)


def by_token(tensor: Tensor, num_axes: int) -> Tensor:
    """``(..., a, b) -> (tokens, a, b)`` contiguous, keeping ``num_axes`` axes; a view where it can be one."""
    return tensor.reshape(-1, *tensor.shape[tensor.dim() - num_axes :]).contiguous()


def fresh(like: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Contiguous memory for a result of the same shape."""
    return torch.empty(like.shape, dtype=dtype or like.dtype, device=like.device)


def store_product(result: Tensor, left: Tensor, right: Tensor) -> None:
    """``result = left @ right``, token by token, cast to its dtype."""
    if result.dtype == right.dtype:
        torch.bmm(left, right, out=result)
    else:
        result.copy_(torch.bmm(left, right))
