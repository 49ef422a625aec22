"""Block-averaged squares of an orthogonal matrix: doubly stochastic without iterating (go-mHC)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from ..checks import check_count
from ..numerics import widest_dtype
from .base import Constraint
from .cayley import num_angles, squared_rotation
from .distances import doubly_stochastic_error
from .registry import register_constraint

OTHER_WEIGHT = 0.007  # of a row outside the diagonal, at the start near I


@register_constraint("orthostochastic", "go-mhc")
class Orthostochastic(Constraint):
    """``H[i, j] = (1/s) Σ_{k,l} Q²[(i, k), (j, l)]`` with ``Q = (I − A)(I + A)⁻¹`` of size ns.

    Rows and columns of ``Q²`` sum to 1, so those of H do, for any coordinates.

    Args:
        streams: number of streams n.
        block: s, rows of Q per stream; a multiple of s reaches all that s does, and more.

    Raises:
        TypeError: block is not an integer.
        ValueError: block < 1.

    Reference: go-mHC, 2026, arXiv 2604.02309.
    """

    nonnegative = True
    unit_row_sums = True
    unit_column_sums = True
    nonexpansive = True
    closed_under_product = False
    set_description = "doubly stochastic: block means of squared rotations"
    reference = "go-mHC 2026, arXiv 2604.02309"

    def __init__(self, streams: int, *, block: int = 2):
        super().__init__(streams)
        check_count(f"Orthostochastic(streams={streams})", "block", block)
        self.block = block

    @property
    def coordinate_sizes(self) -> tuple[int, ...]:
        return (num_angles(self.streams * self.block),)

    def options(self) -> dict[str, Any]:
        return {"block": self.block}

    def matrix(self, coordinates: Tensor) -> Tensor:
        size = self.streams * self.block
        # The solve for large angles needs more digits than float32 has.
        squares = squared_rotation(coordinates.to(widest_dtype(coordinates)), size)
        blocks = squares.unflatten(-1, (self.streams, self.block)).unflatten(-3, (self.streams, self.block))
        return (blocks.sum((-3, -1)) / self.block).to(coordinates.dtype)

    def identity_coordinates(self) -> Tensor:
        """Small angles, because at 0 every gradient is 0; unequal ones, because equal ones would stay equal."""
        pattern = torch.sin(1.0 + torch.arange(self.num_coordinates))
        # A row has s(n − 1) angles outside its block, of mean square ½; an entry of Q is twice its angle.
        outside = max(self.block * (self.streams - 1), 1)
        return pattern * (OTHER_WEIGHT / (2 * outside)) ** 0.5

    def paper_coordinates(self) -> Tensor:
        """Θ = 0, exactly I; a stationary point, which only a weight of the mapping that is not 0 leaves."""
        return torch.zeros(self.num_coordinates)

    def violation(self, matrix: Tensor) -> Tensor:
        return doubly_stochastic_error(matrix)

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, block={self.block}"
