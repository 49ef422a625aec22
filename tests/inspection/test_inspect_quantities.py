"""On matrices made by hand every number equals its closed form, static and per token."""

from __future__ import annotations

import math

import pytest
import torch
from planted import cyclic_shift, per_token_model, static_model

import hyperconn as hc

N = 4
EYE, J = torch.eye(N), torch.full((N, N), 1 / N)
NEGATIVE = EYE.clone()
NEGATIVE[2, 1] = -0.3
GAIN = EYE.clone()
GAIN[1, 3] = 6.0  # row 1 sums to 7, column 3 too
ROW = torch.zeros(N, N)
ROW[0] = torch.tensor([1.0, 2.0, -3.0, 1.0])  # forward gain 7, backward 3

CASES = {
    "identity": (EYE, {"negative_share": 0, "most_negative": 0, "row_sum_error": 0, "column_sum_error": 0, "forward_gain": 1, "backward_gain": 1, "spectral_norm": 1, "second_singular_value": 1, "smallest_singular_value": 1, "distance_from_identity": 0, "distance_from_uniform": math.sqrt(3)}),
    "permutation": (EYE[[1, 0, 2, 3]], {"forward_gain": 1, "backward_gain": 1, "spectral_norm": 1, "second_singular_value": 1, "distance_from_identity": 2, "distance_from_uniform": math.sqrt(3)}),
    "cyclic shift": (cyclic_shift(N), {"row_sum_error": 0, "second_singular_value": 1, "smallest_singular_value": 1, "distance_from_identity": math.sqrt(8), "distance_from_uniform": math.sqrt(3)}),
    "uniform": (J, {"spectral_norm": 1, "second_singular_value": 0, "forward_gain": 1, "backward_gain": 1, "distance_from_identity": math.sqrt(3), "distance_from_uniform": 0}),
    "planted −0.3": (NEGATIVE, {"negative_share": 1 / 16, "most_negative": -0.3, "row_sum_error": 0.3, "column_sum_error": 0.3, "forward_gain": 1.3, "backward_gain": 1.3, "distance_from_identity": 0.3}),
    "planted gain 7": (GAIN, {"negative_share": 0, "forward_gain": 7, "backward_gain": 7, "row_sum_error": 6, "column_sum_error": 6, "spectral_norm": math.sqrt(19 + 6 * math.sqrt(10)), "distance_from_identity": 6}),
    "one row": (ROW, {"forward_gain": 7, "backward_gain": 3, "spectral_norm": math.sqrt(15), "second_singular_value": 0, "row_sum_error": 1, "column_sum_error": 4, "negative_share": 1 / 16, "most_negative": -3}),
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_static_numbers_are_the_closed_forms(case):
    matrix, expected = CASES[case]
    report = hc.inspect(static_model([matrix]))
    (found,) = report
    torch.testing.assert_close(found.matrix, matrix.double())
    for name, value in expected.items():
        summary = found.quantities[name]
        got = (summary.mean, summary.smallest, summary.largest)
        assert got == pytest.approx((value,) * 3, abs=2e-7), name


@pytest.mark.parametrize("case", CASES)
def test_per_token_extremes_and_their_places(case):
    """One token of (2, 3) carries the case, the others the identity."""
    matrix, expected = CASES[case]
    matrices = EYE.repeat(2, 3, 1, 1)
    matrices[1, 2] = matrix
    (found,) = hc.inspect(per_token_model([matrices]), torch.randn(2, 3, N, 8))
    assert found.tokens == 6
    torch.testing.assert_close(found.matrix, ((5 * EYE + matrix) / 6).double())
    plain = CASES["identity"][1]
    for name, value in expected.items():
        usual, summary = plain[name], found.quantities[name]
        assert summary.mean == pytest.approx((5 * usual + value) / 6, abs=2e-7), name
        assert (summary.smallest, summary.largest) == pytest.approx(sorted((usual, value)), abs=2e-7), name
        if value > usual + 1e-6:
            assert summary.where_largest == hc.inspection.Place(0, (1, 2)), name
        if value < usual - 1e-6:
            assert summary.where_smallest == hc.inspection.Place(0, (1, 2)), name


def test_gains_have_the_orientation_of_the_signal_and_of_the_gradient():
    """Forward is H x, backward Hᵀ g: each gain is reached by a signal of signs, and by no larger one."""
    torch.manual_seed(3)
    matrix = torch.randn(N, N)
    (found,) = hc.inspect(static_model([matrix]))
    signs = torch.tensor([[1.0 if bit >> k & 1 else -1.0 for k in range(N)] for bit in range(2**N)])
    assert found.quantities["forward_gain"].mean == pytest.approx((signs @ matrix.mT).abs().max().item(), rel=1e-6)
    assert found.quantities["backward_gain"].mean == pytest.approx((signs @ matrix).abs().max().item(), rel=1e-6)
    assert found.quantities["forward_gain"].mean != pytest.approx(found.quantities["backward_gain"].mean, rel=1e-2)


def test_the_matrix_of_the_report_is_the_one_applied():
    """A cyclic shift carries stream j into stream j + 1, in the connection and in the report."""
    model = static_model([cyclic_shift(N)])
    streams = torch.randn(3, N, 8)
    report = hc.inspect(model)
    torch.testing.assert_close(model(streams).double(), report["0"].matrix @ streams.double())
    torch.testing.assert_close(model(streams), streams.roll(1, -2))


def test_the_order_of_the_product_is_that_of_the_signal():
    first, second = torch.randn(N, N), torch.randn(N, N)
    model = static_model([first, second])
    report = hc.inspect(model)
    torch.testing.assert_close(report.depth[1].matrix, (second.double() @ first.double()))
    streams = torch.randn(5, N, 8)
    torch.testing.assert_close(model(streams), (report.depth[1].matrix.float() @ streams), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("per_token", [False, True])
def test_a_planted_non_finite_value_is_never_a_clean_number(value, per_token):
    broken = EYE.clone()
    broken[0, 2] = value
    if per_token:
        matrices = EYE.repeat(3, 1, 1)
        matrices[1] = broken
        report = hc.inspect(
            per_token_model([EYE.repeat(3, 1, 1), matrices, EYE.repeat(3, 1, 1)]), torch.randn(3, N, 8)
        )
    else:
        report = hc.inspect(static_model([EYE, broken, EYE]))
    assert [c.non_finite for c in report] == [0, 1, 0]
    for quantity in report["1"].quantities.values():
        assert not math.isfinite(quantity.mean)
    assert not math.isfinite(report["1"].matrix[0, 2])
    assert all(math.isfinite(quantity.mean) for quantity in report["2"].quantities.values())
    for prefix in report.depth[1:]:
        assert math.isnan(prefix.quantities["spectral_norm"].mean)
        assert prefix.non_finite == 1
    kinds = {flag.kind for flag in report.flags()}
    assert "non-finite values" in kinds
    assert "nan" in str(report)
    if per_token:
        assert report["1"].first_non_finite == hc.inspection.Place(0, (1,))


def test_non_finite_streams_and_gates_are_flagged():
    model = hc.HyperStack([torch.nn.Identity()] * 2, 8, 4, constraint="shc")
    x = torch.randn(3, 8)
    x[1, 4] = math.nan
    texts = [str(flag) for flag in hc.inspect(model, x).flags()]
    assert any("the streams that enter connections.0 are not finite" in text for text in texts)
    assert any("pre or post of connections.0" in text for text in texts)


def test_similarity_and_spread_of_known_streams():
    model = static_model([EYE[:2, :2]])
    streams = torch.zeros(3, 2, 8)
    streams[:, 0, 0] = 2.0
    streams[0, 1, 0], streams[1, 1, 1], streams[2, 1, 0] = 3.0, 1.0, -5.0  # cosines 1, 0, −1
    (found,) = hc.inspect(model, streams)
    assert found.similarity[:3] == pytest.approx((0.0, -1.0, 1.0), abs=1e-6)
    assert found.similarity.where_smallest == hc.inspection.Place(0, (2,))
    assert found.spread == pytest.approx(3.5)


def test_a_stream_of_zeros_has_no_direction():
    streams = torch.zeros(1, 2, 8)
    streams[0, 0] = 1.0
    (found,) = hc.inspect(static_model([EYE[:2, :2]]), streams)
    assert found.similarity.mean == 0


@pytest.mark.parametrize("n", [1, 2, 3, 6])
def test_other_numbers_of_streams(n):
    report = (
        hc.inspect(static_model([torch.eye(n)] * 2))
        if n > 1
        else hc.inspect(hc.HyperConnection(8, 1, torch.nn.Identity()))
    )
    assert report.connections[0].matrix.shape == (n, n)
    assert report.depth[-1].quantities["spectral_norm"].mean == pytest.approx(1)
    assert "homogenising product" not in {flag.kind for flag in report.flags()}
