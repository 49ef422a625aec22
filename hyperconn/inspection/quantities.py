"""Quantities of mixing matrices, of gates and of streams, one value per token: ``(T, ...) -> (T, ...)``."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from ..constraints.distances import column_sum_error, identity_like, row_sum_error

SAMPLED_TOKENS = 64  # for the spread of the streams, which needs a difference of stream size


def negative_share(matrix: Tensor) -> Tensor:
    """Share of entries below zero, in [0, 1]."""
    return (matrix < 0).to(matrix.dtype).mean((-2, -1))


def most_negative(matrix: Tensor) -> Tensor:
    """The smallest entry, 0 if none is negative."""
    return matrix.amin((-2, -1)).clamp_max(0)


def forward_gain(matrix: Tensor) -> Tensor:
    """Largest absolute row sum ``max_i Σ_j |H[i, j]|``: what a bounded signal can grow by, forward."""
    return matrix.abs().sum(-1).amax(-1)


def backward_gain(matrix: Tensor) -> Tensor:
    """Largest absolute column sum ``max_j Σ_i |H[i, j]|``: what a bounded gradient can grow by, backward."""
    return matrix.abs().sum(-2).amax(-1)


def distance_from_identity(matrix: Tensor) -> Tensor:
    """``‖H − I‖_F``."""
    return torch.linalg.matrix_norm(matrix - identity_like(matrix))


def distance_from_uniform(matrix: Tensor) -> Tensor:
    """``‖H − J‖_F`` with ``J = 11ᵀ/n``."""
    return torch.linalg.matrix_norm(matrix - 1 / matrix.shape[-1])


QUANTITIES: dict[str, Callable[[Tensor], Tensor]] = {
    "negative_share": negative_share,
    "most_negative": most_negative,
    "row_sum_error": row_sum_error,
    "column_sum_error": column_sum_error,
    "forward_gain": forward_gain,
    "backward_gain": backward_gain,
    "distance_from_identity": distance_from_identity,
    "distance_from_uniform": distance_from_uniform,
}
SPECTRAL_QUANTITIES = ("spectral_norm", "second_singular_value", "smallest_singular_value")
MATRIX_QUANTITIES = (*QUANTITIES, *SPECTRAL_QUANTITIES)


def measure_matrices(matrices: Tensor) -> dict[str, Tensor]:
    """All quantities of ``(T, n, n)``: entries, singular values and scalars; NaN where a matrix is not finite."""
    finite = matrices.isfinite().all(-1).all(-1)
    whole = torch.where(finite[:, None, None], matrices, 0)
    singular_values = torch.linalg.svdvals(whole)
    scalars = {name: quantity(whole) for name, quantity in QUANTITIES.items()}
    scalars |= dict(zip(SPECTRAL_QUANTITIES, _named(singular_values), strict=True))
    clean = {name: torch.where(finite, value, torch.nan) for name, value in scalars.items()}
    return {
        "entries": matrices,
        "negative": (matrices < 0).to(matrices.dtype),
        "singular_values": torch.where(finite[:, None], singular_values, torch.nan),
        "non_finite": (~finite).to(matrices.dtype),
        **clean,
    }


def distance_from_start(matrices: Tensor, starts: Tensor) -> Tensor:
    """``(T, n, n), (S, n, n) -> (T,)``: Frobenius distance from the nearest of the starts."""
    return torch.linalg.matrix_norm(matrices.unsqueeze(1) - starts).amin(-1)


def measure_gates(pre: Tensor, post: Tensor) -> dict[str, Tensor]:
    """The weights themselves, ``(T, n)`` each."""
    finite = pre.isfinite().all(-1) & post.isfinite().all(-1)
    return {"pre": pre, "post": post, "non_finite": (~finite).to(pre.dtype)}


def stream_similarity(streams: Tensor) -> Tensor:
    """``(T, n, C) -> (T,)``: mean cosine over the pairs of streams; a stream of zeros has cosine 0."""
    gram = streams @ streams.mT
    norms = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    least = torch.finfo(gram.dtype).tiny
    cosines = gram / (norms.unsqueeze(-1) * norms.unsqueeze(-2)).clamp_min(least)
    n = streams.shape[-2]
    return cosines.triu(1).sum((-2, -1)) / (n * (n - 1) / 2)


def stream_spread(streams: Tensor) -> Tensor:
    """``(T, n, C) -> (T,)``: largest ``‖X_i − X_0‖ / ‖X_0‖``; exactly 0 for copies."""
    first = streams[:, :1]
    least = torch.finfo(streams.dtype).tiny
    return ((streams - first).norm(dim=-1) / first.norm(dim=-1).clamp_min(least)).amax(-1)


def sampled(streams: Tensor) -> Tensor:
    """At most about ``SAMPLED_TOKENS`` tokens of ``(T, n, C)``, evenly spaced."""
    return streams[:: max(1, -(-streams.shape[0] // SAMPLED_TOKENS))]


def _named(singular_values: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Largest, second (0 if there is only one) and smallest of ``(T, n)``, which are in falling order."""
    largest, smallest = singular_values[:, 0], singular_values[:, -1]
    second = singular_values[:, 1] if singular_values.shape[-1] > 1 else torch.zeros_like(largest)
    return largest, second, smallest
