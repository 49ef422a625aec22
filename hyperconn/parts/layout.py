"""Channels in front for convolutions, channels last for streams."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn

from ..outputs import split_first


class ChannelFirst(nn.Module):
    """A module for maps ``(N, C, ...)`` inside a network of ``(N, ..., C)``, e.g. a convolutional branch.

    Args:
        module: ``(N, C, ...) -> (N, C', ...)``; of a tuple, list, dict or dataclass the first element is moved.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """``(N, ..., C) -> (N, ..., C')``; further arguments go to the module untouched."""
        return _moved(self.module, x, to=1, back=-1, args=args, kwargs=kwargs)


class ChannelLast(nn.Module):
    """A module for ``(N, ..., C)``, e.g. a :class:`HyperStack`, inside a network of maps ``(N, C, ...)``.

    Args:
        module: ``(N, ..., C) -> (N, ..., C')``; of a tuple, list, dict or dataclass the first element is moved.
    """

    def __init__(self, module: nn.Module):
        super().__init__()
        self.module = module

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """``(N, C, ...) -> (N, C', ...)``; further arguments go to the module untouched."""
        return _moved(self.module, x, to=-1, back=1, args=args, kwargs=kwargs)


def _moved(module: Callable[..., Any], x: Tensor, to: int, back: int, args: Any, kwargs: Any) -> Any:
    output, rebuild = split_first(module(x.movedim(back, to), *args, **kwargs))
    return rebuild(output.movedim(to, back))
