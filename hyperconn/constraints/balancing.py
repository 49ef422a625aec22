"""Sinkhorn-Knopp iterations: the specification, and the same with a gradient that keeps no iterates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function

from ..fast.guard import handwritten
from ..fast.pullback import Gradients, pullback


def balance(logits: Tensor, iterations: int) -> Tensor:
    """``exp(L)`` with its columns, then its rows scaled to sum 1, ``iterations`` times: ``(..., n, n)``."""
    if handwritten(logits):
        return Balance.apply(logits, iterations)
    return balance_plainly(logits, iterations)


def balance_plainly(logits: Tensor, iterations: int) -> Tensor:
    """The specification.

    Only the first pair needs the log domain: after it every row and column holds an entry of at
    least 1/n², so no later sum can vanish, for any finite logits.
    """
    matrix = logits.log_softmax(-2).softmax(-1)
    for _ in range(iterations - 1):
        matrix = matrix / matrix.sum(-2, keepdim=True)
        matrix = matrix / matrix.sum(-1, keepdim=True)
    return matrix


class Balance(Function):
    """Saves the logits, and repeats the iterations in the backward: the gradient of exactly these iterations.

    Tokens go last, ``(n, n, tokens)``, so that sums of n numbers run over whole vectors. The backward
    undoes one scaling after the other instead of keeping iterates.
    """

    @staticmethod
    def forward(ctx: Any, logits: Tensor, iterations: int) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.iterations = iterations
        matrix = _tokens_last(logits).log_softmax(0).softmax(1)
        _scale(matrix, iterations - 1)
        return _tokens_first(matrix, logits)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        (logits,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *pullback(lambda L: (balance_plainly(L, ctx.iterations),), (logits,), (gradient,)), None
        columns = _tokens_last(logits).log_softmax(0)
        rows = columns.softmax(1)
        matrix = rows.clone()
        sums = _scale(matrix, ctx.iterations - 1)
        d_log = _tokens_last(gradient) * matrix
        for axis in (1, 0) * (ctx.iterations - 1):
            _unscale(d_log, matrix, axis)
            matrix *= sums.pop()
        _unscale(d_log, rows, 1)
        _unscale(d_log, columns.exp_(), 0)
        return _tokens_first(d_log, logits), None


def _scale(matrix: Tensor, iterations: int) -> list[Tensor]:
    """Scale columns and rows in place; returns the sums that were divided by, in order."""
    sums = []
    for axis in (0, 1) * iterations:
        sums.append(matrix.sum(axis, keepdim=True))
        matrix /= sums[-1]
    return sums


def _unscale(d_log: Tensor, scaled: Tensor, axis: int) -> None:
    """From the gradient of ``log M'`` to that of ``log M``, in place: ``log M' = log M − log Σ M``."""
    d_log.addcmul_(scaled, d_log.sum(axis, keepdim=True), value=-1)


def _tokens_last(matrices: Tensor) -> Tensor:
    """``(..., n, n) -> (n, n, tokens)``."""
    n = matrices.shape[-1]
    return matrices.reshape(-1, n * n).mT.contiguous().view(n, n, -1)


def _tokens_first(matrices: Tensor, like: Tensor) -> Tensor:
    result = torch.empty(like.shape, dtype=like.dtype, device=like.device)
    result.view(-1, len(matrices) ** 2).copy_(matrices.flatten(0, 1).mT)
    return result
