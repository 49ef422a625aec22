"""``u = Σ_j pre[j] X[j]`` with its gradients."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .. import functional
from ..numerics import compute_dtype, outside_autocast
from . import compiled
from .chunks import chunks
from .guard import fusing, handwritten
from .ownership import owned
from .pullback import Gradients, pullback
from .shapes import broadcast, by_token, fresh, store_product


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
        wide, u = compute_dtype(streams), fresh(streams[..., 0, :])
        X, p = by_token(streams, 2), by_token(pre, 1)
        with outside_autocast(streams):
            for some in chunks(X):
                rows = p[some].to(wide).unsqueeze(1)
                store_product(by_token(u, 1)[some].unsqueeze(1), rows, X[some].to(wide))
        return u, streams.view_as(streams)

    @staticmethod
    def backward(ctx: Any, du: Tensor | None, dX: Tensor | None) -> Gradients:
        streams, pre = ctx.saved_tensors
        if du is None:
            return dX, None
        if torch.is_grad_enabled():
            return pullback(_specification, (streams, pre), (du, dX))
        wide, (needs_dX, needs_dpre) = compute_dtype(streams), ctx.needs_input_grad
        dX, dpre = owned(dX, streams) if needs_dX else None, fresh(pre) if needs_dpre else None
        X, p, du = by_token(streams, 2), by_token(pre, 1), by_token(du, 1)
        with outside_autocast(streams):
            for some in chunks(X):
                rows = du[some].to(wide).unsqueeze(1)
                if dpre is not None:
                    store_product(by_token(dpre, 1)[some].unsqueeze(1), rows, X[some].to(wide).mT)
                if dX is not None:
                    _add_outer(by_token(dX, 2)[some], p[some].to(wide).unsqueeze(-1), rows)
        return dX, dpre


def _add_outer(total: Tensor, columns: Tensor, rows: Tensor) -> None:
    if total.dtype == rows.dtype:
        total.addcmul_(columns, rows)
    else:
        total.add_(columns * rows)


def _specification(streams: Tensor, pre: Tensor) -> tuple[Tensor, Tensor]:
    return functional.read(streams, pre), streams
