"""Unit row and column sums inside the spectral ball: mixing with negative entries (sHC)."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..numerics import parameter_dtype
from .base import Constraint
from .cayley import cayley_rotation, num_angles
from .distances import column_sum_error, largest, row_sum_error, spectral_excess
from .registry import register_constraint

IDENTITY_SPECTRUM = 3.0  # tanh(3) = .995, with seven times the gradient of the published start
PAPER_SPECTRUM = 4.0


@register_constraint("spectral-sphere", "shc")
class SpectralSphere(Constraint):
    """``H = J + B U diag(s) Vᵀ Bᵀ`` with ``U, V`` Cayley rotations and ``s = tanh(·)``.

    ``J = 11ᵀ/n``, and the columns of the Helmert basis ``B`` (n × (n−1)) are orthonormal and
    orthogonal to 1. The set is all matrices with unit row and column sums and ``‖H‖₂ = 1``;
    it contains the doubly stochastic matrices and, from n = 3, matrices with negative entries
    down to ``2/n − 1``. Coordinates: the angles of U, the angles of V, the spectrum; the
    learned bounds ``γ`` of the angles are parameters of this module.

    Args:
        streams: number of streams n.

    Reference: sHC, 2026, arXiv 2603.20896.
    """

    nonnegative = False
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = True
    set_description = "unit row and column sums, ‖H‖₂ = 1"
    reference = "sHC 2026, arXiv 2603.20896"

    basis: Tensor
    angle_bound: nn.Parameter | None

    def __init__(self, streams: int):
        super().__init__(streams)
        bound = nn.Parameter(torch.empty(2, dtype=parameter_dtype())) if self.num_angles else None
        self.register_parameter("angle_bound", bound)
        self.reset_parameters()

    @property
    def num_angles(self) -> int:
        """Angles of one rotation of the n − 1 directions orthogonal to the mean."""
        return num_angles(self.streams - 1)

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (self.num_angles, self.num_angles, self.streams - 1)

    def constant_tables(self) -> dict[str, Callable[[], Tensor]]:
        return {"basis": functools.partial(helmert_basis, self.streams)}

    def reset_parameters(self) -> None:
        super().reset_parameters()
        if self.angle_bound is not None:
            nn.init.ones_(self.angle_bound)

    def matrix(self, coordinates: Tensor) -> Tensor:
        basis, bounded, k = self.basis.to(coordinates.dtype), coordinates.tanh(), self.num_angles
        angles = bounded[..., : 2 * k].unflatten(-1, (2, k))
        if self.angle_bound is not None:
            angles = self.angle_bound.to(angles.dtype).unsqueeze(-1) * angles
        U, V = cayley_rotation(angles, self.streams - 1).unbind(-3)
        inner = (U * bounded[..., None, 2 * k :]) @ V.mT
        return basis @ (inner @ basis.mT) + 1 / self.streams

    def identity_coordinates(self) -> Tensor:
        return self._without_rotation(IDENTITY_SPECTRUM)

    def paper_coordinates(self) -> Tensor:
        return self._without_rotation(PAPER_SPECTRUM)

    def _without_rotation(self, spectrum: float) -> Tensor:
        return torch.cat([torch.zeros(2 * self.num_angles), torch.full((self.streams - 1,), spectrum)])

    def violation(self, matrix: Tensor) -> Tensor:
        return largest(row_sum_error(matrix), column_sum_error(matrix), spectral_excess(matrix))


def helmert_basis(size: int) -> Tensor:
    """``(n, n − 1)``, float64: orthonormal columns, each orthogonal to the vector of ones."""
    basis = torch.zeros(size, size - 1, dtype=torch.float64)
    for i in range(1, size):
        basis[:i, i - 1] = (i * (i + 1)) ** -0.5
        basis[i, i - 1] = -i * (i * (i + 1)) ** -0.5
    return basis
