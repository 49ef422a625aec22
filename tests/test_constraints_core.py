"""What each of the five core constraints promises beyond the shared laws."""

from __future__ import annotations

import geotorch
import pytest
import torch

import hyperconn as hc
from hyperconn.constraints.cayley import cayley_rotation, num_angles, skew_matrix
from hyperconn.constraints.distances import column_sum_error, row_sum_error, spectral_excess
from hyperconn.constraints.permutation import permutation_table
from hyperconn.constraints.spectral_sphere import helmert_basis


@pytest.mark.parametrize("n", [2, 3, 4, 6])
@pytest.mark.parametrize("magnitude", [1.0, 10.0, 50.0, 100.0])
def test_sinkhorn_rows_are_exact_for_any_logits(n, magnitude):
    logits = (magnitude * (2 * torch.rand(256, n * n) - 1)).requires_grad_()
    matrix = hc.make_constraint("mhc", n)(logits)
    assert row_sum_error(matrix).max() <= 1e-6
    (matrix * torch.randn_like(matrix)).sum().backward()
    assert logits.grad.isfinite().all()


def test_sinkhorn_columns_are_near_for_moderate_logits():
    assert column_sum_error(hc.make_constraint("sinkhorn", 4)(torch.randn(1024, 16))).max() <= 1e-3


@pytest.mark.parametrize("iterations", [1, 2, 5, 20])
def test_sinkhorn_keeps_equal_streams_equal(iterations):
    matrix = hc.constraints.Sinkhorn(4, iterations=iterations)(3 * torch.randn(64, 16))
    assert ((matrix @ torch.ones(4, 8)) - 1).abs().max() <= 1e-6


@pytest.mark.parametrize("iterations", [0, -1, 1.5, True])
def test_sinkhorn_is_never_silently_unconstrained(iterations):
    with pytest.raises(ValueError, match="expected iterations to be a whole number of at least 1"):
        hc.constraints.Sinkhorn(4, iterations=iterations)


def test_sinkhorn_equals_alternate_normalisation():
    matrix = torch.randn(32, 4, 4, dtype=torch.float64)
    expected = matrix.exp()
    for _ in range(20):
        expected = expected / expected.sum(-2, keepdim=True)
        expected = expected / expected.sum(-1, keepdim=True)
    torch.testing.assert_close(hc.make_constraint("sinkhorn", 4)(matrix.flatten(1)), expected)


@pytest.mark.parametrize("iterations", [1, 2, 3])
def test_sinkhorn_has_the_gradient_of_its_few_iterations(iterations):
    constraint = hc.constraints.Sinkhorn(3, iterations=iterations)
    assert torch.autograd.gradcheck(constraint, (torch.randn(2, 9, dtype=torch.float64, requires_grad=True),))


def test_sinkhorn_at_two_streams_has_its_closed_form():
    logits = torch.randn(64, 2, 2, dtype=torch.float64)
    a = ((logits[:, 0, 0] + logits[:, 1, 1] - logits[:, 0, 1] - logits[:, 1, 0]) / 2).sigmoid()
    expected = torch.stack([torch.stack([a, 1 - a], -1), torch.stack([1 - a, a], -1)], -2)
    converged = hc.constraints.Sinkhorn(2, iterations=400)(logits.flatten(1))
    torch.testing.assert_close(converged, expected, atol=1e-6, rtol=0)


@pytest.mark.parametrize("n", [2, 3, 4, 5, 6, 7])
def test_permutation_is_doubly_stochastic_for_any_logits(n):
    constraint = hc.make_constraint("mhc-lite", n)
    for magnitude in (0.0, 1.0, 10.0, 1e4):
        matrix = constraint(magnitude * torch.randn(8, constraint.num_coordinates))
        assert row_sum_error(matrix).max() <= 1e-6
        assert column_sum_error(matrix).max() <= 1e-6


def test_permutation_refuses_tables_that_are_too_large():
    with pytest.raises(ValueError, match=r"8! = 40,320.*'sinkhorn', 'spectral-sphere'"):
        hc.make_constraint("permutation", 8)


def test_permutation_table_is_lexicographic_and_shared():
    table = permutation_table(3).unflatten(-1, (3, 3))
    assert torch.equal(table[0], torch.eye(3))
    assert table.argmax(-1).tolist() == [[0, 1, 2], [0, 2, 1], [1, 0, 2], [1, 2, 0], [2, 0, 1], [2, 1, 0]]
    first, second = hc.make_constraint("permutation", 6), hc.make_constraint("permutation", 6)
    assert first.permutations.data_ptr() == second.permutations.data_ptr()


def test_permutation_published_start():
    matrix = hc.make_constraint("permutation", 4)(hc.make_constraint("permutation", 4).paper_coordinates())
    torch.testing.assert_close(matrix.diagonal(), torch.full((4,), 0.994), atol=5e-4, rtol=0)


@pytest.mark.parametrize("n", [2, 3, 4, 6, 8])
def test_spectral_sphere_holds_for_huge_coordinates(n):
    constraint = hc.make_constraint("shc", n)
    for magnitude in (1e-3, 1.0, 1e2, 1e4):
        matrix = constraint(magnitude * torch.randn(64, constraint.num_coordinates))
        assert row_sum_error(matrix).max() <= 1e-6
        assert column_sum_error(matrix).max() <= 1e-6
        assert spectral_excess(matrix).max() <= 1e-6


def test_spectral_sphere_product_of_a_thousand_does_not_grow():
    constraint = hc.make_constraint("shc", 4)
    product = torch.eye(4)
    for matrix in constraint(3 * torch.randn(1000, 9)):
        product = matrix @ product
        assert spectral_excess(product) <= 1e-4
    assert row_sum_error(product) <= 1e-4


@pytest.mark.parametrize(
    "spectrum", [(4.0, 4.0, 4.0), (4.0, 0.0, 0.0), (0.0, 0.0, 0.0)], ids=["I", "rank 1", "E = 0"]
)
def test_spectral_sphere_gradients_are_finite_where_an_svd_has_none(spectrum):
    point = torch.cat([torch.zeros(6), torch.tensor(spectrum)]).requires_grad_()
    matrix = hc.make_constraint("shc", 4)(point)
    (matrix * torch.randn(4, 4)).sum().backward()
    assert point.grad.isfinite().all()
    assert point.grad.abs().max() > 0


def test_spectral_sphere_has_negative_entries_but_none_at_the_start():
    constraint = hc.make_constraint("shc", 4)
    random = constraint(torch.randn(2048, 9))
    assert (random < 0).float().mean() > 0.10
    assert random.min() >= 2 / 4 - 1 - 1e-6
    for start in (constraint.identity_coordinates(), constraint.paper_coordinates()):
        assert (constraint(start) >= 0).all()


def test_spectral_sphere_at_two_streams_is_the_doubly_stochastic_segment():
    constraint = hc.make_constraint("shc", 2)
    matrix = constraint(torch.randn(256, 1) * 3)
    assert hc.make_constraint("sinkhorn", 2).violation(matrix).max() <= 1e-6
    assert matrix[:, 0, 0].min() < 0.1
    assert matrix[:, 0, 0].max() > 0.9


def test_spectral_sphere_published_start():
    constraint = hc.make_constraint("shc", 4)
    expected = 0.9993 * torch.eye(4) + 0.0007 * torch.full((4, 4), 0.25)
    torch.testing.assert_close(constraint(constraint.paper_coordinates()), expected, atol=1e-4, rtol=0)


def test_spectral_sphere_equals_its_formula():
    constraint = hc.make_constraint("shc", 4).double()
    with torch.no_grad():
        constraint.angle_bound.copy_(torch.tensor([0.7, 1.3]))
    t = torch.randn(9, dtype=torch.float64)
    basis = helmert_basis(4)

    def rotation(z):
        skew = torch.zeros(3, 3, dtype=torch.float64)
        skew[0, 1], skew[0, 2], skew[1, 2] = z
        skew = skew - skew.T
        eye = torch.eye(3, dtype=torch.float64)
        return torch.linalg.solve(eye + skew, eye - skew)

    left, right = rotation(0.7 * t[:3].tanh()), rotation(1.3 * t[3:6].tanh())
    expected = torch.full((4, 4), 0.25, dtype=torch.float64) + basis @ left @ t[6:].tanh().diag() @ right.T @ basis.T
    torch.testing.assert_close(constraint(t), expected)


def test_a_static_spectral_sphere_lies_in_geotorchs_bounded_low_rank_space():
    """E = U diag(s) Vᵀ with |s| ≤ 1 is what geotorch calls a low-rank matrix with these singular values."""
    constraint = hc.make_constraint("shc", 4).double()
    basis = helmert_basis(4)
    inner = basis.T @ constraint(torch.randn(9, dtype=torch.float64)).detach() @ basis
    space = geotorch.LowRank(inner.shape, rank=3, triv="expm").double()
    assert space.in_manifold(inner, eps=1e-6)
    assert torch.linalg.svdvals(inner).max() <= 1 + 1e-12


@pytest.mark.parametrize("n", [2, 3, 4, 5, 8])
def test_helmert_basis_is_orthonormal_and_orthogonal_to_ones(n):
    basis = helmert_basis(n)
    torch.testing.assert_close(basis.T @ basis, torch.eye(n - 1, dtype=torch.float64), atol=1e-14, rtol=0)
    assert basis.sum(0).abs().max() <= 1e-14


@pytest.mark.parametrize("size", [1, 2, 3, 4, 5])
def test_cayley_closed_forms_equal_geotorch(size):
    angles = torch.randn(16, num_angles(size), dtype=torch.float64)
    skew = skew_matrix(angles, size)
    rotation = cayley_rotation(angles, size)
    torch.testing.assert_close(rotation, geotorch.so.cayley_map(-2 * skew), atol=1e-12, rtol=0)
    eye = torch.eye(size, dtype=torch.float64)
    torch.testing.assert_close(rotation, torch.linalg.solve(eye + skew, eye - skew), atol=1e-12, rtol=0)


def test_unconstrained_is_the_coordinates_row_by_row():
    assert torch.equal(hc.make_constraint("hc", 3)(torch.arange(9.0)), torch.arange(9.0).view(3, 3))
