"""The one place that reaches into connections while a model runs."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from ..connection import Carry, HyperConnection
from .sites import Call, plain_gates

OnRead = Callable[[str], None]
OnCall = Callable[[str, Call], None]


@contextlib.contextmanager
def listening(connections: dict[str, HyperConnection], on_read: OnRead, on_call: OnCall) -> Iterator[None]:
    """Report when connections read, and what they apply when they write, with the tensors of the model itself.

    Every way of using a connection ends in ``write``, whose carry knows everything but the pre weights;
    a forward hook on the mapping sees those. Wrapping on the instance works for mappings and constraints that
    connections share, and for branches connected by hand. At the end every connection is as it was.

    Raises:
        ValueError: the streams of a connection are switched off.
    """
    for name, connection in connections.items():
        if not connection.enabled:
            raise ValueError(f"inspect: the streams of {name!r} are off. Call hyperconn.enable(model) first.")
    with contextlib.ExitStack() as undo:
        for name, connection in connections.items():
            ear = _Ear(name, connection, on_read, on_call)
            replaced(undo, connection, "read", ear.read)
            replaced(undo, connection, "write", ear.write)
            if connection.mapping is not None:
                undo.enter_context(connection.mapping.register_forward_hook(ear.mapped))
        yield


def replaced(undo: contextlib.ExitStack, owner: nn.Module, method: str, replacement: Callable[..., Any]) -> None:
    """Shadow a method on one instance until ``undo`` closes."""
    if method in owner.__dict__:
        undo.callback(owner.__dict__.__setitem__, method, owner.__dict__[method])
    else:
        undo.callback(owner.__dict__.pop, method, None)
    owner.__dict__[method] = replacement


class _Ear:
    """At one connection; between mapping and writing it remembers the pre weights, and then lets go."""

    def __init__(self, name: str, connection: HyperConnection, on_read: OnRead, on_call: OnCall):
        self.name, self.on_read, self.on_call = name, on_read, on_call
        self.original_read, self.original_write = connection.read, connection.write
        self.pre: Tensor | None = None

    def mapped(self, module: nn.Module, args: Any, output: Any) -> None:
        self.pre = output[0].detach()

    def read(self, streams: Tensor) -> tuple[Tensor, Carry]:
        self.on_read(self.name)
        return self.original_read(streams)

    def write(self, branch_output: Tensor, carry: Carry) -> Tensor:
        pre, self.pre = self.pre, None
        self.on_call(self.name, _call(pre, carry))  # before the write, which may use the streams up
        return self.original_write(branch_output, carry)


def _call(pre: Tensor | None, carry: Carry) -> Call:
    if carry.post is None or carry.res is None:  # one stream: x + F(x)
        one = torch.ones(1, device=carry.streams.device)
        return Call(one, one, one[:, None], carry.streams)
    return Call(*plain_gates(pre, carry.post, carry.res), carry.res, carry.streams)
