"""``P = H X + post ⊗ y`` with its gradients."""

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
from .pullback import Gradients, pullback
from .shapes import broadcast, by_token, fresh, store_product


def mix(streams: Tensor, post: Tensor, res: Tensor, branch_output: Tensor) -> Tensor:
    """:func:`hyperconn.functional.mix`: in the compute dtype.

    Args:
        streams: ``(..., n, C)``.
        post: ``(..., n)``, broadcast against the leading axes of the streams.
        res: ``(..., n, n)``, broadcast likewise.
        branch_output: ``(..., C)``.
    """
    return _merge(streams, post, res, branch_output, compute_dtype(streams))


def write(streams: Tensor, post: Tensor, res: Tensor, branch_output: Tensor) -> Tensor:
    """:func:`hyperconn.functional.write`: cast once to the dtype of the streams; arguments of :func:`mix`."""
    return _merge(streams, post, res, branch_output, streams.dtype)


def _merge(streams: Tensor, post: Tensor, res: Tensor, branch_output: Tensor, dtype: torch.dtype) -> Tensor:
    if fusing():
        return compiled.mix(streams, post, res, branch_output).to(dtype)
    if not handwritten(streams, post, res, branch_output):
        return functional.mix(streams, post, res, branch_output).to(dtype)
    post = broadcast(post, streams.shape[:-1])
    res = broadcast(res, streams.shape[:-1] + res.shape[-1:])
    return Mix.apply(streams, post, res, branch_output, dtype)


class Mix(Function):
    """Saves its arguments only; batched matrix products throughout."""

    @staticmethod
    def forward(
        ctx: Any, streams: Tensor, post: Tensor, res: Tensor, branch_output: Tensor, dtype: torch.dtype
    ) -> Tensor:
        ctx.save_for_backward(streams, post, res, branch_output)
        P, wide = fresh(streams, dtype), compute_dtype(streams)
        X, p, H, y = by_token(streams, 2), by_token(post, 1), by_token(res, 2), by_token(branch_output, 1)
        with outside_autocast(streams):
            for some in chunks(X):
                columns, rows = p[some].to(wide).unsqueeze(-1), y[some].to(wide).unsqueeze(1)
                _store_merge(by_token(P, 2)[some], columns, rows, H[some].to(wide), X[some].to(wide))
        return P

    @staticmethod
    def backward(ctx: Any, dP: Tensor) -> Gradients:
        inputs = ctx.saved_tensors  # once: a checkpoint computes again what is asked for twice
        if torch.is_grad_enabled():
            return *pullback(_specification(dP.dtype), inputs, (dP,)), None
        streams, post, res, branch_output = inputs
        wide, needed = compute_dtype(streams), zip(ctx.needs_input_grad[:4], inputs, strict=True)
        dX, dpost, dH, dy = gradients = [fresh(tensor) if needs else None for needs, tensor in needed]
        X, p, H, y = by_token(streams, 2), by_token(post, 1), by_token(res, 2), by_token(branch_output, 1)
        dP = by_token(dP, 2)
        with outside_autocast(streams):
            for some in chunks(X):
                G = dP[some].to(wide)
                if dX is not None:
                    store_product(by_token(dX, 2)[some], H[some].to(wide).mT, G)
                if dpost is not None:
                    store_product(by_token(dpost, 1)[some].unsqueeze(1), y[some].to(wide).unsqueeze(1), G.mT)
                if dH is not None:
                    store_product(by_token(dH, 2)[some], G, X[some].to(wide).mT)
                if dy is not None:
                    store_product(by_token(dy, 1)[some].unsqueeze(1), p[some].to(wide).unsqueeze(1), G)
        return *gradients, None


def _store_merge(result: Tensor, columns: Tensor, rows: Tensor, H: Tensor, X: Tensor) -> None:
    total = result if result.dtype == X.dtype else torch.empty_like(X)
    torch.mul(columns, rows, out=total).baddbmm_(H, X)
    if total is not result:
        result.copy_(total)


def _specification(dtype: torch.dtype) -> Callable[..., tuple[Tensor]]:
    return lambda *arguments: (functional.mix(*arguments).to(dtype),)
