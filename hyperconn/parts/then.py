"""Something between a branch and its write."""

from __future__ import annotations

from typing import Any

from torch import Tensor, nn

from ..outputs import split_first


class Then(nn.Module):
    """A branch, then a module on the first element of what it returns: dropout, a gate, a scale.

    It acts on what the branch writes, never on the residual streams.

    Args:
        branch: the branch; it keeps all its arguments.
        module: ``(..., C) -> (..., C)``, e.g. ``nn.Dropout(0.1)``.
    """

    def __init__(self, branch: nn.Module, module: nn.Module):
        super().__init__()
        self.branch = branch
        self.module = module

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What the branch returns, its first element replaced; ``(..., C) -> (..., C)``."""
        output, rebuild = split_first(self.branch(x, *args, **kwargs))
        return rebuild(self.module(output))
