"""The claims of a constraint, asked of matrices; tolerances follow from dtype and size alone."""

from __future__ import annotations

import torch
from torch import Tensor

from hyperconn.constraints import Constraint
from hyperconn.constraints.distances import column_sum_error, negativity, row_sum_error, spectral_excess
from hyperconn.numerics import tolerance

CONDITION = 1e-10  # an inverse, or a norm near zero, costs float64 some of its sixteen digits
TRUNCATION = 1e-3  # how near a truncated iteration comes for coordinates of unit deviation


def assert_claims(constraint: Constraint, matrix: Tensor, *, moderate: bool = False) -> None:
    """Every claim of the class holds for ``(..., n, n)``; of a truncated set only what is exact, unless moderate."""
    if matrix.numel() == 0:
        return
    rounding = max(4 * tolerance(matrix.dtype, constraint.streams), CONDITION)
    near = rounding if constraint.exact else TRUNCATION
    assert matrix.isfinite().all()
    if constraint.nonnegative:
        assert negativity(matrix).max() <= rounding
    if constraint.unit_row_sums:
        assert row_sum_error(matrix).max() <= rounding
    if not (constraint.exact or moderate):
        return
    if constraint.unit_column_sums:
        assert column_sum_error(matrix).max() <= near
    if constraint.nonexpansive:
        assert spectral_excess(matrix).max() <= near
    assert constraint.violation(matrix).max() <= near


def assert_finite(**tensors: Tensor | None) -> None:
    for name, tensor in tensors.items():
        assert tensor is None or torch.isfinite(tensor).all(), f"{name} is not finite"
