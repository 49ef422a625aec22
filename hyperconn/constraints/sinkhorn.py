"""Doubly stochastic matrices by Sinkhorn-Knopp iterations in the log domain (mHC)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .balancing import balance
from .base import Constraint
from .distances import doubly_stochastic_error
from .registry import register_constraint


@register_constraint("sinkhorn", "mhc")
class Sinkhorn(Constraint):
    """Normalise the columns, then the rows of ``exp(L)``, a fixed number of times.

    The rows come last and sum to 1 exactly for any logits. The columns are off by the truncation:
    about 1e-4 for logits of unit deviation after 20 iterations, up to 1e-2 for matrices near the identity (the
    residual start with a deviation of 0.3, n = 4), much more for contrasts above 10.
    The gradient is that of the truncated iteration, not of its fixed point. At n = 2 the limit has a closed
    form, which is computed instead, whatever the number of iterations.

    Args:
        streams: number of streams n.
        iterations: pairs of normalisations, at least 1.

    Raises:
        ValueError: iterations < 1, which would leave the matrix unconstrained.

    Reference: mHC (Xie et al., 2025, arXiv 2512.24880).
    """

    nonnegative = True
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = True
    exact = False
    set_description = "doubly stochastic matrices"
    reference = "Xie et al. 2025, arXiv 2512.24880"

    def __init__(self, streams: int, *, iterations: int = 20):
        super().__init__(streams)
        if isinstance(iterations, bool) or not isinstance(iterations, int) or iterations < 1:
            raise ValueError(
                f"Sinkhorn(streams={streams}): expected iterations to be a whole number of at least 1, got "
                f"{iterations!r}; without iterations H would be unconstrained. Use 'unconstrained' for that."
            )
        self.iterations = iterations

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (self.streams**2,)

    def options(self) -> dict[str, int]:
        return {"iterations": self.iterations}

    def matrix(self, coordinates: Tensor) -> Tensor:
        logits = coordinates.unflatten(-1, (self.streams, self.streams))
        return _balanced_pair(logits) if self.streams == 2 else balance(logits, self.iterations)

    def identity_coordinates(self) -> Tensor:
        """0 on the diagonal, and elsewhere −6 at n = 4, for every n with the same diagonal of H, .993."""
        return self._identity_against(-6.0 - math.log(max(self.streams - 1, 1) / 3))

    def paper_coordinates(self) -> Tensor:
        return self._identity_against(-8.0)

    def violation(self, matrix: Tensor) -> Tensor:
        return doubly_stochastic_error(matrix)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, iterations={self.iterations}"

    def _identity_against(self, other: float) -> Tensor:
        return (other * (1 - torch.eye(self.streams))).flatten()


def _balanced_pair(logits: Tensor) -> Tensor:
    """The limit of the iterations for n = 2: ``[[a, 1 − a], [1 − a, a]]``, ``a = σ((L₁₁ + L₂₂ − L₁₂ − L₂₁)/2)``."""
    contrast = (logits[..., 0, 0] + logits[..., 1, 1] - logits[..., 0, 1] - logits[..., 1, 0]) / 2
    a, b = contrast.sigmoid(), (-contrast).sigmoid()
    return torch.stack([a, b, b, a], -1).unflatten(-1, (2, 2))
