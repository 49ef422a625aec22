"""The Cayley map: angles to rotations, in closed form up to size 4."""

from __future__ import annotations

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
    if size <= 3:
        return _space_rotation(angles, size)
    if size == 4:
        return _four_dimensional_rotation(angles)
    return 2 * _half_sum(angles, size) - _identity(size, angles)


def squared_rotation(angles: Tensor, size: int) -> Tensor:
    """Entries of :func:`cayley_rotation` squared: ``(..., r(r−1)/2) -> (..., r, r)``."""
    if size <= 4:
        return cayley_rotation(angles, size).square()
    # (2 P − I)² entry by entry: then P is all that a gradient needs.
    identity, half_sum = _identity(size, angles), _half_sum(angles, size)
    return 4 * half_sum.square() - half_sum * (4 * identity) + identity


def skew_matrix(angles: Tensor, size: int) -> Tensor:
    """``(..., r(r−1)/2) -> (..., r, r)``: strict upper triangle row by row, minus its transpose."""
    row, column = torch.triu_indices(size, size, 1, device=angles.device)
    entry = torch.arange(size * size, device=angles.device)
    above, below = (row * size + column).unsqueeze(-1), (column * size + row).unsqueeze(-1)
    signs = (entry == above).to(angles.dtype) - (entry == below).to(angles.dtype)
    return (angles @ signs).unflatten(-1, (size, size))


def _half_sum(angles: Tensor, size: int) -> Tensor:
    """``P = (I + A)⁻¹ = (Q + I) / 2``; as an inverse, and not a solve, its gradient is two products."""
    return torch.linalg.inv_ex(_identity(size, angles) + skew_matrix(angles, size)).inverse


def _space_rotation(angles: Tensor, size: int) -> Tensor:
    """``I + 2 (A² − A) / (1 + s)``, s = Σ a²: from ``A³ = −s A``, for sizes 2 and 3."""
    skew, s = skew_matrix(angles, size), angles.square().sum(-1)[..., None, None]
    return _identity(size, angles) + (2 / (1 + s)) * (skew @ skew - skew)


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


def _identity(size: int, like: Tensor) -> Tensor:
    return torch.eye(size, dtype=like.dtype, device=like.device)
