"""The product through depth: what it forgets, what it keeps, where it starts anew."""

from __future__ import annotations

import pytest
import torch
from planted import cyclic_shift, doubly_stochastic, per_token_model, small_stack, static_model
from torch import nn

import hyperconn as hc

LAYERS, N = 48, 4


def kinds(report) -> set[str]:
    return {flag.kind for flag in report.flags()}


def test_doubly_stochastic_mixes_homogenise():
    report = hc.inspect(static_model(list(doubly_stochastic(LAYERS))))
    assert report.depth[-1].quantities["second_singular_value"].mean < 1e-8
    (flag,) = [flag for flag in report.flags() if flag.kind == "homogenising product"]
    assert "after 48 matrices" in flag.text
    assert "homogenising" in str(report)


def test_doubly_stochastic_mixes_homogenise_per_token():
    matrices = [doubly_stochastic(3) for _ in range(LAYERS)]
    report = hc.inspect(per_token_model(matrices), torch.randn(3, N, 8))
    assert report.depth[-1].quantities["second_singular_value"].largest < 1e-8
    assert "homogenising product" in kinds(report)


@pytest.mark.parametrize(
    "make",
    [lambda: torch.eye(N)[torch.randperm(N)], lambda: torch.linalg.qr(torch.randn(N, N))[0]],
    ids=["permutations", "orthogonal"],
)
def test_permutations_and_orthogonal_matrices_keep_everything(make):
    report = hc.inspect(static_model([make() for _ in range(LAYERS)]))
    torch.testing.assert_close(report.depth[-1].singular_values, torch.ones(N).double(), rtol=0, atol=1e-4)
    assert "homogenising product" not in kinds(report)


def test_every_prefix_is_the_product_so_far_per_token():
    matrices = [torch.randn(2, 3, N, N) for _ in range(3)]
    report = hc.inspect(per_token_model(matrices), torch.randn(2, 3, N, 8))
    product = torch.eye(N).double()
    for length, (matrix, prefix) in enumerate(zip(matrices, report.depth, strict=True), 1):
        product = matrix.double() @ product
        torch.testing.assert_close(prefix.matrix, product.mean((0, 1)))
        assert prefix.length == length
        expected = torch.linalg.svdvals(product)
        torch.testing.assert_close(prefix.singular_values, expected.mean((0, 1)))
        norms = expected[..., 0].flatten()
        assert prefix.quantities["spectral_norm"].largest == pytest.approx(norms.max().item())
        where = prefix.quantities["spectral_norm"].where_largest.token
        assert where == divmod(norms.argmax().item(), 3)


def test_an_exploding_product_is_flagged_where_it_is_worst():
    growing = 1.5 * torch.eye(N)
    report = hc.inspect(static_model([growing] * 10))
    assert report.depth[-1].quantities["forward_gain"].mean == pytest.approx(1.5**10, rel=1e-6)
    (flag,) = [flag for flag in report.flags() if flag.kind == "gain above bound"]
    assert "57.67 forward" in flag.text and "first 10 matrices" in flag.text
    assert not [flag for flag in report.flags(gain_bound=100.0) if flag.kind == "gain above bound"]


def test_a_product_starts_anew_at_an_expansion_and_when_n_changes():
    shift = cyclic_shift(N)
    two = nn.ModuleDict({"a": small_stack(layers=2), "b": small_stack(layers=3)})
    assert [(p.name, p.length) for p in hc.inspect(two).depth] == [
        ("a.connections.0", 1), ("a.connections.1", 2),
        ("b.connections.0", 1), ("b.connections.1", 2), ("b.connections.2", 3),
    ]  # fmt: skip
    report = hc.inspect(static_model([shift, shift, torch.eye(3), torch.eye(3)]))
    assert [(p.chain, p.length) for p in report.depth] == [(0, 1), (0, 2), (1, 1), (1, 2)]


class Towers(nn.Module):
    def __init__(self):
        super().__init__()
        self.late, self.early = small_stack(layers=2), small_stack(layers=2)

    def forward(self, x, short=None):
        x = self.early(x)
        return x if short else self.late(x)


def test_per_token_reports_follow_the_calls_not_the_modules():
    report = hc.inspect(Towers(), torch.randn(5, 16))
    assert [c.name for c in report] == [f"{tower}.connections.{i}" for tower in ("early", "late") for i in (0, 1)]
    assert [(p.chain, p.length) for p in report.depth] == [(0, 1), (0, 2), (1, 1), (1, 2)]


def test_more_than_ten_layers_are_in_call_order_not_in_that_of_their_names():
    model, names = static_model([cyclic_shift(N)] * 11), [str(layer) for layer in range(11)]
    for report in (hc.inspect(model), hc.inspect(model, torch.randn(3, N, 8))):
        assert [c.name for c in report] == [p.name for p in report.depth] == names
        assert [p.length for p in report.depth] == list(range(1, 12))


def test_connections_that_no_input_reaches_are_named():
    report = hc.inspect(Towers(), torch.randn(5, 16), short=True)
    assert report.uncalled == ["late.connections.0", "late.connections.1"]
    assert len(report) == 2
    assert "not called: no input reached late.connections.0" in str(report)


def test_a_connection_called_twice_counts_both_calls_and_both_factors():
    (site,) = static_model([cyclic_shift(N)])
    streams = torch.randn(3, N, 8)
    report = hc.inspect(nn.Sequential(site, site), streams)
    assert [c.calls for c in report] == [2]
    torch.testing.assert_close(report.depth[1].matrix, (cyclic_shift(N) @ cyclic_shift(N)).double())
