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
    """Report every application of the connections, from ``read``, with tensors that the model itself computed.

    ``read`` knows everything but the pre weights, which a forward hook on the mapping sees. Wrapping it on the
    instance works for a mapping or a constraint that several connections share, and for branches that are
    connected by hand. Nothing is recomputed, and at the end every connection is as it was.
    """
    with contextlib.ExitStack() as undo:
        for name, connection in connections.items():
            replaced(undo, connection, "read", _reporting_read(name, connection, on_call))
        yield


def replaced(undo: contextlib.ExitStack, owner: nn.Module, method: str, replacement: Callable[..., Any]) -> None:
    """Shadow a method on one instance until ``undo`` closes."""
    before = owner.__dict__.get(method)
    owner.__dict__[method] = replacement
    if before is None:
        undo.callback(owner.__dict__.pop, method)
    else:
        undo.callback(owner.__dict__.__setitem__, method, before)


def _reporting_read(name: str, connection: HyperConnection, on_call: OnCall) -> Callable[..., Any]:
    original, mapping = connection.read, connection.mapping
    if mapping is None:
        return _reporting_single_stream(name, connection, on_call)

    def read(streams: Tensor) -> tuple[Tensor, Carry]:
        pre: list[Tensor] = []
        with mapping.register_forward_hook(lambda module, args, mapped: pre.append(mapped[0])):
            branch_input, carry = original(streams)
        on_call(name, Call(pre[-1], carry.post, carry.res, streams))
        return branch_input, carry

    return read


def _reporting_single_stream(name: str, connection: HyperConnection, on_call: OnCall) -> Callable[..., Any]:
    original = connection.read

    def read(streams: Tensor) -> tuple[Tensor, Carry]:
        pre, post, res = connection.static_mappings()
        on_call(name, Call(pre, post, res, streams))
        return original(streams)

    return read
