"""One test per law; every law is asked of every registered constraint at every n it takes."""

from __future__ import annotations

import copy
import pickle

import pytest
import torch
from conftest import supported

import hyperconn as hc
from hyperconn.constraints.distances import column_sum_error, negativity, row_sum_error, spectral_excess

CASES = supported()
SMALL = [(name, n) for name, n in CASES if n <= 4]
cases = pytest.mark.parametrize(("name", "n"), CASES)
small_cases = pytest.mark.parametrize(("name", "n"), SMALL)


def coordinates(constraint, *leading, scale=1.0, dtype=torch.float32):
    return scale * torch.randn(*leading, constraint.num_coordinates, dtype=dtype)


def set_tolerance(constraint, scale=1.0) -> float:
    """A truncated iteration is only near its set, and the nearer the milder the logits."""
    return 1e-6 * max(1.0, constraint.streams / 4) if constraint.exact else 1e-3 * scale


@cases
def test_lands_in_the_set(name, n):
    constraint = hc.make_constraint(name, n)
    for scale in (0.0, 0.5, 1.0):
        matrix = constraint(coordinates(constraint, 64, scale=scale))
        assert matrix.shape == (64, n, n)
        assert constraint.violation(matrix).max() <= set_tolerance(constraint)


@pytest.mark.parametrize(("name", "n"), [case for case in CASES if case[1] > 1])
def test_rejects_outsiders(name, n):
    constraint = hc.make_constraint(name, n)
    outsider = torch.full((n, n), 3.0)
    violation = constraint.violation(torch.stack([outsider, constraint(constraint.identity_coordinates())]))
    assert violation.shape == (2,)
    if name != "unconstrained":
        assert violation[0] > 1e-2
    assert violation[1] <= set_tolerance(constraint)


@cases
def test_starts_at_the_identity(name, n):
    constraint = hc.make_constraint(name, n)
    start = constraint(constraint.identity_coordinates())
    assert (start - torch.eye(n)).abs().max() <= 1e-2


@cases
def test_claims_hold(name, n):
    constraint = hc.make_constraint(name, n)
    tolerance = set_tolerance(constraint)
    matrix = constraint(coordinates(constraint, 64))
    if constraint.nonnegative:
        assert negativity(matrix).max() == 0
    if constraint.unit_row_sums:
        assert row_sum_error(matrix).max() <= tolerance
    if constraint.unit_column_sums:
        assert column_sum_error(matrix).max() <= tolerance
    if constraint.nonexpansive:
        assert spectral_excess(matrix).max() <= tolerance
    if constraint.closed_under_product:
        assert constraint.violation(matrix[::2] @ matrix[1::2]).max() <= 4 * tolerance


@pytest.mark.parametrize(("name", "n"), [case for case in CASES if case[1] == 4])
def test_negative_entries_appear_exactly_where_they_are_claimed(name, n):
    constraint = hc.make_constraint(name, n)
    if name != "identity":
        has_negatives = bool((constraint(coordinates(constraint, 256)) < 0).any())
        assert has_negatives == (not constraint.nonnegative)


@small_cases
def test_gradcheck_with_random_cotangents(name, n):
    constraint = hc.make_constraint(name, n).double()
    point = coordinates(constraint, 2, dtype=torch.float64).requires_grad_()
    if constraint.num_coordinates:
        assert torch.autograd.gradcheck(constraint, (point,))


@pytest.mark.parametrize(("name", "n"), [case for case in SMALL if case[1] == 3 or case == ("quaternion", 4)])
def test_gradgradcheck(name, n):
    constraint = hc.make_constraint(name, n).double()
    point = (0.5 * coordinates(constraint, 2, dtype=torch.float64)).requires_grad_()
    if 0 < constraint.num_coordinates <= 16:
        assert torch.autograd.gradgradcheck(constraint, (point,))


@cases
def test_gradients_are_finite(name, n):
    constraint = hc.make_constraint(name, n)
    starts = torch.stack([constraint.identity_coordinates(), constraint.paper_coordinates()])
    for scale, point in [
        (0, starts),
        (0, torch.zeros(2, constraint.num_coordinates)),
        *((s, coordinates(constraint, 16, scale=s)) for s in (10.0, 1e2, 1e4)),
    ]:
        point = point.clone().requires_grad_()
        matrix = constraint(point)
        assert matrix.isfinite().all(), scale
        if constraint.num_coordinates:
            (matrix * torch.randn_like(matrix)).sum().backward()
            assert point.grad.isfinite().all(), scale


@pytest.mark.parametrize(("name", "n"), [case for case in CASES if case[1] > 1 and case[0] != "identity"])
def test_the_start_is_not_saturated(name, n):
    constraint = hc.make_constraint(name, n)
    start = constraint.identity_coordinates().requires_grad_()
    (constraint(start) * torch.randn(n, n)).sum().backward()
    assert start.grad.abs().max() > 1e-4


@pytest.mark.parametrize(("name", "n"), [case for case in CASES if case[1] > 1 and case[0] != "identity"])
def test_training_moves_the_matrix(name, n):
    constraint = hc.make_constraint(name, n)
    point = constraint.identity_coordinates().requires_grad_()
    start = constraint(point).detach().clone()
    optimizer = torch.optim.Adam([point, *constraint.parameters()], lr=1e-2)
    cotangent = torch.randn(n, n)
    for _ in range(100):
        optimizer.zero_grad()
        (constraint(point) * cotangent).sum().backward()
        optimizer.step()
    assert (constraint(point) - start).abs().max() > 1e-3
    if constraint.exact:
        assert constraint.violation(constraint(point)) <= set_tolerance(constraint)


@cases
def test_batch_equals_loop_and_dtype_is_kept(name, n):
    constraint = hc.make_constraint(name, n)
    batch = coordinates(constraint, 2, 3)
    together = constraint(batch)
    alone = torch.stack([torch.stack([constraint(row) for row in block]) for block in batch])
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-6)
    assert together.dtype == torch.float32
    assert constraint(batch.bfloat16()).dtype == torch.float32
    assert constraint(batch.double()).dtype == torch.float64
    assert constraint(batch[:0]).shape == (0, 3, n, n)


@cases
def test_half_precision_coordinates_stay_in_the_set(name, n):
    for dtype in (torch.bfloat16, torch.float16):
        constraint = hc.make_constraint(name, n).to(dtype)
        matrix = constraint(coordinates(constraint, 16).to(dtype))
        assert matrix.dtype == torch.float32
        assert constraint.violation(matrix).max() <= set_tolerance(constraint)


@cases
def test_autocast_changes_nothing(name, n):
    constraint = hc.make_constraint(name, n)
    point = coordinates(constraint, 8)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        inside = constraint(point)
    assert torch.equal(inside, constraint(point))


@cases
def test_copies_are_equal(name, n):
    constraint = hc.make_constraint(name, n)
    point = coordinates(constraint, 4)
    expected = constraint(point)
    fresh = hc.make_constraint(name, n)
    fresh.load_state_dict(constraint.state_dict())
    for twin in (copy.deepcopy(constraint), pickle.loads(pickle.dumps(constraint)), fresh):
        assert torch.equal(twin(point), expected)
    assert sum(t.numel() for t in constraint.state_dict().values()) < 256, "tables do not belong in a state dict"


@cases
def test_meta_device_build_equals_an_ordinary_one(name, n):
    with torch.device("meta"):
        constraint = hc.make_constraint(name, n)
    constraint = constraint.to_empty(device="cpu")
    constraint.reset_parameters()
    ordinary = hc.make_constraint(name, n)
    point = coordinates(ordinary, 4)
    assert torch.equal(constraint(point), ordinary(point))


@cases
def test_casting_to_half_and_back_loses_nothing(name, n):
    constraint = hc.make_constraint(name, n)
    point = coordinates(constraint, 4, dtype=torch.float64)
    expected = constraint(point)
    assert torch.equal(constraint.half().bfloat16().float().double()(point), expected)


@cases
def test_wrong_coordinates_are_refused(name, n):
    constraint = hc.make_constraint(name, n)
    with pytest.raises(
        ValueError, match=rf"expected floating-point coordinates \(\.\.\., {constraint.num_coordinates}\)"
    ):
        constraint(torch.zeros(2, constraint.num_coordinates + 1))


def test_every_name_and_alias_builds_the_same_class():
    for name in hc.list_constraints():
        cls = hc.constraints.constraint_class(name)
        for alias in cls.aliases:
            assert hc.constraints.constraint_class(alias.upper()) is cls


def test_every_constraint_says_what_it_is():
    for name in hc.list_constraints():
        cls = hc.constraints.constraint_class(name)
        assert cls.__doc__
        assert "Reference:" in cls.__doc__
        assert cls.set_description
        assert cls.reference
