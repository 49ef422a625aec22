"""Reported of the connection around the mix: combination, ranks, scales, forms of one constraint, one stream, the start."""

from __future__ import annotations

import pytest
import torch
from conftest import branch, relative_error, supported
from reported_sites import NAMES, SMALL, Operations, every_constraint, every_mapping, every_small_size, moved, plain
from torch import nn

import hyperconn as hc
from hyperconn.constraints.balancing import balance, balance_plainly


@every_mapping
@every_small_size
def test_what_is_written_at_the_start_is_exactly_the_branch_output(name, n, mapping):
    connection = hc.HyperConnection(8, n, constraint=name, mapping=mapping, layer_index=1)
    pre, post, _ = connection.mappings(10 * torch.randn(16, n, 8))
    assert torch.equal(post, torch.ones(16, n))
    torch.testing.assert_close(pre.sum(-1), torch.ones(16))


class CountedGate(hc.Retraction):
    """A combination of one's own: half of the proposal, half of the streams."""

    calls = 0

    def forward(self, x, proposal):
        type(self).calls += 1
        return (x + proposal) / 2


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 4)))
def test_a_combination_of_ones_own_is_used_once_per_layer(name, n):
    blocks = [branch(8) for _ in range(3)]
    stack = hc.HyperStack(blocks, 8, n, constraint=name, retraction=CountedGate())
    CountedGate.calls = 0
    x = torch.randn(5, 8)
    expected = x
    for block in blocks:
        expected = expected + block(expected) / 2
    assert relative_error(stack(x), expected) <= 2e-5
    assert CountedGate.calls == 3
    assert relative_error(hc.HyperStack(blocks, 8, n, constraint=name)(x), expected) > 1e-2


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 4)))
def test_a_gate_on_what_is_written_is_used_once_per_layer(name, n):
    calls, blocks = [], [branch(8) for _ in range(3)]

    class Gate(nn.Module):
        def forward(self, y):
            calls.append(y.shape)
            return 0.25 * y

    x = torch.randn(5, 8)
    gated = hc.HyperStack([hc.Then(block, Gate()) for block in blocks], 8, n, constraint=name)(x)
    assert relative_error(gated, plain([hc.Then(block, Gate()) for block in blocks], x)) <= 2e-5
    assert calls == [(5, 8)] * 6


@every_mapping
@pytest.mark.parametrize(("name", "n"), [*SMALL, *((name, 1) for name in NAMES)])
def test_any_rank_is_the_flattened_call(name, n, mapping):
    connection = hc.HyperConnection(8, n, branch(8), constraint=name, mapping=mapping)
    streams = torch.randn(12, n, 8)
    expected = (connection if n == 1 else moved(connection))(streams)
    for leading in ((12,), (3, 4), (2, 3, 2)):
        assert torch.equal(connection(streams.view(*leading, n, 8)).view(12, n, 8), expected)


@pytest.mark.parametrize("mapping", ["flat", "per-stream"])
@every_small_size
def test_every_scale_is_a_parameter_that_learns(name, n, mapping):
    connection = hc.HyperConnection(8, n, branch(8), constraint=name, mapping=mapping)
    with torch.no_grad():
        connection.mapping.weight.normal_()
    out = connection(torch.randn(16, n, 8))
    (out * torch.randn_like(out)).sum().backward()
    (scale,) = [p for key, p in connection.named_parameters() if key == "mapping.scale"]
    assert len(scale) == 2 + len(connection.constraint.coordinate_sizes)
    sizes = torch.tensor([n, n, *connection.constraint.coordinate_sizes])
    assert torch.equal(scale.grad != 0, sizes > 0)  # with two streams a sphere has no angles


@pytest.mark.parametrize("n", [2, 4])
@pytest.mark.parametrize("iterations", [1, 20])
def test_all_forms_of_sinkhorn_agree(n, iterations):
    logits, cotangent = 3 * torch.randn(256, n, n), torch.randn(256, n, n)
    compiled = torch.compile(balance, backend="eager", fullgraph=True)
    mapped = torch.func.vmap(balance, in_dims=(0, None))
    results = []
    for form, given in [
        (balance_plainly, logits.double()),
        (balance_plainly, logits),
        (balance, logits),
        (compiled, logits),
        (mapped, logits),
    ]:
        point = given.clone().requires_grad_()
        matrix = form(point, iterations)
        (matrix * cotangent.to(matrix.dtype)).sum().backward()
        results.append((matrix.detach().double(), point.grad.double()))
    for matrix, gradient in results[1:]:
        torch.testing.assert_close(matrix, results[0][0], rtol=0, atol=1e-5)
        torch.testing.assert_close(gradient, results[0][1], rtol=0, atol=1e-5)


@pytest.mark.parametrize("n", [2, 3, 4])
@pytest.mark.parametrize("iterations", [1, 2, 5])
def test_the_gradient_of_few_iterations_is_that_of_what_is_computed(n, iterations):
    constraint = hc.constraints.Sinkhorn(n, iterations=iterations)
    point = torch.randn(3, n * n, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(constraint, (point,))
    assert torch.autograd.gradgradcheck(constraint, (point,))


def tied(constraint):
    """Coordinates of which many are equal; where remainders are equal too, 'transport' has kinks."""
    k, rows = constraint.num_coordinates, constraint.streams - 1
    if constraint.name == "transport":
        return torch.linspace(0.5, -0.2, rows, dtype=torch.float64).repeat_interleave(rows)[None]
    return torch.stack([torch.zeros(k), torch.full((k,), 0.3), constraint.identity_coordinates()]).double()


@every_small_size
def test_gradients_at_ties_are_those_of_what_is_computed(name, n):
    constraint = hc.make_constraint(name, n).double()
    point = tied(constraint).requires_grad_()
    if constraint.num_coordinates:
        assert torch.autograd.gradcheck(constraint, (point,))
        assert constraint.num_coordinates > 9 or torch.autograd.gradgradcheck(constraint, (point,))


@every_mapping
@every_constraint
def test_one_stream_launches_one_addition(name, mapping):
    connection = hc.HyperConnection(8, 1, nn.Tanh(), constraint=name, mapping=mapping)
    streams = torch.randn(2, 3, 1, 8, requires_grad=True)
    with Operations() as forward:
        out = connection(streams)
    assert forward.names == ["tanh", "add"]
    assert torch.equal(out, streams + streams.tanh())


BRANCHES = {
    "pre-norm": lambda: branch(16),
    "post-norm": lambda: nn.Sequential(nn.Linear(16, 16), nn.GELU(), nn.LayerNorm(16)),
    "without norm": lambda: nn.Sequential(nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 16)),
}


@pytest.mark.parametrize("kind", BRANCHES)
@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 2, 4)))
def test_a_converted_network_gives_the_same_logits_with_any_kind_of_branch(name, n, kind):
    blocks, head = [BRANCHES[kind]() for _ in range(4)], nn.Linear(16, 10)
    x = torch.randn(2, 5, 16)
    expected = head(plain(blocks, x))
    assert relative_error(head(hc.HyperStack(blocks, 16, n, constraint=name)(x)), expected) <= 1e-5
