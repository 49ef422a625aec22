"""Rotations of four streams by a pair of unit quaternions (oHC)."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from .base import Constraint
from .distances import rotation_error
from .registry import register_constraint

EPSILON = 1e-14  # of the squared norm: keeps the gradient finite at ν = 0, and H in SO(4) for |ν| > 1e-4


@register_constraint("quaternion", "ohc")
class Quaternion(Constraint):
    """``H x = q x r̄`` for four streams read as one quaternion x: all of SO(4) from 8 coordinates.

    ``q = ν/√(‖ν‖² + ε)`` with ``ν = (1 + ℓ_0, ℓ_1, ℓ_2, ℓ_3)``, and r likewise from ``ℓ_4 … ℓ_7``.

    Args:
        streams: number of streams n, 4 (or a single one).

    Raises:
        ValueError: another n.

    Reference: oHC, 2026, arXiv 2609.02672.
    """

    nonnegative = False
    unit_row_sums = False
    unit_column_sums = False
    nonexpansive = True
    closed_under_product = True
    set_description = "rotations SO(4)"
    reference = "oHC 2026, arXiv 2609.02672"

    rotations: Tensor
    one: Tensor

    @classmethod
    def unsupported(cls, streams: int) -> str | None:
        if streams in (1, 4):
            return None
        return "expected 4 streams, because a quaternion has four parts. Use 'orthogonal' for another number."

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (8,) if self.streams == 4 else ()

    def constant_tables(self) -> dict[str, Callable[[], Tensor]]:
        return {"rotations": rotation_table, "one": real_unit} if self.streams == 4 else {}

    def matrix(self, coordinates: Tensor) -> Tensor:
        if self.streams == 1:
            return coordinates.new_ones(*coordinates.shape[:-1], 1, 1)
        nu = coordinates.unflatten(-1, (2, 4)) + self.one.to(coordinates.dtype)
        q, r = (nu * (nu.square().sum(-1, keepdim=True) + EPSILON).rsqrt()).unbind(-2)
        products = (q.unsqueeze(-1) * r.unsqueeze(-2)).flatten(-2)
        return (products @ self.rotations.to(products.dtype)).unflatten(-1, (4, 4))

    def identity_coordinates(self) -> Tensor:
        return torch.zeros(self.num_coordinates)

    def violation(self, matrix: Tensor) -> Tensor:
        return rotation_error(matrix)


def real_unit() -> Tensor:
    """The quaternion 1."""
    return torch.tensor([1.0, 0.0, 0.0, 0.0])


def rotation_table() -> Tensor:
    """``(16, 16)``: row (a, b) is the 4 × 4 matrix of ``x ↦ e_a x ē_b``, row by row."""
    product = _hamilton_product()
    conjugate = torch.tensor([1.0, -1.0, -1.0, -1.0])
    return torch.einsum("ajm,mbi,b->abij", product, product, conjugate).reshape(16, 16)


def _hamilton_product() -> Tensor:
    """``M[a, b, c]``: the part c of ``e_a e_b``."""
    product = torch.zeros(4, 4, 4)
    for a in range(4):
        product[0, a, a] = product[a, 0, a] = 1
        product[a, a, 0] = 1 if a == 0 else -1
    for a, b, c in ((1, 2, 3), (2, 3, 1), (3, 1, 2)):
        product[a, b, c], product[b, a, c] = 1, -1
    return product
