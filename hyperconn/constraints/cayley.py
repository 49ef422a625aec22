"""The Cayley map: angles to rotations, in closed form up to size 4."""

from __future__ import annotations

import itertools

import geotorch.so
import torch
from torch import Tensor


def num_angles(size: int) -> int:
    """Free angles of a rotation of that size."""
    return size * (size - 1) // 2


def cayley_rotation(angles: Tensor, size: int) -> Tensor:
    """``Q = (I + A)⁻¹(I − A)`` with A the skew matrix of the angles.

    Args:
        angles: ``(..., r(r−1)/2)``, the strict upper triangle of A, row by row.
        size: r, the size of the rotation.

    Returns:
        Tensor: ``(..., r, r)``, orthogonal with determinant 1; I at zero angles.
    """
    if size <= 1:
        return angles.new_ones(*angles.shape[:-1], size, size)
    if size == 2:
        return _plane_rotation(angles)
    if size == 3:
        return _space_rotation(angles)
    if size == 4:
        return _four_dimensional_rotation(angles)
    return geotorch.so.cayley_map(-2 * skew_matrix(angles, size))


def skew_matrix(angles: Tensor, size: int) -> Tensor:
    """``(..., r(r−1)/2) -> (..., r, r)``: strict upper triangle row by row, minus its transpose."""
    above, below = angles.unbind(-1), (-angles).unbind(-1)
    zero = angles.new_zeros(angles.shape[:-1])
    place = {pair: index for index, pair in enumerate(itertools.combinations(range(size), 2))}
    entries = [
        zero if i == j else above[place[i, j]] if i < j else below[place[j, i]]
        for i in range(size)
        for j in range(size)
    ]
    return torch.stack(entries, -1).unflatten(-1, (size, size))


def _plane_rotation(angles: Tensor) -> Tensor:
    z = angles[..., 0]
    cosine, sine = 1 - z * z, 2 * z
    rows = torch.stack([cosine, -sine, sine, cosine], -1) / (1 + z * z).unsqueeze(-1)
    return rows.unflatten(-1, (2, 2))


def _space_rotation(angles: Tensor) -> Tensor:
    """With a the axis of A: ``((1 − |a|²) I + 2 a aᵀ − 2 A) / (1 + |a|²)``."""
    x, y, z = -angles[..., 2], angles[..., 1], -angles[..., 0]
    xx, yy, zz, xy, xz, yz = x * x, y * y, z * z, x * y, x * z, y * z
    entries = [
        1 + xx - yy - zz, 2 * (xy + z), 2 * (xz - y),
        2 * (xy - z), 1 - xx + yy - zz, 2 * (yz + x),
        2 * (xz + y), 2 * (yz - x), 1 - xx - yy + zz,
    ]  # fmt: skip
    return (torch.stack(entries, -1) / (1 + xx + yy + zz).unsqueeze(-1)).unflatten(-1, (3, 3))


def _four_dimensional_rotation(angles: Tensor) -> Tensor:
    """``((1 + s − p²) I − 2 (A + p Ã) + 2 A²) / (1 + s + p²)``, s = Σ a², p the Pfaffian of A, Ã its dual.

    It follows from ``A⁴ + s A² + p² I = 0`` and ``A³ = p Ã − s A``.
    """
    a, b, c, d, e, f = angles.unbind(-1)
    p = (a * f - b * e + c * d).unsqueeze(-1)
    dual = torch.stack([f, -e, d, c, -b, a], -1)
    s = angles.square().sum(-1, keepdim=True)
    skew = skew_matrix(angles, 4)
    diagonal = torch.diag_embed((1 + s - p * p).expand_as(angles[..., :4]))
    return (diagonal + 2 * (skew @ skew - skew_matrix(angles + p * dual, 4))) / (1 + s + p * p).unsqueeze(-1)
