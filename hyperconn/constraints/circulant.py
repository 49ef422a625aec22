"""Mixtures of cyclic shifts of the streams (C-mHC)."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .base import Constraint
from .distances import doubly_stochastic_error, largest
from .registry import register_constraint

OTHER_WEIGHT = 0.007  # of all shifts but I, at the start near I


@register_constraint("circulant", "c-mhc")
class Circulant(Constraint):
    """``H = Σ_k c_k Π^k`` with ``c = (1 − γ) e_0 + γ softmax(z)`` and Π the shift of stream j to j + 1.

    The eigenvalues of H are the discrete Fourier transform of c. With γ < 1 the diagonal stays
    above 1 − γ.

    Args:
        streams: number of streams n.
        gamma: γ in (0, 1]. Published: ``4/(2L)`` for a network of L residual layers; the default is
            that of L = 12.

    Raises:
        ValueError: γ outside (0, 1].

    Reference: C-mHC, repository manuscript, 2026-08.
    """

    nonnegative = True
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = True
    set_description = "mixtures of cyclic shifts"
    reference = "C-mHC 2026, repository manuscript"

    def __init__(self, streams: int, *, gamma: float = 1 / 6):
        super().__init__(streams)
        if isinstance(gamma, bool) or not isinstance(gamma, (int, float)) or not 0 < gamma <= 1:
            raise ValueError(
                f"Circulant(streams={streams}): expected 0 < gamma <= 1, got {gamma!r}. "
                "Published: 4/(2L) for a network of L residual layers."
            )
        self.gamma = float(gamma)

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (self.streams,)

    def options(self) -> dict[str, Any]:
        return {"gamma": self.gamma}

    def matrix(self, coordinates: Tensor) -> Tensor:
        stay = torch.zeros_like(coordinates[..., :1]) + (1 - self.gamma)
        c = self.gamma * coordinates.softmax(-1) + torch.nn.functional.pad(stay, (0, self.streams - 1))
        return circulant_matrix(c)

    def identity_coordinates(self) -> Tensor:
        """0 for the shift by nothing; the rest so low that H has the diagonal .993, or its least if that is more."""
        share = min(OTHER_WEIGHT / self.gamma, 0.5) / max(self.streams - 1, 1)
        others = math.log(share / (1 - share * (self.streams - 1)))
        return torch.cat([torch.zeros(1), torch.full((self.streams - 1,), others)])

    def paper_coordinates(self) -> Tensor:
        return torch.zeros(self.streams)

    def violation(self, matrix: Tensor) -> Tensor:
        not_circulant = (matrix - matrix.roll((1, 1), (-2, -1))).abs().amax((-2, -1))
        return largest(doubly_stochastic_error(matrix), not_circulant)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, gamma={self.gamma:g}"


def circulant_matrix(weights: Tensor) -> Tensor:
    """``(..., n) -> (..., n, n)``: entry [i, j] is the weight of the shift by ``(i − j) mod n``."""
    n = weights.shape[-1]
    shifts = weights.unbind(-1)
    entries = [shifts[(i - j) % n] for i in range(n) for j in range(n)]
    return torch.stack(entries, -1).unflatten(-1, (n, n))
