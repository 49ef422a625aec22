"""Gradients that can be differentiated again, through the specification."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def pullback(
    specification: Callable[..., Sequence[Tensor]], inputs: Sequence[Tensor], cotangents: Sequence[Tensor | None]
) -> list[Tensor | None]:
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
        given = [(output, cotangent) for output, cotangent in zip(outputs, cotangents, strict=True) if cotangent is not None]
        wanted = [tensor for tensor in inputs if tensor.requires_grad]
        outputs, cotangents = zip(*given, strict=True)
        found = torch.autograd.grad(outputs, wanted, cotangents, create_graph=True, allow_unused=True)
    gradients = iter(found)
    return [next(gradients) if tensor.requires_grad else None for tensor in inputs]
