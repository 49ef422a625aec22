"""Kronecker products of small doubly stochastic matrices (KromHC)."""

from __future__ import annotations

import math
from functools import reduce
from typing import cast

import torch
from torch import Tensor, nn

from .base import Constraint
from .distances import doubly_stochastic_error, largest
from .permutation import Permutation
from .registry import register_constraint

LARGEST_FACTOR = 7


@register_constraint("kronecker", "kromhc")
class Kronecker(Constraint):
    """``H = U_1 ⊗ … ⊗ U_K``, one doubly stochastic ``U_k`` per prime factor of n.

    Each ``U_k`` (f × f) is a mixture of the f! permutations; a factor of size 2 is
    ``[[p, 1−p], [1−p, p]]`` with ``(p, 1−p)`` the softmax of two coordinates. The first factor
    belongs to the most significant digit of a stream's index; at ``n = 2^K`` H[i, j] depends on
    ``i XOR j`` only.

    Args:
        streams: number of streams n, without a prime factor above 7.

    Raises:
        ValueError: a prime factor above 7, whose table of permutations is too large.

    Reference: KromHC, 2026, arXiv 2601.21579 (powers of two).
    """

    nonnegative = True
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = True
    set_description = "Kronecker products of small doubly stochastic matrices"
    reference = "KromHC 2026, arXiv 2601.21579"

    def __init__(self, streams: int):
        super().__init__(streams)
        self.factors = nn.ModuleList(Permutation(size) for size in prime_factors(streams))

    @classmethod
    def unsupported(cls, streams: int) -> str | None:
        factor = max(prime_factors(streams), default=1)
        if factor <= LARGEST_FACTOR:
            return None
        return (
            f"expected a product of primes up to {LARGEST_FACTOR}, because a factor of {factor} mixes {factor}! = "
            f"{math.factorial(factor):,} permutations. Use another number of streams, or 'sinkhorn'."
        )

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (sum(self._sizes()),)

    def matrix(self, coordinates: Tensor) -> Tensor:
        parts = coordinates.split(self._sizes(), dim=-1) if self.factors else ()
        factors = [factor(part) for factor, part in zip(self.factors, parts, strict=True)]
        return reduce(kronecker_product, factors) if factors else _one(coordinates)

    def identity_coordinates(self) -> Tensor:
        """0 for I in every factor; the rest low enough that the diagonal of H is that of 'permutation', .992."""
        starts = [self._lowered(factor.identity_coordinates()) for factor in self._permutations()]
        return torch.cat([torch.zeros(0), *starts])

    def paper_coordinates(self) -> Tensor:
        return torch.cat([torch.zeros(0), *(factor.paper_coordinates() for factor in self._permutations())])

    def violation(self, matrix: Tensor) -> Tensor:
        nearest = reduce(kronecker_product, marginals(matrix, prime_factors(self.streams)), _one(matrix[..., 0]))
        return largest(doubly_stochastic_error(matrix), (matrix - nearest).abs().amax((-2, -1)))

    def _sizes(self) -> list[int]:
        return [factor.num_coordinates for factor in self._permutations()]

    def _permutations(self) -> list[Permutation]:
        return cast("list[Permutation]", list(self.factors))

    def _lowered(self, start: Tensor) -> Tensor:
        return torch.where(start < 0, start - math.log(len(self.factors)), start)


def prime_factors(number: int) -> list[int]:
    """Prime factors in ascending order, each as often as it divides; ``[]`` for 1."""
    for prime in range(2, math.isqrt(number) + 1):
        if number % prime == 0:
            return [prime, *prime_factors(number // prime)]
    return [number] if number > 1 else []


def kronecker_product(left: Tensor, right: Tensor) -> Tensor:
    """``(..., a, a), (..., b, b) -> (..., ab, ab)``."""
    product = left[..., :, None, :, None] * right[..., None, :, None, :]
    return product.flatten(-4, -3).flatten(-2)


def marginals(matrix: Tensor, sizes: list[int]) -> list[Tensor]:
    """The factors of a Kronecker product of doubly stochastic matrices, ``(..., f, f)`` each."""
    digits = len(sizes)
    by_digit = matrix.unflatten(-1, sizes).unflatten(-1 - digits, sizes) if digits else matrix
    factors = []
    for kept in range(digits):
        others = [axis - 2 * digits for axis in range(2 * digits) if axis % digits != kept]
        summed = by_digit.sum(others) if others else by_digit
        factors.append(summed * (sizes[kept] / matrix.shape[-1]))
    return factors


def _one(like: Tensor) -> Tensor:
    return like.new_ones(*like.shape[:-1], 1, 1)
