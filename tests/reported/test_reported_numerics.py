"""Reported of numbers: half precision, overflow, vanishing norms, equal singular values, what is not deterministic."""

from __future__ import annotations

import copy
import io

import pytest
import torch
from claims import assert_claims
from conftest import ConstantBranch, branch, relative_error
from reported_sites import MAPPINGS, every_constraint, every_mapping, every_small_size, moved
from torch import nn

import hyperconn as hc
from hyperconn.constraints.distances import row_sum_error

HALF = (torch.bfloat16, torch.float16)
every_half = pytest.mark.parametrize("dtype", HALF, ids=str)


@every_mapping
@every_constraint
def test_bf16_streams_give_the_matrix_of_float64(name, mapping):
    connection = moved(hc.HyperConnection(16, 4, constraint=name, mapping=mapping), 0.1)
    streams, cotangent = torch.randn(64, 4, 16).bfloat16(), torch.randn(64, 4, 4)
    matrices, gradients = [], []
    for module, given in ((connection, streams), (copy.deepcopy(connection).double(), streams.double())):
        matrices.append(module.mappings(given).res)
        if module.constraint.num_coordinates:
            (matrices[-1] * cotangent).sum().backward()
            gradients.append(module.mapping.bias.grad.double())
    assert (matrices[0] - matrices[1]).abs().max() <= 5e-5
    assert not connection.constraint.unit_row_sums or row_sum_error(matrices[0]).max() <= 1e-5
    assert not gradients or relative_error(*gradients) <= 1e-4


@every_small_size
def test_saturated_logits_of_a_small_temperature_stay_finite(name, n):
    """Logits of ±100 over a temperature of .04, whole rows of them of one sign."""
    constraint = hc.make_constraint(name, n)
    k = constraint.num_coordinates
    signs = torch.cat([torch.ones(1, k), -torch.ones(1, k), torch.randn(64, k).sign()])
    signs[-8:, : k // 2] = -1.0
    point = (2500.0 * signs).requires_grad_()
    matrix = constraint(point)
    if name != "unconstrained":
        assert_claims(constraint, matrix)
    if k:
        (matrix * torch.randn_like(matrix)).sum().backward()
        assert point.grad.isfinite().all()


@every_half
@every_constraint
def test_saving_and_loading_a_cast_model_keeps_the_bits_of_its_connections(name, dtype):
    def built():
        return hc.HyperStack(
            [branch(8)] * 2, 8, 4, constraint=name, retraction="projection", collapse="learned"
        )  # fmt: skip

    model = moved(built())
    before = {key: p.clone() for key, p in model.named_parameters() if getattr(p, "is_connection", False)}
    buffer = io.BytesIO()
    torch.save(model.to(dtype).state_dict(), buffer)
    buffer.seek(0)
    loaded = built().to(dtype)
    loaded.load_state_dict(torch.load(buffer, weights_only=True))
    after = dict(loaded.named_parameters())
    assert all(torch.equal(after[key], value) for key, value in before.items())
    assert {p.dtype for key, p in after.items() if key not in before} == {dtype}


@every_constraint
def test_bf16_streams_drift_little_over_64_layers(name):
    stack = moved(hc.HyperStack([ConstantBranch(64) for _ in range(64)], 64, 4, constraint=name), 0.01)
    x = torch.randn(4, 64)
    narrow = stack(x.bfloat16())
    assert narrow.isfinite().all()
    assert relative_error(narrow.float(), stack(x)) < 2e-2


@pytest.mark.parametrize("width", [64, 8192])
@every_mapping
def test_gate_gradients_are_as_good_in_wide_streams(mapping, width):
    """Against the formula in float64, each kind of gate by itself."""
    connection = hc.HyperConnection(width, 4, nn.Identity(), mapping=mapping)
    streams, cotangent = (torch.randn(4, 4, width).bfloat16() for _ in range(2))
    (connection(streams) * cotangent).sum().backward()
    narrow = connection.mapping.bias.grad.double()
    connection.double().zero_grad()
    wide = streams.double()
    pre, post, res = connection.mappings(wide)
    u = (pre.unsqueeze(-1) * wide).sum(-2, keepdim=True)
    ((res @ wide + post.unsqueeze(-1) * u) * cotangent.double()).sum().backward()
    for gate in (slice(0, 4), slice(4, 8), slice(8, None)):
        assert relative_error(narrow[gate], connection.mapping.bias.grad[gate]) <= 1e-2


@pytest.mark.parametrize("spectrum", ["identity", "swap", "zero", "rank 1"])
@pytest.mark.parametrize("n", [2, 3, 4])
def test_a_sphere_has_gradients_where_an_svd_has_none(n, spectrum):
    """With both rotations at rest, a negative first value swaps streams 0 and 1."""
    values = {"identity": [20.0] * 3, "swap": [-20.0, 20.0, 20.0], "zero": [0.0] * 3, "rank 1": [20.0, 0.0, 0.0]}
    constraint = hc.make_constraint("spectral-sphere", n)
    point = torch.zeros(constraint.num_coordinates)
    point[1 - n :] = torch.tensor(values[spectrum])[: n - 1]
    point.requires_grad_()
    matrix = constraint(point)
    if spectrum in ("identity", "swap"):
        order = list(range(n)) if spectrum == "identity" else [1, 0, *range(2, n)]
        torch.testing.assert_close(matrix, torch.eye(n)[order], rtol=0, atol=1e-6)
    (matrix * torch.randn(n, n)).sum().backward()
    assert point.grad.isfinite().all()


def cast(dtype, build):
    return build().to(dtype)


def built_in(dtype, build):
    torch.set_default_dtype(dtype)
    try:
        return build()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.parametrize("way", [cast, built_in], ids=["cast", "built"])
@every_half
@every_constraint
def test_half_precision_runs_forward_backward_and_diagnostics(name, dtype, way):
    stack = way(dtype, lambda: hc.HyperStack([branch(8) for _ in range(2)], 8, 4, constraint=name))
    moved(stack, 0.1)
    x = torch.randn(5, 8, dtype=dtype)
    out = stack(x)
    out.float().square().sum().backward()
    assert out.dtype == dtype
    assert all(p.grad.isfinite().all() for p in stack.parameters())
    for report in (hc.inspect(stack), hc.inspect(stack, x)):
        assert all(found.matrix.isfinite().all() and not found.non_finite for found in report)
    assert_claims(stack.connections[0].constraint, stack.connections[0].residual_matrix())


class Large(nn.Module):
    def forward(self, x):
        return 300 * x.tanh()


NORMS = {
    **{f"{m} mapping": lambda m=m: hc.HyperConnection(4096, 4, nn.Tanh(), mapping=m) for m in MAPPINGS},
    "hc": lambda: hc.HyperConnection(4096, 4, nn.Tanh(), constraint="hc"),
    "read": lambda: hc.Read(4096, 4),
    "learned collapse": lambda: hc.Collapse("learned", dim=4096, streams=4),
    "mean collapse": lambda: hc.Collapse(),
    "fractions": lambda: hc.FractionalConnection(4096, 4, 2, nn.Tanh()),
    **{f"expand, {p}": lambda p=p: hc.Expand(4, retraction=p) for p in ("projection", "exponential")},
    **{p: lambda p=p: hc.HyperConnection(4096, 4, Large(), retraction=p) for p in ("projection", "exponential")},
}


@pytest.mark.parametrize("part", NORMS)
def test_norms_of_large_fp16_entries_do_not_overflow(part):
    """An infinite norm leaves no trace but a zero: the values have to be those of float64."""
    module = NORMS[part]()
    with torch.no_grad():
        for name, parameter in module.named_parameters():
            parameter.normal_(0, 0.01) if name.endswith("weight") else None
            parameter.fill_(1.0) if name.endswith("scale") else None
    on_a_sphere = getattr(module, "retraction", None) is not None
    streams = ((1 if on_a_sphere else 300) * torch.randn(2, 4, 4096).sign()).half().requires_grad_()
    out = module.half()(streams)
    out.float().mean().backward()
    assert relative_error(out.double(), module.double()(streams.double())) <= 2e-3
    assert streams.grad.isfinite().all()


@pytest.fixture
def flushing():
    """Subnormal numbers count as zero, and numbers are float64 unless somebody says otherwise."""
    if not torch.set_flush_denormal(True):
        pytest.skip("this processor cannot flush subnormal numbers")
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(torch.float32)
    torch.set_flush_denormal(False)


@every_small_size
def test_a_hundred_builds_after_heavy_allocation_are_all_in_the_set(name, n, flushing):
    first = None
    for _ in range(100):
        torch.full((1 << 14,), torch.nan)  # and freed at once
        site = hc.HyperConnection(8, n, constraint=name, retraction="projection")
        maps = site.static_mappings()
        first = maps if first is None else first
        assert all(torch.equal(now, then) for now, then in zip(maps, first, strict=True))
        assert maps.res.dtype == torch.float64
    assert_claims(site.constraint, first.res, moderate=True)
    assert first.pre.isfinite().all() and first.post.isfinite().all()


@pytest.mark.parametrize("retraction", [None, "cayley"])
@every_mapping
@every_constraint
def test_equal_runs_have_equal_bits_and_float32_is_near_float64(name, mapping, retraction):
    torch.use_deterministic_algorithms(True)
    try:
        stack = hc.HyperStack(
            [branch(8) for _ in range(2)], 8, 4, constraint=name, mapping=mapping, retraction=retraction
        )
        moved(stack, 0.1)
        x, twin = torch.randn(16, 8), copy.deepcopy(stack).double()
        outputs, gradients = zip(*(run(module, x.to(dtype)) for module, dtype in [(stack, torch.float32)] * 2 + [(twin, torch.float64)]), strict=True)  # fmt: skip
    finally:
        torch.use_deterministic_algorithms(False)
    assert torch.equal(outputs[0], outputs[1])
    assert all(torch.equal(one, two) for one, two in zip(gradients[0], gradients[1], strict=True))
    assert relative_error(outputs[0].double(), outputs[2]) <= 1e-5
    total = [torch.cat([g.double().flatten() for g in gradient]) for gradient in gradients]
    assert relative_error(total[0], total[2]) <= 1e-5


def run(module, x):
    module.zero_grad()
    out = module(x)
    (out * torch.linspace(-1, 1, 8, dtype=x.dtype)).sum().backward()
    return out.detach(), [p.grad.clone() for p in module.parameters()]
