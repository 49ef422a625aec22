"""Parity with copied weights: the same outputs and gradients as the code and the formulas in the wild."""

from __future__ import annotations

import pytest
import torch
from conftest import branch
from hyper_connections import HyperConnections
from oracles import SITES, published_start

import hyperconn as hc

DIM, LAYER = 12, 5
MAPPING = ("weight", "scale", "bias")


def assert_near(got, expected):
    """1e-5 of the largest value, or absolute for values below 1."""
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5 * max(1.0, expected.abs().max().item()))


def gradients(output, cotangent, inputs):
    return torch.autograd.grad((output * cotangent).sum(), inputs)


@pytest.mark.parametrize("n", [2, 3, 4])
def test_original_hyper_connections_of_the_known_package(n):
    theirs = HyperConnections(n, dim=DIM, branch=branch(DIM), layer_index=LAYER)
    with torch.no_grad():
        for name, parameter in theirs.named_parameters():
            if "branch" not in name:
                parameter.add_(torch.randn_like(parameter))
    ours = hc.HyperConnection(DIM, n, theirs.branch, constraint="hc", layer_index=LAYER)
    gain = theirs.norm.gamma.detach() + 1
    alpha_fn, static_alpha = theirs.dynamic_alpha_fn.detach(), theirs.static_alpha.detach()
    mapping = ours.mapping
    with torch.no_grad():  # theirs: [source, read | destination], one scale for both; ours: rows of H by destination
        mapping.weight.copy_(torch.stack([alpha_fn[:, 0], theirs.dynamic_beta_fn, *alpha_fn[:, 1:].T]) * gain)
        mapping.bias.copy_(torch.cat([static_alpha[:, 0], theirs.static_beta, static_alpha[:, 1:].T.flatten()]))
        mapping.scale.copy_(
            torch.stack([theirs.dynamic_alpha_scale, theirs.dynamic_beta_scale, theirs.dynamic_alpha_scale])
        )
    streams = torch.randn(2, 5, n, DIM, requires_grad=True)
    folded = streams.permute(0, 2, 1, 3).reshape(2 * n, 5, DIM)
    expected = theirs(folded).reshape(2, n, 5, DIM).permute(0, 2, 1, 3)
    got, cotangent = ours(streams), torch.randn(2, 5, n, DIM)
    assert_near(got, expected)

    own = gradients(
        got, cotangent, [streams, mapping.weight, mapping.bias, mapping.scale, *theirs.branch.parameters()]
    )
    names = ("dynamic_alpha_fn", "dynamic_beta_fn", "static_alpha", "static_beta", "dynamic_alpha_scale", "dynamic_beta_scale")  # fmt: skip
    parameters = [getattr(theirs, name) for name in names]
    known = gradients(expected, cotangent, [streams, *parameters, *theirs.branch.parameters()])
    streams_gradient, weight, bias, scale = own[:4]
    assert_near(streams_gradient, known[0])
    weight = weight * gain  # the chain rule of the folded gain
    assert_near(torch.cat([weight[:1], weight[2:]]).T, known[1])
    assert_near(weight[1], known[2])
    assert_near(torch.cat([bias[:n, None], bias[2 * n :].view(n, n).T], 1), known[3])
    assert_near(bias[n : 2 * n], known[4])
    assert_near(scale[0] + scale[2], known[5])
    assert_near(scale[1], known[6])
    for mine, reference in zip(own[4:], known[7:], strict=True):
        assert_near(mine, reference)


def test_published_start_of_the_known_package():
    theirs = HyperConnections(4, dim=DIM, branch=branch(DIM), layer_index=LAYER)
    ours = hc.HyperConnection(DIM, 4, theirs.branch, constraint="hc", layer_index=LAYER, init="paper")
    streams = torch.randn(3, 4, DIM)
    folded = streams.flatten(0, 1)
    assert_near(ours(streams), theirs(folded).view(3, 4, DIM))
    maps = ours.static_mappings()
    assert torch.equal(torch.cat([maps.pre[:, None], maps.res.T], 1), theirs.static_alpha)
    assert torch.equal(maps.post, theirs.static_beta)


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("n", [2, 4])
def test_published_formulas_with_copied_weights(name, n):
    site = hc.HyperConnection(DIM, n, branch(DIM), constraint=name, layer_index=LAYER)
    with torch.no_grad():
        site.mapping.weight.normal_()
        site.mapping.scale.uniform_(0.2, 0.4)
        site.mapping.bias.normal_()
    copies = [getattr(site.mapping, key).detach().clone().requires_grad_() for key in MAPPING]
    streams = torch.randn(6, n, DIM, requires_grad=True)
    expected = SITES[name](streams, *copies, site.branch)
    got, cotangent = site(streams), torch.randn(6, n, DIM)
    assert_near(got, expected)
    shared = [streams, *site.branch.parameters()]
    own = gradients(got, cotangent, [*shared, *(getattr(site.mapping, key) for key in MAPPING)])
    published = gradients(expected, cotangent, [*shared, *copies])
    for mine, reference in zip(own, published, strict=True):
        assert_near(mine, reference)


@pytest.mark.parametrize("name", SITES)
@pytest.mark.parametrize("n", [2, 4])
def test_published_formulas_at_their_published_start(name, n):
    site = hc.HyperConnection(DIM, n, branch(DIM), constraint=name, layer_index=LAYER, init="paper")
    weight, scales, bias = published_start(name, n, DIM, LAYER)
    for key, value in zip(MAPPING, (weight, scales, bias), strict=True):
        assert torch.equal(getattr(site.mapping, key), value), key
    streams = torch.randn(6, n, DIM)
    assert_near(site(streams), SITES[name](streams, weight, scales, bias, site.branch))


MIDPOINT = [[1 / 2, 1 / 4, 1 / 8, 1 / 8], [1 / 4, 3 / 8, 3 / 16, 3 / 16], [1 / 8, 3 / 16, 11 / 32, 11 / 32], [1 / 8, 3 / 16, 11 / 32, 11 / 32]]  # fmt: skip
EYE = torch.eye(4)
MEAN = torch.full((4, 4), 0.25)


@pytest.mark.parametrize(
    ("name", "matrix", "digits"),
    [
        ("unconstrained", EYE, 1e-7),
        ("identity", EYE, 1e-7),
        ("sinkhorn", 0.99866 * EYE + 0.000335 * 4 * MEAN, 1e-5),
        ("permutation", None, 5e-4),
        ("spectral-sphere", 0.9993 * EYE + 0.0007 * MEAN, 5e-5),
        ("kronecker", None, 5e-5),
        ("orthogonal", EYE, 1e-7),
        ("quaternion", EYE, 1e-7),
        ("circulant", 5 / 6 * EYE + 1 / 6 * MEAN, 1e-6),
        ("orthostochastic", EYE, 1e-7),
        ("transport", torch.tensor(MIDPOINT), 1e-6),
    ],
)
def test_published_starts_of_the_matrix(name, matrix, digits):
    """The table of start values; where it gives the diagonal only, the diagonal."""
    start = hc.HyperConnection(DIM, 4, constraint=name, init="paper").residual_matrix()
    if matrix is not None:
        torch.testing.assert_close(start, matrix, atol=digits, rtol=0)
    else:
        diagonal = {"permutation": 0.994, "kronecker": 0.9993}[name]
        torch.testing.assert_close(start.diagonal(), torch.full((4,), diagonal), atol=digits, rtol=0)


@pytest.mark.parametrize("name", [name for name in hc.list_constraints() if name != "unconstrained"])
def test_published_gates_of_the_flat_family(name):
    maps = hc.HyperConnection(DIM, 4, constraint=name, layer_index=LAYER, init="paper").static_mappings()
    home = torch.zeros(4)
    home[LAYER % 4] = 1.0
    torch.testing.assert_close(maps.pre, 0.269 + (0.731 - 0.269) * home, atol=5e-4, rtol=0)
    torch.testing.assert_close(maps.post, 0.538 + (1.462 - 0.538) * home, atol=5e-4, rtol=0)
