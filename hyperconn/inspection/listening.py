"""The one place that reaches into connections while a model runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

from torch import Tensor, nn

from ..connection import Carry, HyperConnection
from .sites import Call

OnCall = Callable[[str, Call], None]


@contextlib.contextmanager
def listening(connections: dict[str, HyperConnection], on_call: OnCall) -> Iterator[None]:
    """Report every application of the connections, with tensors that the model itself computed.

    Shadowing ``map_streams`` on the instance works for a mapping or a constraint that several connections
    share, and for branches that are connected by hand. Nothing is recomputed, and at the end every
    connection is as it was.

    Raises:
        ValueError: the streams of a connection are switched off.
    """
    for name, connection in connections.items():
        if not connection.enabled:
            raise ValueError(f"inspect: the streams of {name!r} are off. Call hyperconn.enable(model) first.")
    with contextlib.ExitStack() as undo:
        for name, connection in connections.items():
            replaced(undo, connection, "map_streams", _reporting(name, connection, on_call))
        yield


def replaced(undo: contextlib.ExitStack, owner: nn.Module, method: str, replacement: Callable[..., Any]) -> None:
    """Shadow a method on one instance until ``undo`` closes."""
    before = owner.__dict__.get(method)
    owner.__dict__[method] = replacement
    if before is None:
        undo.callback(owner.__dict__.pop, method)
    else:
        undo.callback(owner.__dict__.__setitem__, method, before)


def _reporting(name: str, connection: HyperConnection, on_call: OnCall) -> Callable[..., Any]:
    original = connection.map_streams

    def map_streams(streams: Tensor) -> tuple[Tensor | None, Carry]:
        pre, carry = original(streams)
        maps = connection.static_mappings() if carry.res is None else (pre, carry.post, carry.res)
        on_call(name, Call(*maps, carry.streams))
        return pre, carry

    return map_streams
