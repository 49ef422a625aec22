"""Laws over everything that can be combined; hypothesis draws the combinations, and shrinks those that fail."""

from __future__ import annotations

import dataclasses
import itertools

import torch
from claims import CONDITION, assert_claims
from configurations import ALL_SIZES, OPTIONS, Configuration, build
from conftest import supported
from hypothesis import given, settings
from hypothesis import strategies as st
from site_laws import check
from torch import Tensor

import hyperconn as hc
from hyperconn.connection import Carry
from hyperconn.numerics import tolerance

EXAMPLES = settings(max_examples=150)
FEWER = settings(max_examples=60)
LARGEST_LOGIT = 1e4

configurations = st.builds(Configuration, **{name: st.sampled_from(options) for name, options in OPTIONS.items()})
exact_arithmetic = configurations.map(lambda c: dataclasses.replace(c, dtype=torch.float64, autocast=None))
sites = st.sampled_from(supported(sizes=ALL_SIZES))
logits = st.floats(0, LARGEST_LOGIT)
seeds = st.integers(0, 2**16)


@EXAMPLES
@given(configurations)
def test_every_site_keeps_its_promises(configuration):
    check(configuration)


@EXAMPLES
@given(sites, logits, seeds, st.sampled_from([(), (0,), (3,), (2, 0), (2, 3)]), st.sampled_from(OPTIONS["dtype"]))
def test_the_matrix_stays_in_its_set_for_any_coordinates(site, magnitude, seed, leading, dtype):
    constraint = hc.make_constraint(*site)
    torch.manual_seed(seed)
    coordinates = (magnitude * torch.randn(*leading, constraint.num_coordinates, dtype=torch.float64)).to(dtype)
    coordinates = coordinates.clamp(-LARGEST_LOGIT, LARGEST_LOGIT)
    assert_claims(constraint, constraint(coordinates), moderate=magnitude <= 1)


@FEWER
@given(sites, seeds, st.integers(2, 48))
def test_products_through_depth_keep_their_bound(site, seed, depth):
    constraint = hc.make_constraint(*site)
    torch.manual_seed(seed)
    factors = constraint(0.1 * torch.randn(depth, constraint.num_coordinates, dtype=torch.float64))
    product = torch.linalg.multi_dot(list(factors))
    near = depth * CONDITION
    if constraint.nonexpansive:
        assert torch.linalg.matrix_norm(product, 2) <= 1 + near
    if constraint.unit_row_sums:
        assert (product.sum(-1) - 1).abs().max() <= near
    if constraint.unit_column_sums:
        assert (product.sum(-2) - 1).abs().max() <= near
    if constraint.closed_under_product:
        assert constraint.violation(product) <= near


@FEWER
@given(exact_arithmetic)
def test_a_batch_equals_a_loop(configuration):
    connection, _, streams = build(configuration)
    together = connection(streams).flatten(0, -3) if configuration.leading else connection(streams)[None]
    rows = streams.reshape(-1, *streams.shape[-2:])
    size = configuration.streams * configuration.dim
    for row, expected in zip(rows, together, strict=True):
        error = (connection(row) - expected).abs().max()
        assert error <= 1e3 * tolerance(torch.float64, size) * expected.abs().max().clamp_min(1)


@FEWER
@given(configurations, seeds)
def test_a_token_never_influences_another(configuration, seed):
    configuration = dataclasses.replace(configuration, leading=(2, 2), layout="contiguous")
    connection, leaf, streams = build(configuration)
    output = connection(streams)
    chosen = divmod(seed % 4, 2)
    (output[chosen] * torch.randn_like(output[chosen])).sum().backward()
    for token in itertools.product(range(2), repeat=2):
        assert token == chosen or not leaf.grad[token].any()


@FEWER
@given(configurations, st.sampled_from([float("nan"), float("inf"), -float("inf")]))
def test_a_spoilt_token_spoils_only_itself(configuration, poison):
    configuration = dataclasses.replace(configuration, leading=(3,), layout="contiguous")
    connection, _, streams = build(configuration)
    spoilt = streams.detach().clone()
    spoilt[1, -1, 0] = poison
    spoilt.requires_grad_()
    expected, got = connection(streams), connection(spoilt)
    assert torch.equal(got[::2], expected[::2])
    got[::2].sum().backward()
    assert spoilt.grad[::2].isfinite().all()


@FEWER
@given(exact_arithmetic, seeds)
def test_permuting_streams_and_maps_permutes_the_result(configuration, seed):
    connection, _, streams = build(configuration)
    order = torch.randperm(configuration.streams, generator=torch.Generator().manual_seed(seed))
    pre, post, res = connection.mappings(streams)
    moved = streams[..., order, :]
    branch_input = hc.functional.read(moved, pre[..., order])
    one = configuration.streams == 1
    carry = Carry(moved, None if one else post[..., order], None if one else res[..., order, :][..., order])
    got = connection.write(connection.branch(branch_input), carry)
    assert_near(got, connection(streams)[..., order, :], configuration)


@FEWER
@given(exact_arithmetic, seeds, st.sampled_from([("unconstrained", n) for n in range(2, 7)]), st.booleans())
def test_permuting_streams_and_weights_permutes_the_result(configuration, seed, site, per_stream):
    mapping = "per-stream" if per_stream else "flat"
    configuration = dataclasses.replace(
        configuration, site=site, mapping=mapping, logits=min(configuration.logits, 1)
    )
    connection, _, streams = build(configuration)
    order = torch.randperm(site[1], generator=torch.Generator().manual_seed(seed))
    expected = connection(streams)[..., order, :]
    permute_parameters(connection.mapping, order, per_stream)
    assert_near(connection(streams[..., order, :]), expected, configuration)


def permute_parameters(mapping, order: Tensor, per_stream: bool) -> None:
    """Move every logit, and every column that reads a stream, to the place of its stream."""
    n = len(order)
    entries = (order[:, None] * n + order).flatten()
    logits = torch.cat([order, n + order, 2 * n + entries])
    with torch.no_grad():
        mapping.bias.copy_(mapping.bias[logits])
        if per_stream:
            mapping.weight.copy_(mapping.weight[torch.cat([torch.tensor([0, 1]), 2 + order])])
        else:
            columns = mapping.weight.unflatten(-1, (n, -1))[:, order].flatten(1)
            mapping.weight.copy_(columns[logits])


def assert_near(got: Tensor, expected: Tensor, configuration: Configuration) -> None:
    if got.numel():
        size = configuration.streams * configuration.dim
        bound = 1e3 * tolerance(torch.float64, size) * (1 + configuration.logits) * expected.abs().max().clamp_min(1)
        assert (got - expected).abs().max() <= bound
