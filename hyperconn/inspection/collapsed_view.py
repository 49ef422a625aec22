"""The streams layer by layer, read as one hidden state: for probes, logit lenses and the like."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..connection import Carry, HyperConnection
from .listening import replaced
from .preserving import eagerly
from .sites import connections_of

CollapseStreams = Callable[[Tensor], Tensor]


class Layer(NamedTuple):
    """What one connection did; copies that later layers do not change, outside the graph."""

    name: str
    streams: Tensor
    """``(..., n, C)``, as they came in."""
    collapsed: Tensor
    """``(..., C)``: their collapse, the hidden state before this layer."""
    branch_output: Tensor
    """``(..., C)``: what the branch returned."""
    written: Tensor
    """``(..., n, C)``: what that added to the streams, ``post ⊗ y``."""
    streams_after: Tensor
    """``(..., n, C)``: mixed and written, and on the sphere if there is a retraction."""

    @property
    def mixed(self) -> Tensor:
        """``(..., n, C)``: what mixing alone left, ``X' − post ⊗ y``; equal to ``H X`` without a retraction."""
        return self.streams_after - self.written


def mean_of_streams(streams: Tensor) -> Tensor:
    """``(..., n, C) -> (..., C)``."""
    return streams.mean(-2)


@contextlib.contextmanager
def collapsed_view(
    model: nn.Module,
    on_layer: Callable[[Layer], None] | None = None,
    *,
    collapse: CollapseStreams = mean_of_streams,
) -> Iterator[list[Layer]]:
    """Watch the streams of every run of the model inside the block.

    Outputs and gradients stay what they are; a compiled model runs eagerly inside the block.

        with hc.collapsed_view(model) as layers:
            model(tokens)
        hidden = [layer.collapsed for layer in layers]

    Args:
        model: any module that contains hyper-connections.
        on_layer: called with each layer as it has been written, instead of collecting them in the list.
        collapse: ``(..., n, C) -> (..., C)``: the mean, or the model's own ``Collapse`` module.

    Yields:
        list: the layers so far, in call order; empty with ``on_layer``.

    Raises:
        ValueError: the model has no hyper-connection.
    """
    layers: list[Layer] = []
    tell = layers.append if on_layer is None else on_layer
    with contextlib.ExitStack() as undo:
        undo.enter_context(eagerly())
        for name, connection in connections_of("collapsed_view", model).items():
            replaced(undo, connection, "write", _telling_write(name, connection, collapse, tell))
        yield layers


def _telling_write(
    name: str, connection: HyperConnection, collapse: CollapseStreams, tell: Callable[[Layer], None]
) -> Callable[[Tensor, Carry], Tensor]:
    original = connection.write

    def write(branch_output: Tensor, carry: Carry) -> Tensor:
        before = carry.streams.detach().clone()  # writing may use the streams up
        after = original(branch_output, carry)
        tell(_layer(name, connection, before, branch_output.detach(), carry, after, collapse))
        return after

    return write


@torch.no_grad()
def _layer(
    name: str,
    connection: HyperConnection,
    before: Tensor,
    branch_output: Tensor,
    carry: Carry,
    after: Tensor,
    collapse: CollapseStreams,
) -> Layer:
    streams_after = after.detach().clone()
    streams = before.reshape(after.shape)  # fractions of a stream lie side by side
    written = _written(connection, carry, branch_output).reshape(after.shape).to(after.dtype)
    return Layer(name, streams, collapse(streams).detach(), branch_output.clone(), written, streams_after)


def _written(connection: HyperConnection, carry: Carry, branch_output: Tensor) -> Tensor:
    """``post ⊗ y``, with y scaled as a retraction scales it."""
    y = branch_output if connection.retraction is None else connection.retraction.scale_branch(branch_output)
    if carry.post is None or carry.res is None:
        return y.unsqueeze(-2)
    if carry.post.dim() < carry.res.dim():
        return carry.post.unsqueeze(-1) * y.unsqueeze(-2)
    return carry.post.mT @ y.unflatten(-1, (carry.post.shape[-2], -1)).to(carry.post.dtype)
