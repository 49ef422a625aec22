"""Sinkhorn-Knopp iterations: the specification, and the same with a gradient that keeps no iterates."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd import Function
from torch.library import custom_op

from ..fast.guard import fusing, handwritten, transforming
from ..fast.pullback import Gradients, pullback


def balance(logits: Tensor, iterations: int) -> Tensor:
    """``exp(L)`` with its columns, then its rows scaled to sum 1, ``iterations`` times: ``(..., n, n)``."""
    if handwritten(logits):
        return Balance.apply(logits, iterations)
    if fusing() and not transforming() and logits.device.type == "cpu":
        return _balance_opaquely(logits, iterations)
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
    """Saves the logits, and repeats the iterations in the backward: the gradient of exactly these iterations."""

    @staticmethod
    def forward(ctx: Any, logits: Tensor, iterations: int) -> Tensor:
        ctx.save_for_backward(logits)
        ctx.iterations = iterations
        return _balanced(logits, iterations)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Gradients:
        (logits,) = ctx.saved_tensors
        if torch.is_grad_enabled():
            return *pullback(lambda L: (balance_plainly(L, ctx.iterations),), (logits,), (gradient,)), None
        return _gradient(logits, gradient, ctx.iterations), None


def _balanced(logits: Tensor, iterations: int) -> Tensor:
    """Tokens go last, ``(n, n, tokens)``, so that sums of n numbers run over whole vectors."""
    matrix = _tokens_last(logits).log_softmax(0).softmax(1)
    _scale(matrix, iterations - 1)
    return _tokens_first(matrix, logits)


def _gradient(logits: Tensor, gradient: Tensor, iterations: int) -> Tensor:
    """Undoes one scaling after the other instead of keeping iterates."""
    columns = _tokens_last(logits).log_softmax(0)
    rows = columns.softmax(1)
    matrix = rows.clone()
    sums = _scale(matrix, iterations - 1)
    d_log = _tokens_last(gradient) * matrix
    for axis in (1, 0) * (iterations - 1):
        _unscale(d_log, matrix, axis)
        matrix *= sums.pop()
    _unscale(d_log, rows, 1)
    _unscale(d_log, columns.exp_(), 0)
    return _tokens_first(d_log, logits)


# A compiler for the CPU unrolls the iterations into loops over n numbers, which takes it ten seconds a graph and
# gives code slower than these kernels, so it is given the two as operations that it does not look into.
_SCHEMA = "(Tensor logits, int iterations) -> Tensor"
_GRADIENT_SCHEMA = "(Tensor logits, Tensor gradient, int iterations) -> Tensor"
_balance_opaquely = custom_op("hyperconn::balance", _balanced, mutates_args=(), schema=_SCHEMA)
_gradient_opaquely = custom_op("hyperconn::balance_gradient", _gradient, mutates_args=(), schema=_GRADIENT_SCHEMA)


@_balance_opaquely.register_fake
@_gradient_opaquely.register_fake
def _like_the_logits(logits: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(logits, memory_format=torch.contiguous_format)


def _keep_logits(ctx: Any, inputs: tuple[Tensor, int], output: Tensor) -> None:
    logits, ctx.iterations = inputs
    ctx.save_for_backward(logits)


def _pull_back_opaquely(ctx: Any, gradient: Tensor) -> Gradients:
    (logits,) = ctx.saved_tensors
    return _gradient_opaquely(logits, gradient, ctx.iterations), None


_balance_opaquely.register_autograd(_pull_back_opaquely, setup_context=_keep_logits)


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
