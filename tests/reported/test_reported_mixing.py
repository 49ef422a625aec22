"""Reported of the mix: thrown away, transposed, off its set, forgetful, amplifying."""

from __future__ import annotations

import itertools
import math

import pytest
import torch
from claims import assert_claims
from conftest import branch, supported
from reported_sites import NAMES, Zero, doubly_stochastic, every_constraint, every_mapping, every_small_size, moved
from torch import nn

import hyperconn as hc

SATURATED = 1e4


def shift_matrix(n):
    """Stream j goes into stream j + 1."""
    return torch.eye(n).roll(1, 0)


@every_mapping
@every_small_size
def test_a_planted_permutation_moves_the_streams_bit_for_bit(name, n, mapping):
    """Whatever matrix a constraint gives is the one that mixes, from source j to destination i."""
    connection = moved(hc.HyperConnection(8, n, Zero(), constraint=name, mapping=mapping))
    connection.constraint.matrix = lambda coordinates: shift_matrix(n).expand(*coordinates.shape[:-1], n, n)
    streams = torch.randn(2, 5, n, 8)
    assert torch.equal(connection(streams), streams.roll(1, -2))


def cayley_angles(rotation):
    """Coordinates of the Cayley map, the upper triangle of ``A = (I + Q)⁻¹(I − Q)``."""
    eye, size = torch.eye(len(rotation), dtype=torch.float64), len(rotation)
    skew = torch.linalg.solve(eye + rotation.double(), eye - rotation.double())
    return torch.stack([skew[i, j] for i, j in itertools.combinations(range(size), 2)])


def sphere_coordinates():
    """A turn by 120° of the plane of differences: 60° from the left, 60° from the right, singular values 1."""
    angle = math.atanh(math.tan(math.pi / 6))
    return torch.tensor([angle, -angle, 20.0, 20.0], dtype=torch.float64)


SHIFT = shift_matrix(3)
HOLDERS = {  # constraints that hold the cyclic shift of three streams, and the coordinates where
    "unconstrained": ({}, lambda: SHIFT.flatten()),
    "sinkhorn": ({}, lambda: SATURATED * SHIFT.flatten()),
    "permutation": ({}, lambda: SATURATED * torch.eye(6)[4]),
    "kronecker": ({}, lambda: SATURATED * torch.eye(6)[4]),
    "circulant": ({"gamma": 1.0}, lambda: SATURATED * torch.eye(3)[1]),
    "transport": ({}, lambda: SATURATED * (2 * SHIFT[:2, :2] - 1).flatten()),
    "orthogonal": ({}, lambda: cayley_angles(SHIFT)),
    "orthostochastic": ({}, lambda: cayley_angles(torch.kron(SHIFT, torch.eye(2)))),
    "spectral-sphere": ({}, sphere_coordinates),
}
BIT_FOR_BIT = ("unconstrained", "sinkhorn", "permutation", "kronecker", "circulant", "transport")


def test_every_constraint_that_can_hold_the_cyclic_shift_is_asked_to():
    """The identity holds nothing else, and a quaternion only turns four streams by even permutations."""
    assert set(HOLDERS) == set(NAMES) - {"identity", "quaternion"}


@every_mapping
@pytest.mark.parametrize("name", HOLDERS)
def test_the_cyclic_shift_as_coordinates_permutes_the_streams(name, mapping):
    options, coordinates = HOLDERS[name]
    constraint = hc.make_constraint(name, 3, **options)
    connection = hc.HyperConnection(8, 3, Zero(), constraint=constraint, mapping=mapping)
    with torch.no_grad():
        connection.mapping.bias[6:] = coordinates()
    streams = torch.randn(2, 5, 3, 8)
    if name in BIT_FOR_BIT:
        assert torch.equal(connection(streams), streams.roll(1, -2))
    torch.testing.assert_close(connection(streams), streams.roll(1, -2), rtol=0, atol=2e-6)


def test_two_swaps_of_a_quaternion():
    swaps = torch.eye(4)[[1, 0, 3, 2]]
    constraint = hc.make_constraint("quaternion", 4)
    table = constraint.rotations.double()
    pair = torch.linalg.solve(table.T, swaps.double().flatten()).view(4, 4)  # q ⊗ r
    left, values, right = torch.linalg.svd(pair)
    point = torch.cat([left[:, 0] * values[0], right[0]]) - torch.tensor([1.0, 0, 0, 0] * 2)
    torch.testing.assert_close(constraint(point).float(), swaps, rtol=0, atol=1e-6)


@every_mapping
@pytest.mark.parametrize(("name", "n"), supported(sizes=(2, 3, 4, 6, 8)))
def test_equal_streams_stay_what_they_are(name, n, mapping):
    """The axis that the mix sums over is the one that sums to 1, whatever the logits."""
    connection = moved(hc.HyperConnection(8, n, Zero(), constraint=name, mapping=mapping), 3.0)
    if connection.constraint.unit_row_sums:
        streams = torch.randn(64, 1, 8).expand(64, n, 8)
        assert (connection(streams) - streams).abs().max() <= 1e-6 * n


def chain(name, layers, last_coordinates=None):
    """Static connections with random coordinates, without branches that would matter."""
    sites = [moved(hc.HyperConnection(8, 4, Zero(), constraint=name, mapping="static"), 1.0) for _ in range(layers)]
    if last_coordinates is not None:
        with torch.no_grad():
            for site in sites:
                site.mapping.bias[-len(last_coordinates) :] = last_coordinates
    return nn.Sequential(*sites)


@every_constraint
def test_what_a_product_forgets_is_reported(name):
    model = chain(name, 48)
    matrices = [site.residual_matrix().double() for site in model]
    expected = torch.linalg.svdvals(torch.linalg.multi_dot(matrices[::-1]))[1].item()
    second = hc.inspect(model).depth[-1].quantities["second_singular_value"].mean
    assert second == pytest.approx(expected, rel=1e-5, abs=1e-12)
    if name in ("identity", "orthogonal", "quaternion"):
        assert second == pytest.approx(1, abs=1e-4)
    if doubly_stochastic(name):
        assert second <= math.prod(torch.linalg.svdvals(matrix)[1].item() for matrix in matrices) * (1 + 1e-6) + 1e-6


@pytest.mark.parametrize("name", ["sinkhorn", "permutation", "transport", "orthostochastic"])
def test_products_of_random_mixes_forget_every_difference(name):
    model = nn.Sequential(*(hc.HyperConnection(8, 4, constraint=name, mapping="static") for _ in range(48)))
    with torch.no_grad():
        for site in model:
            site.mapping.bias[8:].normal_()
    assert hc.inspect(model).depth[-1].quantities["second_singular_value"].mean < 1e-8


def test_a_sphere_with_unit_singular_values_forgets_nothing():
    report = hc.inspect(chain("spectral-sphere", 48, torch.full((3,), 20.0)))
    assert report.depth[-1].quantities["second_singular_value"].mean == pytest.approx(1, abs=1e-4)


@every_constraint
def test_gains_are_known_at_every_layer_and_through_depth(name):
    stack = moved(hc.HyperStack([branch(8) for _ in range(3)], 8, 4, constraint=name))
    report = hc.inspect(stack, torch.randn(16, 8))
    assert [found.name for found in report] == [f"connections.{i}" for i in range(3)]
    constraint = stack.connections[0].constraint
    exact = ("forward_gain", "backward_gain") if constraint.exact else ("forward_gain",)  # its rows are exact
    for found in (*report, *report.depth):
        for gain in exact:
            if doubly_stochastic(name):
                assert found.quantities[gain].largest == pytest.approx(1, abs=1e-3)
            elif constraint.nonexpansive:
                assert found.quantities[gain].largest <= 2 + 1e-5


def test_an_amplification_that_starts_at_the_first_layer_is_reported_there():
    model, layers = nn.Sequential(hc.Expand(4), chain("unconstrained", 10), hc.Collapse()), 10
    matrix = 2.5 * torch.eye(4)
    matrix[0, 1] = -3.0  # row 0 and column 1 are the largest in absolute value, and not in sum
    with torch.no_grad():
        for site in model[1]:
            site.mapping.bias[8:] = matrix.flatten()
    x = torch.randn(5, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(model(x).sum(), x)
    report = hc.inspect(model, x.detach())
    product = torch.linalg.matrix_power(matrix.double(), layers)
    for found, known in ((report.connections[0], 5.5), (report.depth[-1], product.abs().sum(-1).max().item())):
        assert found.quantities["forward_gain"].largest == pytest.approx(known)
        assert found.quantities["backward_gain"].largest == pytest.approx(known)
    assert torch.equal(torch.autograd.grad(model(x).sum(), x)[0], gradient)
    assert any("gain above bound" in str(flag) for flag in report.flags())


@pytest.mark.parametrize(("n", "m"), [(1, 4), (2, 2), (2, 3), (4, 2)])
@every_constraint
def test_every_slice_of_fractions_is_in_its_set(name, n, m):
    if hc.constraints.constraint_class(name).unsupported(n * m) is not None:
        with pytest.raises(ValueError, match=f"streams={n * m}"):
            hc.FractionalConnection(12, n, m, branch(12), constraint=name)
        return
    site = moved(hc.FractionalConnection(12, n, m, branch(12), constraint=name)).double()
    res = site.mappings(torch.randn(16, n, 12, dtype=torch.float64)).res
    assert res.shape == (16, n * m, n * m)
    assert (res - res[0]).abs().max() > 0 or name == "identity"
    assert_claims(site.constraint, res)
