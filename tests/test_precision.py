"""Half precision and autocast: the matrices are built in float32, the streams keep their dtype."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import ConstantBranch, branch, relative_error, supported
from torch import nn

import hyperconn as hc
from hyperconn.constraints.distances import row_sum_error
from hyperconn.numerics import tolerance

HALF = (torch.bfloat16, torch.float16)
cases = pytest.mark.parametrize(("name", "n"), supported(sizes=(2, 4)))


def trained(name, n, **options):
    connection = hc.HyperConnection(16, n, branch(16), constraint=name, **options)
    with torch.no_grad():
        for parameter in connection.mapping.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return connection


@cases
@pytest.mark.parametrize("dtype", HALF)
@pytest.mark.parametrize("retraction", [None, "projection"])
def test_streams_come_back_in_their_dtype_and_the_matrix_stays_in_its_set(name, n, dtype, retraction):
    connection = trained(name, n, retraction=retraction).to(dtype)
    seen = []
    connection.branch.register_forward_hook(lambda module, args, output: seen.append((args[0].dtype, output.dtype)))
    streams = torch.randn(3, n, 16, dtype=dtype)
    out = connection(streams)
    out.float().square().sum().backward()
    assert out.dtype == dtype
    assert seen == [(dtype, dtype)]
    res = connection.mappings(streams).res
    assert res.dtype == torch.float32
    assert row_sum_error(res).max() <= 1e-6 or not connection.constraint.unit_row_sums
    assert not connection.constraint.exact or connection.constraint.violation(res).max() <= 2e-6
    assert all(p.grad.isfinite().all() for p in connection.parameters())


@cases
def test_autocast_leaves_the_matrix_alone(name, n):
    connection = trained(name, n)
    streams = torch.randn(3, n, 16)
    expected = connection.mappings(streams).res
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert torch.equal(connection.mappings(streams).res, expected)
        out = connection(streams)
    assert out.dtype == torch.float32
    assert relative_error(out, connection(streams)) < 2e-2


@cases
def test_bf16_streams_give_the_matrix_of_a_float64_reference(name, n):
    connection = trained(name, n)
    streams = torch.randn(64, n, 16).bfloat16()
    cotangent = torch.randn(64, n, n)
    gradients, matrices = [], []
    for module, given in ((connection, streams), (copy.deepcopy(connection).double(), streams.double())):
        matrices.append(module.mappings(given).res.double())
        if module.constraint.num_coordinates:
            (matrices[-1] * cotangent).sum().backward()
            gradients.append(module.mapping.bias.grad.double())
    assert (matrices[0] - matrices[1]).abs().max() <= 5e-5
    assert not gradients or relative_error(*gradients) <= 1e-4


@pytest.mark.parametrize("dtype", HALF)
def test_reading_and_writing_round_once(dtype):
    connection = trained("unconstrained", 4)
    streams, y = torch.randn(64, 4, 16).to(dtype), torch.randn(64, 16).to(dtype)
    pre, post, res = (weights.double() for weights in connection.mappings(streams))
    branch_input, carry = connection.read(streams)
    exact_input = torch.einsum("tj,tjc->tc", pre, streams.double())
    exact = res @ streams.double() + post[..., None] * y.double()[:, None]
    for got, expected in ((branch_input, exact_input), (connection.write(y, carry), exact)):
        rounded = torch.finfo(dtype).eps / 2 * expected.abs().clamp_min(torch.finfo(dtype).tiny)
        accumulated = tolerance(torch.float32, 4) * expected.abs().max()
        assert ((got.double() - expected).abs() <= rounded + accumulated).all()


@pytest.mark.parametrize("width", [64, 8192])
def test_gate_gradients_do_not_lose_precision_with_the_width(width):
    connection = hc.HyperConnection(width, 4, nn.Identity(), mapping="static")
    streams, cotangent = torch.randn(4, 4, width).bfloat16(), torch.randn(4, 4, width).bfloat16()
    gradients = []
    for dtype in (torch.bfloat16, torch.float64):
        connection = connection.double() if dtype == torch.float64 else connection
        connection.zero_grad()
        (connection(streams.to(dtype)) * cotangent.to(dtype)).sum().backward()
        gradients.append(connection.mapping.bias.grad.double().clone())
    assert relative_error(*gradients) <= 1e-2


def test_bf16_drift_over_many_layers_is_that_of_the_plain_residual():
    x, blocks = torch.randn(4, 64), [ConstantBranch(64) for _ in range(64)]
    stack = hc.HyperStack(blocks, 64, 4, constraint="shc")
    plain = {dtype: x.to(dtype) for dtype in (torch.bfloat16, torch.float32)}
    for block in blocks:
        plain = {dtype: value + block(value) for dtype, value in plain.items()}
    drift = relative_error(stack(x.bfloat16()).float(), stack(x))
    assert drift < 2e-2
    assert drift < 1.2 * relative_error(plain[torch.bfloat16].float(), plain[torch.float32])


@pytest.mark.parametrize("dtype", HALF)
def test_casting_a_model_keeps_connection_parameters_bit_for_bit(dtype):
    stack = hc.HyperStack(
        [branch(8) for _ in range(2)], 8, constraint="shc", retraction="projection", collapse="learned"
    )
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    before = {name: p.clone() for name, p in stack.named_parameters() if getattr(p, "is_connection", False)}
    assert len(before) == 2 * 5 + 3
    stack.to(dtype)
    for name, parameter in stack.named_parameters():
        if name in before:
            assert torch.equal(parameter, before[name])
        else:
            assert parameter.dtype == dtype


@pytest.mark.parametrize("default", [*HALF, torch.float64])
def test_building_under_another_default_dtype(default):
    torch.set_default_dtype(default)
    try:
        connection = hc.HyperConnection(8, 4, branch(8), constraint="shc", retraction="cayley")
    finally:
        torch.set_default_dtype(torch.float32)
    expected = torch.float64 if default == torch.float64 else torch.float32
    assert {p.dtype for p in connection.mapping.parameters()} == {expected}
    streams = torch.randn(3, 4, 8, dtype=default)
    assert connection(streams).dtype == default


def test_large_half_precision_streams_collapse_without_overflow():
    streams = torch.full((2, 4, 8), 20_000.0, dtype=torch.float16)
    assert hc.Collapse()(streams).isfinite().all()
