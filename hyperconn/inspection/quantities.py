"""Quantities of residual matrices: ``(..., n, n) -> (...)``; one entry in ``QUANTITIES`` adds a column."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..constraints.distances import column_sum_error, identity_like, row_sum_error


def negative_share(matrix: Tensor) -> Tensor:
    """Share of entries below zero, in [0, 1]."""
    return (matrix < 0).to(matrix.dtype).mean((-2, -1))


def most_negative(matrix: Tensor) -> Tensor:
    """The smallest entry, 0 if none is negative."""
    return matrix.amin((-2, -1)).clamp_max(0)


def spectral_norm(matrix: Tensor) -> Tensor:
    """``‖H‖₂``."""
    return torch.linalg.svdvals(matrix).amax(-1)


def distance_from_identity(matrix: Tensor) -> Tensor:
    """``‖H − I‖_F``."""
    return torch.linalg.matrix_norm(matrix - identity_like(matrix))


QUANTITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "negative_share": negative_share,
    "most_negative": most_negative,
    "row_sum_error": row_sum_error,
    "column_sum_error": column_sum_error,
    "spectral_norm": spectral_norm,
    "distance_from_identity": distance_from_identity,
}
