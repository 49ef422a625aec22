"""Matrices as one picture made of tensors, where matplotlib would be too slow."""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.nn import functional as F

CELL, GAP = 12, 6  # pixels
POSITIVE, NEGATIVE = (0.13, 0.40, 0.67), (0.70, 0.09, 0.17)


def mosaic(matrices: Tensor) -> Tensor:
    """``(L, n, n) -> (3, height, width)`` in [0, 1]: tiles row by row, white 0, blue positive, red negative.

    One colour scale for all, up to the largest finite magnitude; what is not finite is black.
    """
    finite = matrices.isfinite()
    values = torch.where(finite, matrices, 0)
    strength = (values / values.abs().amax().clamp_min(torch.finfo(values.dtype).tiny)).unsqueeze(1)
    blue, red = (torch.tensor(colour).to(values).reshape(3, 1, 1) for colour in (POSITIVE, NEGATIVE))
    colours = 1 - strength.clamp_min(0) * (1 - blue) - (-strength).clamp_min(0) * (1 - red)
    colours = torch.where(finite.unsqueeze(1), colours, 0)
    tiles = F.pad(colours.repeat_interleave(CELL, -1).repeat_interleave(CELL, -2), (0, GAP, 0, GAP), value=1.0)
    return _in_rows(tiles)


def _in_rows(tiles: Tensor) -> Tensor:
    count, channels, height, width = tiles.shape
    columns = math.ceil(math.sqrt(count))
    rows = math.ceil(count / columns)
    filled = torch.cat([tiles, tiles.new_ones(rows * columns - count, channels, height, width)])
    grid = filled.reshape(rows, columns, channels, height, width)
    return grid.permute(2, 0, 3, 1, 4).reshape(channels, rows * height, columns * width)
