"""Flags say in words what deserves attention, and only that."""

from __future__ import annotations

import math

import pytest
import torch
from planted import small_stack, static_model
from torch import nn

import hyperconn as hc


def kinds(report) -> list[str]:
    return [flag.kind for flag in report.flags()]


def test_a_fresh_model_has_identical_streams_and_frozen_matrices_near_the_identity():
    model = hc.HyperStack([nn.Linear(16, 16) for _ in range(6)], 16, 4, constraint="mhc")
    report = hc.inspect(model, torch.randn(5, 16))
    assert kinds(report) == ["streams identical", "matrices frozen", "identity degeneration"]
    first, second, third = report.flags()
    assert "copies of each other in 5 of 5 connections: connections.1" in first.text and first.text.endswith(
        "and 1 more"
    )
    assert second.text.startswith("H is still at its start in 6 of 6")
    assert "‖H − I‖_F is below 0.05 in 6 of 6" in third.text


def test_a_model_that_has_moved_has_no_flags():
    assert kinds(hc.inspect(small_stack(), torch.randn(5, 16))) == []


@pytest.mark.parametrize("init", ["residual", "paper"])
@pytest.mark.parametrize("name", hc.list_constraints())
def test_every_start_is_recognised_and_the_first_learning_clears_it(name, init):
    model = hc.HyperStack([nn.Linear(8, 8)] * 2, 8, 4, constraint=name, init=init)
    assert ("matrices frozen" in kinds(hc.inspect(model))) == (name != "identity")
    with torch.no_grad():
        for connection in model.connections:
            connection.mapping.bias.add_(0.3 * torch.randn_like(connection.mapping.bias))
    assert "matrices frozen" not in kinds(hc.inspect(model))


def test_frozen_asks_the_tokens_not_only_the_bias():
    model = hc.HyperStack([nn.Linear(8, 8)] * 2, 8, 4, constraint="shc")
    with torch.no_grad():
        for connection in model.connections:
            connection.mapping.weight.normal_()
            connection.mapping.scale.fill_(1)
    assert "matrices frozen" in kinds(hc.inspect(model))
    assert "matrices frozen" not in kinds(hc.inspect(model, torch.randn(5, 8)))


def test_the_identity_is_no_degeneration_of_the_set_that_holds_nothing_else():
    model = hc.HyperStack([nn.Linear(8, 8)] * 2, 8, 4, constraint="identity")
    assert kinds(hc.inspect(model)) == []


def test_gain_bound_is_twice_what_a_nonexpansive_matrix_reaches():
    n = 4
    hadamard = torch.tensor([[1.0, 1, 1, 1], [1, -1, 1, -1], [1, 1, -1, -1], [1, -1, -1, 1]]) / 2
    assert "gain above bound" not in kinds(hc.inspect(static_model([hadamard, hadamard.mT])))
    seven = torch.eye(n)
    seven[1, 3] = 6.0
    report = hc.inspect(static_model([torch.eye(n), seven]))
    texts = [flag.text for flag in report.flags() if flag.kind == "gain above bound"]
    assert texts[0] == "7 forward, 7 backward at 1"
    assert "gain above bound" not in [flag.kind for flag in report.flags(gain_bound=7.5)]


def test_an_infinite_gain_is_above_every_bound_and_nan_is_named_first():
    model = static_model([torch.full((4, 4), math.nan), 3 * torch.eye(4)])
    assert kinds(hc.inspect(model))[0] == "non-finite values"


def test_a_homogeneous_mix_at_the_last_layer_only():
    model = static_model([torch.eye(4), torch.eye(4), torch.full((4, 4), 0.25)])
    (flag,) = [flag for flag in hc.inspect(model).flags() if flag.kind == "homogenising product"]
    assert "after 3 matrices" in flag.text and flag.text.endswith("up to 2")
