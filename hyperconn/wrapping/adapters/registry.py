"""Adapters by the blocks they know."""

from __future__ import annotations

from typing import TypeVar

from torch import nn

from .base import Adapter

AdapterClass = TypeVar("AdapterClass", bound=type[Adapter])

_ADAPTERS: dict[str, Adapter] = {}


def register_adapter(cls: AdapterClass) -> AdapterClass:
    """Class decorator that lets :func:`hyperconn.wrap` find an adapter; later ones are asked first.

    Args:
        cls: a subclass of :class:`Adapter` without constructor arguments.

    Raises:
        TypeError: the decorated object is not a subclass of :class:`Adapter`.
    """
    if not (isinstance(cls, type) and issubclass(cls, Adapter)):
        raise TypeError(f"register_adapter: expected a subclass of Adapter, got {cls!r}.")
    _ADAPTERS[cls.__qualname__] = cls()
    return cls


def list_adapters() -> tuple[str, ...]:
    """Names of all registered adapters, in the order of registration."""
    return tuple(_ADAPTERS)


def adapter_for(block: nn.Module) -> Adapter:
    """The adapter that knows a block.

    Raises:
        ValueError: no adapter knows it, or the one that does cannot take this block apart.
    """
    for adapter in reversed(_ADAPTERS.values()):
        if adapter.matches(block):
            reason = adapter.unsupported(block)
            if reason is not None:
                raise ValueError(f"wrap: cannot take {type(block).__name__} apart: {reason}")
            return adapter
    raise ValueError(
        f"wrap(level='sublayer'): no adapter knows {type(block).__name__}; known families: "
        f"{', '.join(list_adapters())}. Use level='block', which works for any residual block, or register an "
        "adapter for its sublayers."
    )
