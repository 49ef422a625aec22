"""The Cayley map: angles to rotations, in closed form up to size 3."""

from __future__ import annotations

import functools

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
    return geotorch.so.cayley_map(-2 * skew_matrix(angles, size))


def skew_matrix(angles: Tensor, size: int) -> Tensor:
    """``(..., r(r−1)/2) -> (..., r, r)``: strict upper triangle row by row, minus its transpose."""
    return (angles @ _skew_table(size).to(angles)).unflatten(-1, (size, size))


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


@functools.cache
def _skew_table(size: int) -> Tensor:
    rows, columns = torch.triu_indices(size, size, 1, device="cpu")
    table = torch.zeros(num_angles(size), size, size, device="cpu")
    table[torch.arange(len(rows)), rows, columns] = 1
    return (table - table.mT).flatten(1)
