"""The specification of one site, on one screen; ``fast/`` computes the same with fewer passes over memory.

Letters: ``n`` streams, ``C`` channels, ``...`` leading axes (batch, sequence).

    m  = α ⊙ (W x̃) + b             project, x̃ all streams as one vector over its root mean square
    u  = Σ_j pre[j] X[j]           read
    y  = F(u)                      the branch, any module
    X' = H X + post ⊗ y            mix and write

``H[i, j]`` carries source stream ``j`` into destination stream ``i``, here and everywhere.
"""

from __future__ import annotations

import torch
from torch import Tensor

from .numerics import compute_dtype, outside_autocast


def project(streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """``m = α ⊙ (W x̃) + b``, ``x̃ = v / sqrt(mean(v²) + ε)``: ``(..., n, C) -> (..., m)`` in the compute dtype.

    ``v`` are the streams laid end to end, stream-major; ``W (m, nC)``, ``α (m,)``, ``b (m,)``.
    """
    wide = compute_dtype(streams)
    with outside_autocast(streams):
        v = streams.to(wide).flatten(-2)
        normalised = v * (v.square().mean(-1, keepdim=True) + epsilon).rsqrt()
        return torch.einsum("m,md,...d->...m", scale.to(wide), weight.to(wide), normalised) + bias.to(wide)


def read(streams: Tensor, pre: Tensor) -> Tensor:
    """``u = Σ_j pre[j] X[j]``: ``(..., n, C), (..., n) -> (..., C)`` in the dtype of the streams."""
    wide = compute_dtype(streams)
    with outside_autocast(streams):
        return torch.einsum("...jc,...j->...c", streams.to(wide), pre.to(wide)).to(streams.dtype)


def mix(streams: Tensor, post: Tensor, res: Tensor, branch_output: Tensor) -> Tensor:
    """``P = H X + post ⊗ y``: ``(..., n, C), (..., n), (..., n, n), (..., C) -> (..., n, C)``.

    The result stays in the compute dtype (``float32`` at least), for a retraction to use.
    """
    wide = compute_dtype(streams)
    with outside_autocast(streams):
        mixed = torch.einsum("...ij,...jc->...ic", res.to(wide), streams.to(wide))
        return mixed + torch.einsum("...i,...c->...ic", post.to(wide), branch_output.to(wide))


def write(streams: Tensor, post: Tensor, res: Tensor, branch_output: Tensor) -> Tensor:
    """``X' = H X + post ⊗ y``, accumulated in ``float32`` at least and cast once to the streams' dtype."""
    return mix(streams, post, res, branch_output).to(streams.dtype)
