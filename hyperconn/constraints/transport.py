"""Doubly stochastic matrices filled entry by entry, as in a transport problem (TBP-mHC)."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from .base import Constraint
from .distances import doubly_stochastic_error
from .registry import register_constraint

DIAGONAL_START = 5.0


@register_constraint("transport", "tbp-mhc")
class Transport(Constraint):
    """Every entry is a share of what its row and column have left: ``H_ij = L + (U − L) sigmoid(t_ij)``.

    Rows i and columns j < n in order, with the remainders ``r_i`` and ``c_j``, which start at 1:
    ``U = min(r_i, c_j)`` and ``L = max(0, r_i − Σ_{j'>j} c_j')``, so that the rest still fits. The
    last row and column take the remainders. (The published third bound, ``c_j − Σ_{i'>i} r_i'``,
    is never active in this order: the rows below still have all of their 1.)

    Args:
        streams: number of streams n.

    Reference: TBP-mHC, 2026, arXiv 2605.21724.
    """

    nonnegative = True
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = True
    set_description = "doubly stochastic matrices"
    reference = "TBP-mHC 2026, arXiv 2605.21724"

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return ((self.streams - 1) ** 2,)

    def matrix(self, coordinates: Tensor) -> Tensor:
        n = self.streams
        shares = coordinates.sigmoid().movedim(-1, 0).contiguous().unbind()
        columns = [torch.ones_like(coordinates.sum(-1))] * n
        entries: list[Tensor] = []
        for i in range(n - 1):
            row = fill_row(columns, shares[i * (n - 1) : (i + 1) * (n - 1)])
            columns = [column - entry for column, entry in zip(columns, row, strict=True)]
            entries += row
        # Rounding may leave −1e-8 where nothing is left.
        return torch.stack([*entries, *columns], -1).clamp_min(0).unflatten(-1, (n, n))

    def identity_coordinates(self) -> Tensor:
        """High on the diagonal, the higher the more rows pass their remainders on to the last; 0 elsewhere."""
        rows = self.streams - 1
        return ((DIAGONAL_START + math.log(max(rows, 1))) * torch.eye(rows)).flatten()

    def paper_coordinates(self) -> Tensor:
        return torch.zeros(self.num_coordinates)

    def violation(self, matrix: Tensor) -> Tensor:
        return doubly_stochastic_error(matrix)


def fill_row(columns: list[Tensor], shares: tuple[Tensor, ...]) -> list[Tensor]:
    """One row, ``(...)`` per entry, from what the columns have left and the row's shares (one fewer)."""
    room_after = [columns[-1]]  # Σ_{j'>j} c_j', from the right
    for column in reversed(columns[1:-1]):
        room_after.append(room_after[-1] + column)
    row, left = [], torch.ones_like(columns[0])
    for column, share, room in zip(columns, shares, reversed(room_after)):  # noqa: B905 - the last column has no share
        least = (left - room).clamp_min(0)
        row.append(torch.lerp(least, torch.minimum(left, column), share))
        left = left - row[-1]
    return [*row, left]
