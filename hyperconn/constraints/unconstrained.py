"""No constraint at all: the residual matrix of the original hyper-connections (HC)."""

from __future__ import annotations

import torch
from torch import Tensor

from .base import Constraint
from .registry import register_constraint


@register_constraint("unconstrained", "hc")
class Unconstrained(Constraint):
    """Any n × n matrix: the coordinates are its entries, row by row.

    Products through depth can explode; ``hyperconn.inspect`` shows their gain.

    Args:
        streams: number of streams n.

    Reference: Zhu et al., 2024, arXiv 2409.19606.
    """

    nonnegative = False
    unit_row_sums = False
    unit_column_sums = False
    nonexpansive = False
    closed_under_product = True
    set_description = "all n × n matrices"
    reference = "Zhu et al. 2024, arXiv 2409.19606"
    default_mapping = "per-stream"

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (self.streams**2,)

    def matrix(self, coordinates: Tensor) -> Tensor:
        return coordinates.unflatten(-1, (self.streams, self.streams))

    def identity_coordinates(self) -> Tensor:
        return torch.eye(self.streams).flatten()

    def violation(self, matrix: Tensor) -> Tensor:
        return torch.zeros_like(matrix[..., 0, 0])
