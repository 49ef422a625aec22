"""Shared by the tests of reported behaviours: every constraint at four streams, away from its start."""

from __future__ import annotations

import pytest
import torch
from conftest import supported
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import hyperconn as hc

MAPPINGS = ("flat", "per-stream", "static")
NAMES = hc.list_constraints()  # four streams, which every constraint takes
SMALL = supported(sizes=(2, 3, 4))
every_constraint = pytest.mark.parametrize("name", NAMES)
every_mapping = pytest.mark.parametrize("mapping", MAPPINGS)
every_small_size = pytest.mark.parametrize(("name", "n"), SMALL)


class Zero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def moved(module: nn.Module, deviation: float = 0.3) -> nn.Module:
    """The same module with every parameter of its connections away from the start."""
    with torch.no_grad():
        for parameter in module.parameters():
            if getattr(parameter, "is_connection", False):
                parameter.add_(deviation * torch.randn_like(parameter))
    return module


def plain(blocks, x: Tensor, *args, **kwargs) -> Tensor:
    """The residual network without streams."""
    for block in blocks:
        x = x + block(x, *args, **kwargs)
    return x


def doubly_stochastic(name: str) -> bool:
    cls = hc.constraints.constraint_class(name)
    return cls.nonnegative and cls.unit_row_sums and cls.unit_column_sums


class Operations(TorchDispatchMode):
    """The operations that ran inside the block, by name, without those that only change a view."""

    def __init__(self):
        super().__init__()
        self.names: list[str] = []

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        if not function.is_view:
            self.names.append(function.overloadpacket.__name__)
        return function(*args, **(kwargs or {}))
