"""Leading singular directions of weights, and how well those of two layers agree."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Directions(NamedTuple):
    """The k leading ones of ``(out, in)``: ``left (k, out)``, ``values (k,)`` falling, ``right (k, in)``."""

    left: Tensor
    values: Tensor
    right: Tensor


@torch.no_grad()
def leading_directions(weight: Tensor, count: int) -> Directions:
    """From the eigenvectors of the smaller Gram matrix, in ``float64``; NaN if the weight is not finite."""
    wide = weight.detach().to("cpu" if weight.device.type == "mps" else weight.device).double()
    if not wide.isfinite().all():
        return Directions(*(wide.new_full(shape, math.nan).cpu() for shape in _shapes(wide, count)))
    tall = wide.shape[0] > wide.shape[1]
    small = wide.mT if tall else wide  # (m, M) with m ≤ M
    squares, vectors = torch.linalg.eigh(small @ small.mT)
    values = squares[-count:].flip(0).clamp_min(0).sqrt()
    near = vectors[:, -count:].flip(1).mT
    far = (near @ small) / values.clamp_min(torch.finfo(values.dtype).tiny)[:, None]
    left, right = (far, near) if tall else (near, far)
    return Directions(left.cpu(), values.cpu(), right.cpu())


def pairwise(directions: Tensor) -> Tensor:
    """``(L, k, d) -> (L, L)``: absolute cosines of the first directions; the sign of a direction is arbitrary."""
    first = directions[:, 0]
    return (first @ first.mT).abs()


def adjacent(matrix: Tensor) -> Tensor:
    """``(L, L) -> (L − 1,)``: each layer with the next."""
    return matrix.diagonal(1)


def adjacent_subspaces(directions: Tensor) -> Tensor:
    """``(L, k, d) -> (L − 1,)``: ``‖V_k V'_kᵀ‖²_F / k``, in [0, 1]."""
    overlap = directions[:-1] @ directions[1:].mT
    return overlap.square().sum((-2, -1)) / directions.shape[1]


def random_cosine(dim: int) -> float:
    """``E|cos| = Γ(d/2) / (√π Γ((d+1)/2))`` of two random directions in d dimensions."""
    return math.exp(math.lgamma(dim / 2) - math.lgamma((dim + 1) / 2)) / math.sqrt(math.pi)


def random_cosine_error(dim: int, pairs: int) -> float:
    """Standard error of a mean of so many such cosines; ``E cos² = 1/d``."""
    return math.sqrt((1 / dim - random_cosine(dim) ** 2) / pairs)


def _shapes(weight: Tensor, count: int) -> tuple[tuple[int, ...], ...]:
    out, into = weight.shape
    count = min(count, out, into)
    return (count, out), (count,), (count, into)
