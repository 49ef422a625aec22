"""A block that carries streams: the same object with the same parameters under the same names."""

from __future__ import annotations

import functools
from typing import Any, NamedTuple

from torch import Tensor, nn

from .adapters import Adapter
from .path import StreamPath

CHILD = "hyper_connections"


class Origin(NamedTuple):
    """What a wrapped block was, and how it is taken apart."""

    original: Any  # its class
    adapter: Adapter
    input_name: str


class WrappedBlock:
    """Mixed into the class of a block; its streams travel in the place of its hidden states.

    The block stays where and what it was, so that checkpoints, LoRA targets and device maps that
    name its parameters still find them. One child is new: ``hyper_connections``.
    """

    _hyperconn: Origin
    hyper_connections: StreamPath

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        original, adapter, input_name = self._hyperconn
        if self.hyper_connections.is_plain:
            return original.forward(self, *args, **kwargs)
        hidden, args = (args[0], args[1:]) if args else (kwargs.pop(input_name), ())
        sublayers = [functools.partial(sublayer, self) for sublayer in adapter.sublayers(self)]  # type: ignore[arg-type]
        output = self.hyper_connections(hidden, sublayers, *args, **kwargs)
        return self._shown(output) if self._is_watched() else output

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        output = super().__call__(*args, **kwargs)  # type: ignore[misc]
        return _carried(output) if self._is_watched() else output

    def __reduce_ex__(self, protocol: Any) -> Any:
        return _empty, (self._hyperconn,), *super().__reduce_ex__(protocol)[2:]

    def _is_watched(self) -> bool:
        path = self.hyper_connections
        return bool(self._forward_hooks) and path.collapse is None and not path.is_plain  # type: ignore[attr-defined]

    def _shown(self, output: Any) -> Any:
        """What forward hooks see: a tuple with the single-stream view in first place and the streams behind it.

        ``output_hidden_states`` is collected by such hooks. The marker at the end says whether the
        block itself returned a tuple.
        """
        if isinstance(output, Tensor):
            return self.hyper_connections.view(output), output, None
        if isinstance(output, tuple):
            return self.hyper_connections.view(output[0]), *output, True
        return output


def _carried(output: Any) -> Any:
    if isinstance(output, tuple) and output[-1] in (None, True):
        return output[1] if output[-1] is None else output[1:-1]
    if isinstance(output, Tensor):
        raise TypeError(
            "a forward hook replaced the output of a wrapped block by one tensor; expected the streams to pass. "
            "Hook a submodule of the block instead, or unwrap the model first."
        )
    return output


@functools.cache
def wrapped_class(origin: Origin) -> type[nn.Module]:
    """The class of a block of this origin that carries streams."""
    original = origin.original
    names = {"__module__": original.__module__, "__qualname__": original.__qualname__}
    return type(original.__name__, (WrappedBlock, original), {"_hyperconn": origin, **names})


def _empty(origin: Origin) -> nn.Module:
    cls = wrapped_class(origin)
    return cls.__new__(cls)
