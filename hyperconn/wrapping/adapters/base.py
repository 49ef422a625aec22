"""What an adapter is: the residual sublayers of one kind of block, as functions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

from torch import nn

from ...numerics import compute_dtype
from ...outputs import split_first

Sublayer = Callable[..., Any]


class Adapter(ABC):
    """The residual sublayers of one kind of block.

    Whatever ``block(x, *args, **kwargs)`` computes as ``x + F_1(x)``, then ``x + F_2(x)``, … is
    given as the functions ``F_i(block, x, *args, **kwargs)``. Everything is reached through the
    block at the time of the call, so that replaced submodules (LoRA, say) are the ones that run.
    """

    @abstractmethod
    def matches(self, block: nn.Module) -> bool:
        """Whether this adapter knows the block; says yes only to a forward that it takes apart correctly."""

    @abstractmethod
    def sublayers(self, block: nn.Module) -> tuple[Sublayer, ...]:
        """The sublayers in order: ``F(block, x, *args, **kwargs) -> (..., C)``, its own norm included.

        The further arguments are those of the block. A tuple instead of a tensor passes its rest on
        if it comes from the last sublayer; None says that this call has no such sublayer.
        """

    def unsupported(self, block: nn.Module) -> str | None:
        """Why a block that matches cannot be taken apart, and what to do; None if it can."""
        return None


class WholeBlock(Adapter):
    """Any residual block as one sublayer: ``F(x) = block(x) − x``, pre-norm or post-norm."""

    def matches(self, block: nn.Module) -> bool:
        return True

    def sublayers(self, block: nn.Module) -> tuple[Sublayer, ...]:
        return (_difference,)


def _difference(block: Any, x: Any, *args: Any, **kwargs: Any) -> Any:
    """In ``float32`` at least: the difference of two rounded numbers keeps few of their digits."""
    output, rebuild = split_first(block._hyperconn.original.forward(block, x, *args, **kwargs))
    wide = compute_dtype(x)
    return rebuild(output.to(wide) - x.to(wide))
