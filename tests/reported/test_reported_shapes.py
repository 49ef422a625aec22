"""Reported of shapes and of what a branch takes and gives: context, arguments, no tokens, odd n, a forgotten expansion."""

from __future__ import annotations

import pickle

import pytest
import torch
from claims import assert_claims
from conftest import branch, relative_error, supported
from reported_sites import every_constraint, every_mapping, moved, plain
from torch import nn

import hyperconn as hc


class CrossAttention(nn.Module):
    """Reads one stream of context, under a mask, with rotated positions."""

    def __init__(self, dim=8):
        super().__init__()
        self.norm, self.attention = nn.LayerNorm(dim), nn.MultiheadAttention(dim, 2, batch_first=True)

    def forward(self, x, context, *, mask, angles):
        query = self.norm(x)
        turned = query * angles.cos() + query.roll(1, -1) * angles.sin()
        return self.attention(turned, context, context, attn_mask=mask, need_weights=False)[0]


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 2, 4)))
def test_context_mask_and_rotations_reach_cross_attention_as_single_streams(name, n):
    blocks = [CrossAttention() for _ in range(3)]
    x, context = torch.randn(2, 5, 8), torch.randn(2, 7, 8)
    options = {"mask": torch.rand(5, 7) > 0.7, "angles": torch.randn(5, 8)}
    options["mask"][:, 0] = False
    stack = hc.HyperStack(blocks, 8, n, constraint=name)
    expected = plain(blocks, x, context, **options)
    assert relative_error(stack(x, context, **options), expected) <= 2e-5
    assert relative_error(plain(blocks, x, context, mask=None, angles=options["angles"]), expected) > 1e-3


class Recorder(nn.Module):
    """Keeps what it was given beside its inputs, and puts out a tensor of another width if asked."""

    def __init__(self, inputs=1, width=8):
        super().__init__()
        self.inputs, self.width = inputs, width

    def forward(self, *args, **kwargs):
        self.seen = args[self.inputs :], kwargs
        return args[0][..., : self.width]


class Narrow(nn.Module):
    def forward(self, x):
        return x[..., :6]


CONNECTIONS = {
    "connection": (lambda r, n: hc.HyperConnection(8, n, r), Recorder),
    "fractions": (lambda r, n: hc.FractionalConnection(8, n, 2, r), Recorder),
    "reads": (lambda r, n: hc.ExtraReads(hc.HyperConnection(8, n, r), 2), lambda: Recorder(3)),
    "resizing": (lambda r, n: hc.ResizingConnection(8, 6, n, r, transform=Narrow()), lambda: Recorder(1, 6)),
}
ALONE = {
    **CONNECTIONS,
    "stack": (lambda r, n: hc.HyperStack([r], 8, n), Recorder),
    "single pass": (lambda r, n: hc.SinglePassStack([r], 8, n), Recorder),
}


@pytest.mark.parametrize("n", [1, 4])
@pytest.mark.parametrize("kind", ALONE)
def test_every_kind_of_connection_hands_arguments_on_untouched(kind, n):
    build, make_recorder = ALONE[kind]
    recorder = make_recorder()
    args, kwargs = (
        (torch.ones(3, 3).bool(), None, 7, object()),
        {"mask": torch.ones(2), "causal": False, "cache": None},
    )
    shape = (3, 8) if kind in ("stack", "single pass") else (3, n, 8)
    build(recorder, n)(torch.randn(shape), *args, **kwargs)
    assert all(got is given for got, given in zip(recorder.seen[0], args, strict=True))
    assert recorder.seen[1].keys() == kwargs.keys()
    assert all(recorder.seen[1][key] is value for key, value in kwargs.items())


@pytest.mark.parametrize("retraction", [None, "projection"])
@every_mapping
@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 2, 4)))
def test_no_tokens_run_forward_and_backward(name, n, mapping, retraction):
    stack = hc.HyperStack([nn.Linear(8, 8)], 8, n, constraint=name, mapping=mapping, retraction=retraction, collapse="learned")  # fmt: skip
    moved(stack)
    for leading in ((0,), (0, 5), (3, 0)):
        stack.zero_grad()
        x = torch.randn(*leading, 8, requires_grad=True)
        out = stack(x)
        out.sum().backward()
        assert out.shape == x.shape == x.grad.shape
        for key, parameter in stack.named_parameters():
            assert parameter.grad is not None, key
            assert torch.equal(parameter.grad, torch.zeros_like(parameter)), key


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 7, 8, 11, 12, 13, 16])
@every_constraint
def test_every_number_of_streams_works_or_is_refused_when_built(name, n):
    reason = hc.constraints.constraint_class(name).unsupported(n)
    if reason is not None:
        with pytest.raises(ValueError, match=rf"\(streams={n}\): expected .*\. Use '?\w") as raised:
            hc.HyperConnection(8, n, branch(8), constraint=name)
        assert reason in str(raised.value)
        return
    connection = hc.HyperConnection(8, n, branch(8), constraint=name)
    connection = connection if n == 1 else moved(connection)
    streams = torch.randn(5, n, 8, requires_grad=True)
    out = connection(streams)
    out.square().sum().backward()
    assert out.shape == (5, n, 8)
    assert all(p.grad.isfinite().all() for p in (streams, *connection.parameters()))
    assert_claims(connection.constraint, connection.residual_matrix(streams))


def test_which_numbers_of_streams_are_refused():
    """More than seven permuted at once, and quaternions of other than four streams; nothing else."""
    refused = {name: [n for n in range(1, 17) if not fits(name, n)] for name in hc.list_constraints()}
    expected = {name: [] for name in refused}
    expected["permutation"] = list(range(8, 17))
    expected["kronecker"] = [11, 13]
    expected["quaternion"] = [n for n in range(2, 17) if n != 4]
    assert refused == expected


def fits(name, n):
    return hc.constraints.constraint_class(name).unsupported(n) is None


@every_constraint
def test_a_sequential_network_prints_and_pickles(name):
    parts = [hc.HyperConnection(8, 4, branch(8), constraint=name, layer_index=i) for i in range(3)]
    network = moved(nn.Sequential(hc.Expand(4), *parts, hc.Collapse("learned", dim=8, streams=4)))
    x = torch.randn(5, 8)
    twin = pickle.loads(pickle.dumps(network))
    assert torch.equal(twin(x), network(x))
    assert repr(twin) == repr(network)
    assert repr(network).count(f"(constraint): {type(parts[0].constraint).__name__}(") == 3
    assert "Expand(streams=4)" in repr(network) and "Collapse(" in repr(network)


@pytest.mark.parametrize("shape", [(8,), (4, 8, 8), (16, 8), (8, 16, 8), (4, 4, 16, 8)], ids=str)
@pytest.mark.parametrize("kind", CONNECTIONS)
def test_a_forgotten_expansion_is_named(kind, shape):
    """Also where the batch is a multiple of n. Only a last but one axis of exactly n looks like streams."""
    build, make_recorder = CONNECTIONS[kind]
    with pytest.raises(ValueError, match="Was the input expanded"):
        build(make_recorder(), 4)(torch.randn(shape))


@every_mapping
@every_constraint
def test_a_sample_never_influences_another(name, mapping):
    connection = moved(hc.HyperConnection(3, 4, nn.Tanh(), constraint=name, mapping=mapping))
    jacobian = torch.autograd.functional.jacobian(connection, torch.randn(4, 4, 3))
    for i in range(4):
        for j in range(4):
            assert bool(jacobian[i, :, :, j].any()) == (i == j)
