"""Gradients that can be differentiated again, through the specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

Gradients = tuple[Tensor | None, ...]


def pullback(
    specification: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]
) -> Gradients:
    """Gradients of the inputs, as a backward returns them, with a graph of their own.

    Args:
        specification: plain differentiable operations, ``inputs -> outputs``.
        inputs: saved tensors, still connected to the graph that made them.
        cotangents: gradients of the outputs; None stands for zero.
    """
    with torch.enable_grad():
        # Views, so that the same tensor given twice receives two gradients.
        inputs = [tensor.view_as(tensor) for tensor in inputs]
        outputs = specification(*inputs)
        given = [pair for pair in zip(outputs, cotangents, strict=True) if pair[1] is not None]
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        found = torch.autograd.grad(
            [output for output, _ in given],
            wanted,
            [cotangent for _, cotangent in given],
            create_graph=True,
            allow_unused=True,
        )
    gradients = iter(found)
    return tuple(next(gradients) if tensor.requires_grad else None for tensor in inputs)
