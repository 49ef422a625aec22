"""``u = Σ_j pre[j] X[j]`` with its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .. import functional
from ..numerics import compute_dtype, outside_autocast
from . import compiled
from .guard import fusing, handwritten
from .ownership import owned
from .pullback import Gradients, pullback
from .shapes import broadcast, by_token, product


def read(streams: Tensor, pre: Tensor) -> tuple[Tensor, Tensor]:
    """:func:`hyperconn.functional.read`, and the streams for whoever uses them next.

    Args:
        streams: ``(..., n, C)``.
        pre: ``(..., n)``, broadcast against the leading axes of the streams.

    Returns:
        tuple: ``u (..., C)`` and the streams ``(..., n, C)``.
    """
    if fusing():
        return compiled.read(streams, pre), streams
    if handwritten(streams, pre):
        return Read.apply(streams, broadcast(pre, streams.shape[:-1]))
    return functional.read(streams, pre), streams


class Read(Function):
    """Saves its arguments only; adds ``pre ⊗ du`` onto the gradient of the streams it handed on."""

    @staticmethod
    def forward(ctx: Any, streams: Tensor, pre: Tensor) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(streams, pre)
        ctx.set_materialize_grads(False)
        wide = compute_dtype(streams)
        with outside_autocast(streams):
            rows = by_token(pre, 1, wide).unsqueeze(1)
            u = product(rows, by_token(streams, 2, wide), streams.shape[:-2] + streams.shape[-1:])
        return u.to(streams.dtype), streams.view_as(streams)

    @staticmethod
    def backward(ctx: Any, du: Tensor | None, dX: Tensor | None) -> Gradients:
        streams, pre = ctx.saved_tensors
        if du is None:
            return dX, None
        if torch.is_grad_enabled():
            return pullback(_specification, (streams, pre), (du, dX))
        wide, dpre = compute_dtype(streams), None
        with outside_autocast(streams):
            rows = by_token(du, 1, wide).unsqueeze(1)
            if ctx.needs_input_grad[1]:
                dpre = product(rows, by_token(streams, 2, wide).mT, pre.shape).to(pre.dtype)
            if ctx.needs_input_grad[0]:
                dX = owned(dX, streams)
                _add_outer(dX.view(-1, *dX.shape[-2:]), by_token(pre, 1, wide).unsqueeze(-1), rows)
        return dX, dpre


def _add_outer(total: Tensor, columns: Tensor, rows: Tensor) -> None:
    if total.dtype == rows.dtype:
        total.addcmul_(columns, rows)
    else:
        total.add_(columns * rows)


def _specification(streams: Tensor, pre: Tensor) -> tuple[Tensor, Tensor]:
    return functional.read(streams, pre), streams
