"""Streams off and on again: the plain residual twin of a built network."""

from __future__ import annotations

from torch import nn


class Switchable(nn.Module):
    """A module that can do without streams: while ``enabled`` is False it works on ``(..., 1, C)``."""

    enabled: bool = True


def disable(model: nn.Module) -> None:
    """Turn a built network into its plain residual twin, in place: one stream, ``x + F(x)``, nothing mixed.

    Parameters and state dict stay as they are, so :func:`enable` brings the trained network back.
    A retraction stays: the twin is the single-stream network with the same one.

    Args:
        model: any module that contains hyper-connections.

    Raises:
        ValueError: the model has nothing to switch.
    """
    _switch(model, False)


def enable(model: nn.Module) -> None:
    """Undo :func:`disable`.

    Raises:
        ValueError: the model has nothing to switch.
    """
    _switch(model, True)


def _switch(model: nn.Module, enabled: bool) -> None:
    switchable = [module for module in model.modules() if isinstance(module, Switchable)]
    if not switchable:
        raise ValueError(
            f"{'enable' if enabled else 'disable'}: {type(model).__name__} contains no hyper-connection."
        )
    for module in switchable:
        module.enabled = enabled
