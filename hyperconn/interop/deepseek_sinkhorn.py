"""Sinkhorn as DeepSeek-V4 computes it, for checkpoints that were trained with it."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ..constraints import Constraint
from ..constraints.distances import doubly_stochastic_error


class DeepSeekSinkhorn(Constraint):
    """Softmax first, then alternate normalisations, with ε added to the matrix once and to every sum.

    With ``M`` in their orientation, [source, destination], and ``H = Mᵀ``::

        M = softmax(L, last) + ε;   M /= Σ_source M + ε
        iterations − 1 times:       M /= Σ_destination M + ε;   M /= Σ_source M + ε

    Rows of ``H`` sum to 1 up to nε. It is not registered by name: a model of one's own is better
    served by ``"sinkhorn"``, which is the same for moderate logits and needs no ε.

    Args:
        streams: number of streams n.
        iterations: number of normalisations over the sources, at least 1.
        epsilon: ε.

    Raises:
        ValueError: iterations < 1.

    Reference: DeepSeek-V4 as released in ``transformers``; Xie et al., 2025, arXiv 2512.24880.
    """

    nonnegative = True
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = True
    exact = False
    set_description = "doubly stochastic matrices"
    reference = "DeepSeek-V4; Xie et al. 2025, arXiv 2512.24880"

    def __init__(self, streams: int, *, iterations: int = 20, epsilon: float = 1e-6):
        super().__init__(streams)
        if iterations < 1:
            raise ValueError(f"DeepSeekSinkhorn(streams={streams}): expected iterations >= 1, got {iterations}.")
        self.iterations, self.epsilon = iterations, epsilon

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (self.streams**2,)

    def options(self) -> dict[str, float]:
        return {"iterations": self.iterations, "epsilon": self.epsilon}

    def matrix(self, coordinates: Tensor) -> Tensor:
        source_destination = coordinates.unflatten(-1, (self.streams, self.streams)).softmax(-1) + self.epsilon
        source_destination = self._normalised(source_destination, -2)
        for _ in range(self.iterations - 1):
            source_destination = self._normalised(source_destination, -1)
            source_destination = self._normalised(source_destination, -2)
        return source_destination.mT

    def identity_coordinates(self) -> Tensor:
        """0 on the diagonal, −6 elsewhere at n = 4, and for every n the same diagonal of H."""
        other = -6.0 - math.log(max(self.streams - 1, 1) / 3)
        return (other * (1 - torch.eye(self.streams))).flatten()

    def violation(self, matrix: Tensor) -> Tensor:
        return doubly_stochastic_error(matrix)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, iterations={self.iterations}, epsilon={self.epsilon}"

    def _normalised(self, matrix: Tensor, axis: int) -> Tensor:
        return matrix / (matrix.sum(axis, keepdim=True) + self.epsilon)
