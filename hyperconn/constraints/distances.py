"""Distances of a matrix from the properties that the constraints are made of: ``(..., n, n) -> (...)``."""

from __future__ import annotations

import torch
from torch import Tensor

from ..numerics import compute_dtype


def row_sum_error(matrix: Tensor) -> Tensor:
    """Largest ``|Σ_j H[i, j] − 1|``."""
    return (_wide(matrix).sum(-1) - 1).abs().amax(-1)


def column_sum_error(matrix: Tensor) -> Tensor:
    """Largest ``|Σ_i H[i, j] − 1|``."""
    return (_wide(matrix).sum(-2) - 1).abs().amax(-1)


def negativity(matrix: Tensor) -> Tensor:
    """Size of the most negative entry, 0 if there is none."""
    return (-_wide(matrix)).clamp_min(0).amax((-2, -1))


def spectral_excess(matrix: Tensor) -> Tensor:
    """How far ``‖H‖₂`` lies above 1."""
    return (torch.linalg.svdvals(_wide(matrix)).amax(-1) - 1).clamp_min(0)


def orthogonality_error(matrix: Tensor) -> Tensor:
    """Largest entry of ``|HᵀH − I|``."""
    wide = _wide(matrix)
    return (wide.mT @ wide - identity_like(wide)).abs().amax((-2, -1))


def rotation_error(matrix: Tensor) -> Tensor:
    """Distance of ``HᵀH`` from I, and 2 for a reflection (what it is away from the nearest rotation)."""
    reflected = 2 * (torch.linalg.det(_wide(matrix)) < 0).to(matrix.dtype)
    return largest(orthogonality_error(matrix), reflected)


def doubly_stochastic_error(matrix: Tensor) -> Tensor:
    """Largest of the row error, the column error and the negativity."""
    return largest(row_sum_error(matrix), column_sum_error(matrix), negativity(matrix))


def largest(*distances: Tensor) -> Tensor:
    """Elementwise maximum of several distances."""
    return torch.stack(distances).amax(0)


def identity_like(matrix: Tensor) -> Tensor:
    """``I`` of the size, dtype and device of ``(..., n, n)``."""
    return torch.eye(matrix.shape[-1], dtype=matrix.dtype, device=matrix.device)


def _wide(matrix: Tensor) -> Tensor:
    return matrix.to(compute_dtype(matrix))
