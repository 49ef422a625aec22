"""Whole networks: they start as the plain residual network, and leave that start."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import branch, relative_error, supported
from torch import nn

import hyperconn as hc

MAPPINGS = (None, "flat", "per-stream", "static")


def plain(blocks, x):
    for block in blocks:
        x = x + block(x)
    return x


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 2, 3, 4, 6)))
@pytest.mark.parametrize("mapping", MAPPINGS)
def test_the_start_is_the_plain_residual_network(name, n, mapping):
    blocks = [branch(16) for _ in range(12)]
    stack = hc.HyperStack(blocks, 16, n, constraint=name, mapping=mapping)
    x = torch.randn(2, 5, 16)
    assert relative_error(stack(x), plain(blocks, x)) <= (0 if n == 1 else 2e-5)
    stack, x = stack.double(), x.double()
    assert relative_error(stack(x), plain(blocks, x)) <= (0 if n == 1 else 1e-12)


@pytest.mark.parametrize(("name", "n"), supported(sizes=(2, 4)))
@pytest.mark.parametrize("mapping", [None, "static"])
def test_symmetry_breaks_and_the_matrices_move(name, n, mapping):
    stack = hc.HyperStack([branch(8) for _ in range(4)], 8, n, constraint=name, mapping=mapping)
    x, target = torch.randn(16, 8), torch.randn(16, 8)
    matrices = [c.residual_matrix().detach() for c in stack.connections]
    optimizer = torch.optim.AdamW(hc.parameter_groups(stack, 0.1), lr=1e-2)
    for _ in range(50):
        optimizer.zero_grad()
        (stack(x) - target).square().mean().backward()
        optimizer.step()
    streams = stack.expand(x)
    for connection in stack.connections:
        streams = connection(streams)
    assert (streams - streams.mean(-2, keepdim=True)).abs().max() > 1e-3
    moved = max((c.residual_matrix() - h).abs().max() for c, h in zip(stack.connections, matrices, strict=True))
    assert (moved == 0) if name == "identity" else (moved > 1e-4)


def test_home_streams_differ_between_layers_and_never_depend_on_the_seed():
    homes = []
    for seed in (0, 1):
        torch.manual_seed(seed)
        stack = hc.HyperStack([branch(8) for _ in range(5)], 8, 4)
        homes.append([c.mappings(torch.randn(1, 4, 8)).pre.argmax().item() for c in stack.connections])
    assert homes == [[0, 1, 2, 3, 0]] * 2


@pytest.mark.parametrize(
    ("name", "pre", "post"),
    [
        ("hc", [0.0, 1.0, 0.0, 0.0], [1.0] * 4),
        ("mhc", [0.2689, 0.7311, 0.2689, 0.2689], [0.5379, 1.4621, 0.5379, 0.5379]),
        ("mhc-lite", [0.2689, 0.7311, 0.2689, 0.2689], [0.5379, 1.4621, 0.5379, 0.5379]),
    ],
)
def test_the_published_starts(name, pre, post):
    connection = hc.HyperConnection(8, 4, constraint=name, layer_index=5, init="paper")
    maps = connection.mappings(torch.randn(3, 4, 8))
    torch.testing.assert_close(maps.pre[0], torch.tensor(pre), atol=1e-4, rtol=0)
    torch.testing.assert_close(maps.post[0], torch.tensor(post), atol=1e-4, rtol=0)
    expected = connection.constraint(connection.constraint.paper_coordinates())
    torch.testing.assert_close(maps.res[0], expected)


def test_with_sigmoid_gates_the_residual_start_reads_home_most_and_writes_one():
    maps = hc.HyperConnection(8, 4, layer_index=2).mappings(torch.randn(1, 4, 8))
    torch.testing.assert_close(maps.pre[0], torch.tensor([0.1, 0.1, 0.7, 0.1]))
    assert torch.equal(maps.post[0], torch.ones(4))


@pytest.mark.parametrize("n", [1, 2, 4])
def test_expand_and_collapse(n):
    x = torch.randn(2, 5, 8)
    streams = hc.Expand(n)(x)
    assert streams.shape == (2, 5, n, 8)
    assert all(torch.equal(streams[..., i, :], x) for i in range(n))
    torch.testing.assert_close(hc.Collapse()(streams), x)
    torch.testing.assert_close(hc.Collapse("sum")(streams), n * x)
    torch.testing.assert_close(hc.Collapse("learned", dim=8, streams=n)(streams), x)


def test_a_learned_collapse_is_its_formula():
    collapse = hc.Collapse("learned", dim=8, streams=4).double()
    with torch.no_grad():
        for parameter in collapse.parameters():
            parameter.copy_(torch.randn_like(parameter))
    streams = torch.randn(5, 4, 8, dtype=torch.float64)
    w = collapse.weights
    flat = streams.flatten(1)
    normed = flat / (flat.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    weights = torch.sigmoid(w.scale * normed @ w.weight.T + w.bias) + 1e-6
    torch.testing.assert_close(collapse(streams), (weights.unsqueeze(-1) * streams).sum(1))


def test_parts_go_into_sequential_and_print():
    parts = nn.Sequential(hc.Expand(4), hc.HyperConnection(8, 4, branch(8)), hc.HyperConnection(8, 4, branch(8)), hc.Collapse())  # fmt: skip
    assert parts(torch.randn(3, 8)).shape == (3, 8)
    assert "HyperConnection" in repr(parts)
    assert "Sinkhorn" in repr(parts)
    assert parts(torch.randn(0, 5, 8)).shape == (0, 5, 8)


def test_streams_carried_between_two_halves_give_the_same_result():
    stack = hc.HyperStack([branch(8) for _ in range(4)], 8, constraint="shc")
    first, second = copy.deepcopy(stack.connections[:2]), copy.deepcopy(stack.connections[2:])
    x = torch.randn(3, 8)
    streams = stack.expand(x)
    for connection in first:
        streams = connection(streams)
    for connection in second:
        streams = connection(streams)
    assert torch.equal(stack.collapse(streams), stack(x))


def test_instances_are_copied_for_every_branch():
    constraint = hc.make_constraint("shc", 4)
    stack = hc.HyperStack([branch(8) for _ in range(3)], 8, constraint=constraint)
    assert len({id(c.constraint) for c in stack.connections} | {id(constraint)}) == 4
    shared = hc.HyperConnection(8, 4, branch(8), constraint=constraint)
    assert shared.constraint is constraint


class Pair(nn.Module):
    def forward(self, x):
        return x, "loss"


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: hc.Expand(0), ValueError, r"Expand: expected streams >= 1, got 0"),
        (lambda: hc.Expand(4)(torch.arange(3)), TypeError, r"Expand\(streams=4\): expected a floating-point tensor, got torch.int64"),
        (lambda: hc.Collapse("max"), ValueError, r"unknown collapse 'max'; known: mean, sum, learned"),
        (lambda: hc.Collapse("learned"), ValueError, r"expected dim= and streams=, got dim=None, streams=None"),
        (lambda: hc.Collapse()(torch.randn(8)), ValueError, r"Collapse\('mean'\): expected \(\.\.\., n, C\), got \(8,\)"),
        (lambda: hc.Collapse("mean", streams=4)(torch.randn(2, 3, 8)), ValueError, r"expected \(\.\.\., 4, C\), got \(2, 3, 8\)"),
        (lambda: hc.HyperStack([], 8), ValueError, r"HyperStack: expected at least one branch, got none"),
        (lambda: hc.HyperStack([Pair()], 8)(torch.randn(2, 8)), TypeError, r"branch 0 returned tuple; expected a tensor, because the rest would be lost"),
        (lambda: hc.HyperStack([branch(8)], 8)(torch.randn(2, 9)), ValueError, r"expected \(\.\.\., 4, 8\), got \(2, 4, 9\)"),
    ],
)  # fmt: skip
def test_bad_input(call, error, message):
    with pytest.raises(error, match=message):
        call()
