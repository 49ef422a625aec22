"""Tokens in one leading axis, in the dtype a site computes in; and results that are no views.

A custom function must not return a view: autograd forbids changing it in place, which a branch may
want to do, and a view shares its storage, which the next backward must not write to.
"""

from __future__ import annotations

import torch
from torch import Tensor


def broadcast(tensor: Tensor, shape: torch.Size) -> Tensor:
    """``tensor.expand(shape)``, without a node in the graph when it has that shape."""
    return tensor if tensor.shape == shape else tensor.expand(shape)


def by_token(tensor: Tensor, num_axes: int, dtype: torch.dtype) -> Tensor:
    """``(..., a, b) -> (tokens, a, b)`` contiguous, keeping ``num_axes`` axes."""
    return tensor.reshape(-1, *tensor.shape[tensor.dim() - num_axes :]).to(dtype).contiguous()


def product(left: Tensor, right: Tensor, shape: torch.Size) -> Tensor:
    """``left @ right``, token by token, in a tensor of the given shape."""
    result = torch.empty(shape, dtype=right.dtype, device=right.device)
    torch.bmm(left, right, out=result.view(right.shape[0], left.shape[-2], right.shape[-1]))
    return result
