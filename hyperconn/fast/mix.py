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
from .guard import fusing, handwritten
from .pullback import Gradients, pullback
from .shapes import broadcast, by_token, product


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
        wide = compute_dtype(streams)
        with outside_autocast(streams):
            P = torch.empty(streams.shape, dtype=wide, device=streams.device)
            X, tokens = by_token(streams, 2, wide), P.view(-1, *P.shape[-2:])
            columns, rows = by_token(post, 1, wide).unsqueeze(-1), by_token(branch_output, 1, wide).unsqueeze(1)
            torch.mul(columns, rows, out=tokens).baddbmm_(by_token(res, 2, wide), X)
        return P.to(dtype)

    @staticmethod
    def backward(ctx: Any, dP: Tensor) -> Gradients:
        streams, post, res, branch_output = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *pullback(_specification(dP.dtype), ctx.saved_tensors, (dP,)), None
        needs, wide = ctx.needs_input_grad, compute_dtype(streams)
        dX = dpost = dH = dy = None
        with outside_autocast(streams):
            G = by_token(dP, 2, wide)
            if needs[0]:
                dX = product(by_token(res, 2, wide).mT, G, streams.shape).to(streams.dtype)
            if needs[1]:
                dpost = product(by_token(branch_output, 1, wide).unsqueeze(1), G.mT, post.shape).to(post.dtype)
            if needs[2]:
                dH = product(G, by_token(streams, 2, wide).mT, res.shape).to(res.dtype)
            if needs[3]:
                dy = product(by_token(post, 1, wide).unsqueeze(1), G, branch_output.shape).to(branch_output.dtype)
        return dX, dpost, dH, dy, None


def _specification(dtype: torch.dtype) -> Callable[..., tuple[Tensor]]:
    return lambda *arguments: (functional.mix(*arguments).to(dtype),)
