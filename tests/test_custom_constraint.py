"""The example of a constraint of one's own: short, outside the package, in its set, and it learns."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
import torch

import hyperconn as hc

EXAMPLE = Path(__file__).parent.parent / "examples" / "custom_constraint.py"


@pytest.fixture
def example(registry_restored):
    return importlib.reload(importlib.import_module("custom_constraint"))


def test_it_trains_and_prints_its_matrix(example, capsys):
    example.main(steps=15)
    lines = capsys.readouterr().out.splitlines()
    first, last = (float(line.split()[-1]) for line in lines[:2])
    assert last < 0.8 * first
    assert lines[2].startswith("tensor([[0.99")
    assert sum("common-pool" in line for line in lines) == 6


def test_it_is_short_and_stays_in_its_set(example):
    assert len(EXAMPLE.read_text().splitlines()) < 60
    pool = hc.make_constraint("pool", 4).double()
    point = torch.randn(8, 5, dtype=torch.float64, requires_grad=True)
    matrices = pool(point)
    assert pool.violation(matrices).max() <= 1e-12
    assert pool.violation(matrices[::2] @ matrices[1::2]).max() <= 1e-12
    assert pool.violation(torch.eye(4).roll(1, 0)) > 0.5
    assert (pool(pool.identity_coordinates()) - torch.eye(4)).abs().max() <= 1e-2
    assert torch.autograd.gradcheck(pool, (point,))
