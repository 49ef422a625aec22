"""Rotations of the streams by the Cayley map (JPmHC)."""

from __future__ import annotations

import torch
from torch import Tensor

from ..numerics import widest_dtype
from .base import Constraint
from .cayley import cayley_rotation, num_angles
from .distances import rotation_error
from .registry import register_constraint


@register_constraint("orthogonal", "jpmhc")
class Orthogonal(Constraint):
    """``H = (I + A)⁻¹(I − A)`` with A the skew matrix of the coordinates.

    The map is exact, where the published code iterates towards it. It reaches every rotation
    without the eigenvalue −1 and keeps all differences between streams, but not their mean.

    Args:
        streams: number of streams n.

    Reference: JPmHC, 2026, arXiv 2602.18308.
    """

    nonnegative = False
    unit_row_sums = False
    unit_column_sums = False
    nonexpansive = True
    closed_under_product = True
    set_description = "rotations SO(n)"
    reference = "JPmHC 2026, arXiv 2602.18308"

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (num_angles(self.streams),)

    def matrix(self, coordinates: Tensor) -> Tensor:
        # From n = 4 large angles cost digits, which float32 does not have to spare.
        working = widest_dtype(coordinates) if self.streams > 3 else coordinates.dtype
        return cayley_rotation(coordinates.to(working), self.streams).to(coordinates.dtype)

    def identity_coordinates(self) -> Tensor:
        return torch.zeros(self.num_coordinates)

    def violation(self, matrix: Tensor) -> Tensor:
        return rotation_error(matrix)
