"""Shared by all tests: one thread, a fixed seed, and the constraints at the sizes they take."""

from __future__ import annotations

import os

import pytest
import torch
from hypothesis import HealthCheck, settings
from torch import nn

import hyperconn as hc

torch.set_num_threads(1)
# The same examples in every run; HYPOTHESIS_PROFILE=explore draws new ones.
unhurried = {"deadline": None, "database": None, "suppress_health_check": list(HealthCheck)}
settings.register_profile("repeatable", derandomize=True, **unhurried)
settings.register_profile("explore", print_blob=True, **unhurried)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))
SIZES = (1, 2, 3, 4, 6, 8)


def supported(names=None, sizes=SIZES) -> list[tuple[str, int]]:
    """All pairs of a constraint name and a number of streams it takes."""
    return [
        (name, n)
        for name in names or hc.list_constraints()
        for n in sizes
        if hc.constraints.constraint_class(name).unsupported(n) is None
    ]


def branch(dim: int, dropout: float = 0.0) -> nn.Module:
    """A random pre-norm sublayer."""
    return nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.GELU(), nn.Dropout(dropout), nn.Linear(dim, dim))


class ConstantBranch(nn.Module):
    """Writes the same learned unit vector whatever it reads."""

    def __init__(self, dim: int):
        super().__init__()
        self.direction = nn.Parameter(nn.functional.normalize(torch.randn(dim), dim=0))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.direction.to(x.dtype).expand_as(x)


def relative_error(got: torch.Tensor, expected: torch.Tensor) -> float:
    return ((got - expected).norm() / expected.norm()).item()


def distinct_streams(*shape: int, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype)


@pytest.fixture(autouse=True)
def seeded():
    torch.manual_seed(0)


@pytest.fixture
def registry_restored():
    registry = hc.constraints.registry._CLASS_OF_NAME
    before = dict(registry)
    yield
    registry.clear()
    registry.update(before)
