"""Reading with the weights of the previous site (reported for DeepSeek-V4.1)."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any, cast

import torch
from torch import Tensor, nn

from .. import fast
from ..connection import HyperConnection
from ..recompute import recomputed
from ..streams import HyperStack, check_tensor


class SinglePassStack(HyperStack):
    """A stack in which every site reads with the *previous* site's pre weights.

    What a site needs of the streams before its branch is then known one site earlier, so that
    mixing, writing and the next read can share one pass over them. The first site reads stream 0,
    and the last site's weights read the output: there is no other collapse.

    Args:
        branches, dim, streams: as in :class:`HyperStack`.
        options: further keyword arguments of :class:`HyperStack`.

    Raises:
        TypeError: ``collapse=`` was given.
    """

    def __init__(self, branches: Iterable[nn.Module], dim: int, streams: int = 4, **options: Any):
        if "collapse" in options:
            raise TypeError("SinglePassStack: the last pre weights read the output; leave collapse= out.")
        super().__init__(branches, dim, streams, **options)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """``(..., C) -> (..., C)``; further arguments go to every branch untouched."""
        streams, pre = self._run(x, *args, **kwargs)
        return self.collapse(streams) if pre is None else fast.read(streams, pre)[0]

    def before_collapse(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        return self._run(x, *args, **kwargs)[0]

    def _run(self, x: Tensor, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
        """The last streams, and the weights that read them; None for a single stream."""
        if self.streams == 1 or not self.enabled:
            return super().before_collapse(x, *args, **kwargs), None
        streams = self.expand(x)
        pre = torch.eye(self.streams, device=x.device)[0]
        for segment in self.segments():
            run = functools.partial(self._run_segment_once, segment, args, kwargs)
            streams, pre = recomputed(self.recompute, run, streams, pre)
        return streams, pre

    def _run_segment_once(
        self, segment: range, args: tuple[Any, ...], kwargs: dict[str, Any], streams: Tensor, pre: Tensor
    ) -> tuple[Tensor, Tensor]:
        for layer_index in segment:
            connection = cast(HyperConnection, self.connections[layer_index])
            own_pre, carry = connection.map_streams(streams)
            branch_output = connection.apply_branch(fast.read(streams, pre)[0], *args, **kwargs)
            check_tensor(branch_output, layer_index)
            streams, pre = connection.write(branch_output, carry), cast(Tensor, own_pre)
        return streams, pre
