"""Telling the streams apart from the first layer on."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ..checks import check_count, check_streams
from ..numerics import parameter_dtype
from ..parameters import ConnectionParameters
from ..retraction import Retraction, as_retraction
from ..switch import Switchable


class StreamEmbedding(Switchable, ConnectionParameters):
    """``X[s] + E[s]``: a learned vector per stream, for after :class:`Expand`; it starts at zero.

    Args:
        streams: number of streams n.
        dim: width C of one stream.
        retraction: puts the sum back on the manifold: None, a name, an order p, or an instance.
    """

    def __init__(self, streams: int, dim: int, *, retraction: str | float | Retraction | None = None):
        super().__init__()
        check_count("StreamEmbedding", "streams", streams)
        check_count("StreamEmbedding", "dim", dim)
        self.streams, self.dim = streams, dim
        self.embedding = nn.Parameter(torch.empty(streams, dim, dtype=parameter_dtype()))
        # It only projects: as a submodule the retraction's step would be registered without use.
        self._retraction = (as_retraction(retraction),)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """All streams alike."""
        nn.init.zeros_(self.embedding)

    def forward(self, streams: Tensor) -> Tensor:
        """``(..., n, C) -> (..., n, C)`` in the dtype of the streams."""
        n = self.streams if self.enabled else 1
        check_streams(f"StreamEmbedding(streams={self.streams}, dim={self.dim})", streams, n, self.dim)
        if not self.enabled:
            return streams
        (retraction,) = self._retraction
        moved = (streams + self.embedding).to(streams.dtype)
        return moved if retraction is None else retraction.project(moved)

    def extra_repr(self) -> str:
        return f"streams={self.streams}, dim={self.dim}"
