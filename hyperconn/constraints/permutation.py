"""Mixtures of permutation matrices: doubly stochastic without iterating (mHC-lite)."""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable

import torch
from torch import Tensor

from ..numerics import widest_dtype
from .base import Constraint
from .distances import doubly_stochastic_error
from .registry import register_constraint

MAX_STREAMS = 7


@register_constraint("permutation", "mhc-lite")
class Permutation(Constraint):
    """``H = Σ_k softmax(c)_k P_k`` over all n! permutation matrices, in lexicographic order.

    By the Birkhoff-von Neumann theorem this reaches every doubly stochastic matrix, exactly.

    Args:
        streams: number of streams n, at most 7.

    Raises:
        ValueError: n > 7, whose table of n! permutations is too large.

    Reference: mHC-lite, 2026, arXiv 2601.05732.
    """

    nonnegative = True
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = True
    set_description = "doubly stochastic matrices"
    reference = "mHC-lite 2026, arXiv 2601.05732"

    permutations: Tensor

    @classmethod
    def unsupported(cls, streams: int) -> str | None:
        if streams <= MAX_STREAMS:
            return None
        return (
            f"expected at most {MAX_STREAMS} streams, because {streams}! = {math.factorial(streams):,} "
            "permutations would be mixed for every token. Use 'sinkhorn', 'spectral-sphere' or 'kronecker'."
        )

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (len(self.permutations),)

    def constant_tables(self) -> dict[str, Callable[[], Tensor]]:
        return {"permutations": functools.partial(permutation_table, self.streams)}

    def matrix(self, coordinates: Tensor) -> Tensor:
        weights = coordinates.to(self._accumulation_dtype(coordinates)).softmax(-1)
        mixture = weights @ self.permutations.to(weights.dtype)
        return mixture.unflatten(-1, (self.streams, self.streams)).to(coordinates.dtype)

    def identity_coordinates(self) -> Tensor:
        """0 for I; the rest low enough that together they weigh what 23 logits of −8 weigh."""
        others = self.num_coordinates - 1
        return self._identity_against(-8.0 - math.log(max(others, 1) / 23))

    def paper_coordinates(self) -> Tensor:
        return self._identity_against(-8.0)

    def violation(self, matrix: Tensor) -> Tensor:
        return doubly_stochastic_error(matrix)

    def _accumulation_dtype(self, coordinates: Tensor) -> torch.dtype:
        """An entry sums (n − 1)! weights; from n = 6 their rounding in ``float32`` would show in the row sums."""
        return widest_dtype(coordinates) if self.streams > 5 else coordinates.dtype

    def _identity_against(self, other: float) -> Tensor:
        coordinates = torch.full((self.num_coordinates,), other)
        coordinates[0] = 0.0
        return coordinates


def permutation_table(size: int) -> Tensor:
    """All permutation matrices as rows, ``(n!, n²)``; ``P[i, p(i)] = 1``, the identity first."""
    orders = torch.tensor(list(itertools.permutations(range(size))), dtype=torch.long)
    return torch.nn.functional.one_hot(orders, size).flatten(1).to(torch.float32)
