"""The specification as a compiler likes it: products and sums that fuse into one pass over the streams.

Small sums over n streams are unrolled by the compiler; an einsum would become a call of its own that
reads and writes everything once more. Run without a compiler these forms would fill large temporaries.
"""

from __future__ import annotations

from torch import Tensor

from ..numerics import compute_dtype, outside_autocast


def project(streams: Tensor, weight: Tensor, scale: Tensor, bias: Tensor, epsilon: float) -> Tensor:
    """:func:`hyperconn.functional.project`, normalised after the product."""
    wide = compute_dtype(streams)
    with outside_autocast(streams):
        v = streams.to(wide).flatten(-2)
        inverse_rms = (v.square().mean(-1, keepdim=True) + epsilon).rsqrt()
        return (v @ weight.to(wide).mT) * inverse_rms * scale.to(wide) + bias.to(wide)


def read(streams: Tensor, pre: Tensor) -> Tensor:
    """:func:`hyperconn.functional.read`."""
    wide = compute_dtype(streams)
    return (pre.to(wide).unsqueeze(-1) * streams.to(wide)).sum(-2).to(streams.dtype)


def mix(streams: Tensor, post: Tensor, res: Tensor, branch_output: Tensor) -> Tensor:
    """:func:`hyperconn.functional.mix`."""
    wide = compute_dtype(streams)
    mixed = (res.to(wide).unsqueeze(-1) * streams.to(wide).unsqueeze(-3)).sum(-2)
    return mixed + post.to(wide).unsqueeze(-1) * branch_output.to(wide).unsqueeze(-2)
