"""``m = α ⊙ (W x̃) + b``, a linear map of the normalised streams, with its gradients."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from .. import functional
from ..numerics import compute_dtype, outside_autocast
from . import compiled
from .chunks import chunks
from .guard import fusing, handwritten
from .matmul import add_product, store_transposed_product
from .ownership import owned
from .pullback import Gradients, pullback
from .shapes import by_token


def project(streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> tuple[Tensor, Tensor]:
    """:func:`hyperconn.functional.project`, and the streams for whoever uses them next.

    Args:
        streams: ``(..., n, C)``.
        weight: ``(m, nC)``.
        scale: ``(m,)``.
        bias: ``(m,)``.
        epsilon: added to the mean square.

    Returns:
        tuple: ``(..., m)`` in the compute dtype, and the streams ``(..., n, C)``.
    """
    if fusing():
        return compiled.project(streams, weight, scale, bias, epsilon), streams
    if handwritten(streams, weight, scale, bias):
        return Project.apply(streams, weight, scale, bias, epsilon)
    return functional.project(streams, weight, scale, bias, epsilon), streams


class Project(Function):
    """Normalises after the product; saves its arguments, the raw product and one number per token."""

    @staticmethod
    def forward(
        ctx: Any, streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, epsilon: float
    ) -> tuple[Tensor, Tensor]:
        X, wide = by_token(streams, 2), compute_dtype(streams)
        raw = torch.empty(len(X), len(bias), dtype=wide, device=streams.device)
        norm, W = raw.new_empty(len(X), 1), weight.to(wide)
        with outside_autocast(streams):
            for some in chunks(X):
                V = X[some].flatten(1).to(wide)
                torch.linalg.vector_norm(V, dim=-1, keepdim=True, out=norm[some])
                store_transposed_product(raw[some], V, W)
            inverse_rms = (norm.square() / W.shape[-1] + epsilon).rsqrt()
            m = torch.empty(streams.shape[:-2] + bias.shape, dtype=wide, device=streams.device)
            torch.addcmul(bias.to(wide), raw, inverse_rms * scale.to(wide), out=m.view(raw.shape))
        ctx.save_for_backward(streams, weight, scale, bias, raw, inverse_rms)
        ctx.set_materialize_grads(False)
        ctx.epsilon = epsilon
        return m, streams.view_as(streams)

    @staticmethod
    def backward(ctx: Any, dm: Tensor | None, dX: Tensor | None) -> Gradients:
        *inputs, raw, inverse_rms = ctx.saved_tensors
        if dm is None:
            return dX, None, None, None, None
        if torch.is_grad_enabled():
            return *pullback(_specification(ctx.epsilon), inputs, (dm, dX)), None
        streams, weight, scale, bias = inputs
        needs, wide = ctx.needs_input_grad, compute_dtype(streams)
        X, W, α = by_token(streams, 2), weight.to(wide), scale.to(wide)
        dX = owned(dX, streams) if needs[0] else None
        dW = torch.zeros_like(W) if needs[1] else None
        with outside_autocast(streams):
            dm = by_token(dm, 1)
            along, draw = dm * (raw * inverse_rms), dm * (inverse_rms * α)
            # One factor at a time: the cube of a small inverse RMS is 0 in float32.
            pull = torch.mv(along, α).unsqueeze(-1) * inverse_rms * inverse_rms / -W.shape[-1]
            for some in chunks(X):
                V = X[some].flatten(1).to(wide)
                if dX is not None:
                    _add_terms(by_token(dX, 2)[some].flatten(1), V, pull[some], draw[some], W)
                if dW is not None:
                    add_product(dW, draw[some].mT, V)
        return (
            dX,
            None if dW is None else dW.to(weight.dtype),
            along.sum(0).to(scale.dtype) if needs[2] else None,
            dm.sum(0).to(bias.dtype) if needs[3] else None,
            None,
        )


def _add_terms(total: Tensor, V: Tensor, pull: Tensor, draw: Tensor, weight: Tensor) -> None:
    """``total += pull V + draw W``: through the normalisation and through the product."""
    if total.dtype == V.dtype:
        add_product(total.addcmul_(V, pull), draw, weight)
    else:
        wide = V * pull
        add_product(wide, draw, weight)
        total.add_(wide)


def _specification(epsilon: float) -> Callable[..., tuple[Tensor, Tensor]]:
    return lambda X, W, α, b: (functional.project(X, W, α, b, epsilon), X)
