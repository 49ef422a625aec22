"""Branches that change the width or the spatial size."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..checks import check_streams
from ..connection import Carry, HyperConnection
from .reads import Read


class EachStream(nn.Module):
    """A module for ``(N, ..., C)`` on every stream of ``(N, ..., n, C)``; the streams go with the batch.

    Args:
        module: ``(N, ..., C) -> (N, ..., C')``; it may change every size but N.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, streams: Tensor) -> Tensor:
        """``(N, ..., n, C) -> (N, ..., n, C')``; ``(n, C)`` without a batch works too."""
        check_streams("EachStream", streams)
        if streams.dim() == 2:
            return self.module(streams)
        in_front = streams.movedim(-2, 1)
        return self.module(in_front.flatten(0, 1)).unflatten(0, in_front.shape[:2]).movedim(1, -2)


class ResizingConnection(HyperConnection):
    """A connection whose branch returns another width or spatial size: ``X' = H T(X) + post ⊗ F(Σ_j pre_j X_j)``.

    T is applied to every stream. Its own mapping gives post and H from T(X), its ``reader`` the pre
    weights from X. With ``init="residual"`` it starts as ``T(x) + F(x)`` on every stream.

    Args:
        dim: width C of one stream of the input.
        out_dim: width C' of one stream of the output.
        streams: number of streams n.
        branch: ``(N, ..., C) -> (N, ..., C')``.
        transform: T, ``(N, ..., C) -> (N, ..., C')``, with the spatial sizes of the branch.
        options: keyword arguments of :class:`HyperConnection`.
    """

    def __init__(
        self,
        dim: int,
        out_dim: int,
        streams: int = 4,
        branch: nn.Module | None = None,
        *,
        transform: nn.Module,
        layer_index: int = 0,
        **options: Any,
    ):
        super().__init__(out_dim, streams, branch, layer_index=layer_index, **options)
        self.reader = Read(dim, streams, layer_index=layer_index)
        self.transform = EachStream(transform)

    def read(self, streams: Tensor) -> tuple[Tensor, Carry]:
        """The branch input ``(N, ..., C)`` and a carry with the transformed streams ``(N, ..., n, C')``."""
        branch_input = self.reader(streams)
        resized = self.transform(streams)
        if self.retraction is not None:
            resized = self.retraction.project(resized)
        _, carry = self.map_streams(resized)
        return branch_input, carry
