"""The streams' way through one block: expand before the first block, connect, collapse after the last."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from torch import Tensor, nn

from ..connection import HyperConnection
from ..outputs import split_first
from ..streams import Collapse, Expand


class StreamPath(nn.Module):
    """The connections of one block, with the expansion if it is the first and the collapse if it is the last.

    Args:
        connections: one per sublayer, in order.
        expand: before the first block, else None.
        collapse: after the last block, else None.
    """

    def __init__(
        self,
        connections: Sequence[HyperConnection],
        expand: Expand | None = None,
        collapse: nn.Module | None = None,
    ):
        super().__init__()
        self.connections = nn.ModuleList(connections)
        self.expand = expand
        self.collapse = collapse
        self.view = Collapse("mean")

    @property
    def is_plain(self) -> bool:
        """One stream and no retraction: the block as it was is the network."""
        return all(c.streams == 1 and c.retraction is None for c in self.connections)

    def forward(self, hidden: Tensor, sublayers: Sequence[Callable[..., Any]], *args: Any, **kwargs: Any) -> Any:
        """Take the streams through the sublayers.

        Args:
            hidden: ``(..., C)`` for the first block, else ``(..., n, C)``.
            sublayers: ``F(x, *args, **kwargs)`` for each connection, or None from one that is absent.

        Returns:
            Tensor: ``(..., C)`` from the last block, else ``(..., n, C)``; inside the structure that the
            last sublayer returns, if that is more than a tensor.
        """
        streams = hidden if self.expand is None else self.expand(hidden)
        rebuild: Callable[[Tensor], Any] = lambda tensor: tensor  # noqa: E731
        connections: Any = self.connections
        for connection, sublayer in zip(connections, sublayers, strict=True):
            branch_input, carry = connection.read(streams)
            output = sublayer(branch_input, *args, **kwargs)
            if output is not None:
                branch_output, rebuild = split_first(output)
                streams = connection.write(branch_output, carry)
        return rebuild(streams if self.collapse is None else self.collapse(streams))
