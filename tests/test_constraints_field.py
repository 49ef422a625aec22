"""What the constraints of the field promise beyond the shared laws, against their formulas written out."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from conftest import supported

import hyperconn as hc
from hyperconn.constraints.cayley import skew_matrix
from hyperconn.constraints.distances import column_sum_error, orthogonality_error, row_sum_error


def coordinates(name, n, *leading, scale=1.0, **options):
    constraint = hc.make_constraint(name, n, **options).double()
    return constraint, scale * torch.randn(*leading, constraint.num_coordinates, dtype=torch.float64)


def two_by_two(logits):
    p = logits.softmax(-1)[0]
    return torch.stack([torch.stack([p, 1 - p]), torch.stack([1 - p, p])])


@pytest.mark.parametrize("n", [2, 4, 8])
def test_kronecker_equals_torch_kron_of_its_factors(n):
    constraint, point = coordinates("kromhc", n)
    expected = torch.ones(1, 1, dtype=torch.float64)
    for logits in point.unflatten(0, (-1, 2)):
        expected = torch.kron(expected, two_by_two(logits))
    torch.testing.assert_close(constraint(point), expected, atol=1e-14, rtol=0)
    assert constraint.num_coordinates == 2 * round(math.log2(n))


def test_kronecker_at_a_power_of_two_depends_on_i_xor_j_only():
    matrix = (lambda constraint, point: constraint(point))(*coordinates("kronecker", 8))
    for i, j in itertools.product(range(8), repeat=2):
        torch.testing.assert_close(matrix[i, j], matrix[0, i ^ j], atol=1e-14, rtol=0)


def test_kronecker_at_other_sizes_is_a_product_of_permutation_mixtures():
    constraint, point = coordinates("kronecker", 6)
    swap, others = point[:2], point[2:]
    three = hc.make_constraint("permutation", 3).double()(others)
    torch.testing.assert_close(constraint(point), torch.kron(two_by_two(swap), three), atol=1e-14, rtol=0)


def test_kronecker_rejects_doubly_stochastic_matrices_that_are_no_product():
    cyclic_shift = torch.eye(4).roll(1, 0)
    assert hc.make_constraint("kronecker", 4).violation(cyclic_shift) > 0.1
    assert hc.make_constraint("kronecker", 4).violation(torch.eye(4).flip(0)) == 0


@pytest.mark.parametrize("magnitude", [1.0, 1e3])
def test_quaternion_lies_in_so4_and_is_the_identity_at_zero(magnitude):
    constraint = hc.make_constraint("ohc", 4)
    matrix = constraint(magnitude * torch.randn(1000, 8))
    assert orthogonality_error(matrix).max() <= 1e-6
    assert (torch.linalg.det(matrix) - 1).abs().max() <= 1e-5
    assert torch.equal(constraint(torch.zeros(8)), torch.eye(4))


def hamilton(q, x):
    a, b, c, d = q
    e, f, g, h = x
    parts = [a*e - b*f - c*g - d*h, a*f + b*e + c*h - d*g, a*g - b*h + c*e + d*f, a*h + b*g - c*f + d*e]  # fmt: skip
    return torch.stack(parts)


def test_quaternion_multiplies_from_both_sides():
    constraint, point = coordinates("quaternion", 4)
    one = torch.tensor([1.0, 0, 0, 0], dtype=torch.float64)
    q, r = ((part + one) / (part + one).norm() for part in point.split(4))
    x = torch.randn(4, dtype=torch.float64)
    conjugate = r * torch.tensor([1.0, -1, -1, -1], dtype=torch.float64)
    torch.testing.assert_close(constraint(point) @ x, hamilton(hamilton(q, x), conjugate), atol=1e-13, rtol=0)


def test_quaternion_has_all_six_directions_of_so4():
    constraint, point = coordinates("quaternion", 4)
    jacobian = torch.autograd.functional.jacobian(constraint, point).flatten(0, 1)
    assert torch.linalg.matrix_rank(jacobian, atol=1e-8) == 6


@pytest.mark.parametrize("n", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("magnitude", [1.0, 1e3])
def test_orthogonal_is_the_cayley_map(n, magnitude):
    constraint, point = coordinates("jpmhc", n, scale=magnitude)
    skew, eye = skew_matrix(point, n), torch.eye(n, dtype=torch.float64)
    expected = torch.linalg.solve(eye + skew, eye - skew)
    torch.testing.assert_close(constraint(point), expected, atol=1e-9, rtol=0)
    single = hc.make_constraint("orthogonal", n)(magnitude * torch.randn(256, constraint.num_coordinates))
    assert orthogonality_error(single).max() <= 1e-6


def test_orthogonal_is_what_the_published_iteration_goes_to():
    """``Y_{i+1} = I + (a/2) W (I + Y_i)`` from ``Y_0 = I + aW`` converges to the Cayley map of ``−aW/2``."""
    constraint, angles = coordinates("orthogonal", 4, scale=0.3)
    skew, eye, a = skew_matrix(angles, 4), torch.eye(4, dtype=torch.float64), 0.1
    y = eye + a * skew
    for _ in range(2):
        y = eye + a / 2 * skew @ (eye + y)
    assert 0 < (constraint(-a / 2 * angles) - y).abs().max() <= 1e-3


@pytest.mark.parametrize("name", ["orthogonal", "quaternion"])
def test_reflections_are_no_rotations(name):
    reflection = torch.diag(torch.tensor([-1.0, 1, 1, 1]))
    assert hc.make_constraint(name, 4).violation(reflection) == 2


@pytest.mark.parametrize("n", [2, 3, 4, 6, 8])
def test_circulant_eigenvalues_are_the_dft_of_its_weights(n):
    constraint, z = coordinates("c-mhc", n, gamma=0.7)
    weights = 0.7 * z.softmax(-1)
    weights[0] += 0.3
    matrix = constraint(z)
    shift = torch.eye(n, dtype=torch.float64).roll(1, 0)
    expected = sum(weights[k] * torch.linalg.matrix_power(shift, k) for k in range(n))
    torch.testing.assert_close(matrix, expected, atol=1e-14, rtol=0)
    spectrum = torch.fft.fft(weights)
    waves = torch.fft.ifft(torch.eye(n, dtype=torch.complex128)) * n  # column k is the wave of frequency k
    torch.testing.assert_close(matrix.to(waves.dtype) @ waves, waves * spectrum, atol=1e-13, rtol=0)


def test_circulant_rejects_other_doubly_stochastic_matrices():
    swap = torch.eye(4)[[1, 0, 2, 3]]
    assert hc.make_constraint("circulant", 4).violation(swap) == 1


@pytest.mark.parametrize("name", ["orthostochastic", "transport"])
@pytest.mark.parametrize("n", [2, 3, 4, 6, 8])
@pytest.mark.parametrize("magnitude", [1.0, 10.0, 1e3])
def test_sums_are_exact_for_any_coordinates(name, n, magnitude):
    constraint = hc.make_constraint(name, n)
    point = (magnitude * (2 * torch.rand(512, constraint.num_coordinates) - 1)).requires_grad_()
    matrix = constraint(point)
    assert row_sum_error(matrix).max() <= 1e-6
    assert column_sum_error(matrix).max() <= 1e-6
    assert matrix.min() >= 0
    (matrix * torch.randn_like(matrix)).sum().backward()
    assert point.grad.isfinite().all()


@pytest.mark.parametrize(("n", "block"), [(2, 1), (3, 2), (4, 2), (2, 3)])
def test_orthostochastic_is_its_formula(n, block):
    constraint, point = coordinates("go-mhc", n, block=block)
    size = n * block
    skew, eye = skew_matrix(point, size), torch.eye(size, dtype=torch.float64)
    q = (eye - skew) @ torch.linalg.inv(eye + skew)
    for i, j in itertools.product(range(n), repeat=2):
        tile = q[i * block : (i + 1) * block, j * block : (j + 1) * block]
        torch.testing.assert_close(constraint(point)[i, j], tile.square().sum() / block)


def test_orthostochastic_is_the_identity_at_zero_and_stationary_there():
    """Which is why its start near I is not at zero."""
    constraint, point = coordinates("orthostochastic", 4)
    zero = torch.zeros_like(point).requires_grad_()
    matrix = constraint(zero)
    assert torch.equal(matrix, torch.eye(4, dtype=torch.float64))
    (matrix * torch.randn_like(matrix)).sum().backward()
    assert not zero.grad.any()


def published_transport(t):
    """Entry by entry with all three bounds, in Python numbers."""
    n = t.shape[0] + 1
    rows, columns, matrix = [1.0] * n, [1.0] * n, torch.zeros(n, n, dtype=torch.float64)

    def put(i, j, entry):
        matrix[i, j], rows[i], columns[j] = entry, rows[i] - entry, columns[j] - entry

    for i in range(n - 1):
        for j in range(n - 1):
            lower = max(0.0, rows[i] - sum(columns[j + 1 :]), columns[j] - sum(rows[i + 1 :]))
            upper = min(rows[i], columns[j])
            put(i, j, lower + (upper - lower) / (1 + math.exp(-t[i, j].item())))
        put(i, n - 1, rows[i])
    for j in range(n):
        put(n - 1, j, columns[j])
    return matrix


@pytest.mark.parametrize("n", [2, 3, 4, 6])
@pytest.mark.parametrize("scale", [1.0, 5.0])
def test_transport_is_the_published_procedure(n, scale):
    constraint, point = coordinates("tbp-mhc", n, 32, scale=scale)
    for t, matrix in zip(point.unflatten(-1, (n - 1, n - 1)), constraint(point), strict=True):
        torch.testing.assert_close(matrix, published_transport(t), atol=1e-12, rtol=0)


@pytest.mark.parametrize("permutation", list(itertools.permutations(range(3))))
def test_transport_reaches_every_permutation(permutation):
    target = torch.eye(3)[list(permutation)]
    matrix = hc.make_constraint("transport", 3)(100 * (2 * target[:2, :2] - 1).flatten())
    torch.testing.assert_close(matrix, target)


@pytest.mark.parametrize(("name", "n"), supported())
def test_the_residual_start_has_a_diagonal_of_at_least_99_percent(name, n):
    constraint = hc.make_constraint(name, n)
    assert constraint(constraint.identity_coordinates()).diagonal().min() >= 0.99


def test_the_start_of_orthostochastic_treats_no_two_rows_of_a_stream_alike():
    start = hc.make_constraint("orthostochastic", 4).identity_coordinates()
    assert start.abs().unique().numel() == start.numel()


@pytest.mark.parametrize(
    ("build", "error", "message"),
    [
        (lambda: hc.make_constraint("quaternion", 3), ValueError, r"Quaternion\(streams=3\): expected 4 streams.*'orthogonal'"),
        (lambda: hc.make_constraint("kronecker", 22), ValueError, r"Kronecker\(streams=22\): expected a product of primes up to 7.*11! = 39,916,800.*'sinkhorn'"),
        (lambda: hc.make_constraint("circulant", 4, gamma=0.0), ValueError, r"Circulant\(streams=4\): expected 0 < gamma <= 1, got 0.0. Published: 4/\(2L\)"),
        (lambda: hc.make_constraint("circulant", 4, gamma="a"), ValueError, r"expected 0 < gamma <= 1, got 'a'"),
        (lambda: hc.make_constraint("orthostochastic", 4, block=0), ValueError, r"Orthostochastic\(streams=4\): expected block >= 1, got 0"),
        (lambda: hc.make_constraint("orthostochastic", 4, block=1.5), TypeError, r"expected block to be an integer, got 1.5"),
    ],
)  # fmt: skip
def test_impossible_sizes_and_options_are_refused(build, error, message):
    with pytest.raises(error, match=message):
        build()


@pytest.mark.parametrize(("name", "options"), [("circulant", {"gamma": 0.5}), ("orthostochastic", {"block": 3})])
def test_options_travel_with_the_state(name, options):
    trained = hc.HyperConnection(8, 4, constraint=hc.make_constraint(name, 4, **options)).state_dict()
    hc.HyperConnection(8, 4, constraint=hc.make_constraint(name, 4, **options)).load_state_dict(trained)
    with pytest.raises((ValueError, RuntimeError), match=r"the state dict was made with|size mismatch"):
        hc.HyperConnection(8, 4, constraint=name).load_state_dict(trained)


@pytest.mark.parametrize("name", hc.list_constraints())
def test_every_constraint_compiles_in_one_graph(name):
    constraint = hc.make_constraint(name, 4)
    point = torch.randn(3, constraint.num_coordinates)
    torch._dynamo.reset()
    compiled = torch.compile(constraint, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(point), constraint(point), atol=1e-6, rtol=0)
