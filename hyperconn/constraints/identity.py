"""The identity: streams are never mixed (iHC)."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Constraint
from .distances import identity_like
from .registry import register_constraint


@register_constraint("identity", "ihc")
class Identity(Constraint):
    """``H = I``: streams meet only in what the branch reads and writes.

    Args:
        streams: number of streams n.

    Reference: the ablation of mHC (Xie et al., 2025, arXiv 2512.24880); arXiv 2607.28611.
    """

    nonnegative = True
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = True
    set_description = "{I}"
    reference = "arXiv 2512.24880 (ablation), 2607.28611"
    coordinate_sizes = ()

    def matrix(self, coordinates: Tensor) -> Tensor:
        eye = torch.eye(self.streams, dtype=coordinates.dtype, device=coordinates.device)
        return eye.expand(*coordinates.shape[:-1], self.streams, self.streams)

    def identity_coordinates(self) -> Tensor:
        return torch.zeros(0)

    def violation(self, matrix: Tensor) -> Tensor:
        return (matrix - identity_like(matrix)).abs().amax((-2, -1))
