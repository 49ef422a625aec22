"""Reading the streams more than once."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from .. import fast
from ..checks import check_count, check_streams
from ..connection import HyperConnection
from ..gates import SigmoidGates
from ..streams import LearnedWeights
from ..switch import Switchable


class Read(Switchable):
    """``(..., n, C) -> (..., C)``: one more read, with weights of its own: ``u = Σ_j sigmoid(α W x̃ + b)_j X_j``.

    It starts as the read of a connection does: Σ = 1, most of it from the home stream.

    Args:
        dim: width C of one stream.
        streams: number of streams n.
        layer_index: the home stream is ``layer_index % streams``.
    """

    def __init__(self, dim: int, streams: int = 4, *, layer_index: int = 0):
        super().__init__()
        check_count("Read", "dim", dim)
        check_count("Read", "streams", streams)
        self.dim, self.streams = dim, streams
        self.weights = None
        if streams > 1:
            logits, _ = SigmoidGates().start(streams, layer_index % streams, "residual")
            self.weights = LearnedWeights(dim, streams, start=logits.sigmoid())

    def forward(self, streams: Tensor) -> Tensor:
        """``(..., n, C) -> (..., C)``."""
        n = self.streams if self.enabled else 1
        check_streams(f"Read(dim={self.dim}, streams={self.streams})", streams, n, self.dim)
        if n == 1 or self.weights is None:
            return streams.squeeze(-2)
        return fast.read(streams, self.weights(streams))[0]


class ExtraReads(nn.Module):
    """A connection whose branch gets further reads of the same streams, e.g. inputs of its own for k and v.

    The branch is called as ``branch(own read, read 1, …, read r, *args, **kwargs)``.

    Args:
        connection: a connection with a branch.
        num_reads: number r of further reads.
        layer_index: position of the sublayer, for the home stream of the reads.

    Raises:
        ValueError: num_reads < 1.
    """

    def __init__(self, connection: HyperConnection, num_reads: int, *, layer_index: int = 0):
        super().__init__()
        check_count("ExtraReads", "num_reads", num_reads)
        self.connection = connection
        dim, streams = connection.dim, connection.streams
        self.reads = nn.ModuleList(Read(dim, streams, layer_index=layer_index) for _ in range(num_reads))

    def forward(self, streams: Tensor, *args: Any, **kwargs: Any) -> Any:
        """``(..., n, C) -> (..., n, C)``, or what :class:`HyperConnection` returns for this branch."""
        return self.connection(streams, *(read(streams) for read in self.reads), *args, **kwargs)
