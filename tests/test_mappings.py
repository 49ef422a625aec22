"""Mappings against their formulas, written out token by token."""

from __future__ import annotations

import pytest
import torch
from conftest import supported

import hyperconn as hc
from hyperconn.gates import LinearGates, SigmoidGates
from hyperconn.mappings import FlatMapping, PerStreamMapping, StaticMapping


def mapping_of(constraint, kind, n=3, dim=5):
    mapping = hc.HyperConnection(dim, n, constraint=constraint, mapping=kind).mapping.double()
    with torch.no_grad():
        for parameter in mapping.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return mapping


def test_flat_is_its_formula():
    mapping = mapping_of("shc", "flat")
    sizes = (3, 3, 1, 1, 2)
    assert mapping.group_sizes == sizes
    streams = torch.randn(4, 3, 5, dtype=torch.float64)
    pre, post, coordinates, _ = mapping(streams)
    for t in range(4):
        v = torch.cat([streams[t, s] for s in range(3)])
        m = mapping.weight @ (v / (v.square().mean() + 1e-6).sqrt())
        groups = zip(m.split(sizes), mapping.scale, mapping.bias.split(sizes), strict=True)
        logits = torch.cat([scale * raw + bias for raw, scale, bias in groups])
        torch.testing.assert_close(pre[t], 1 / (1 + (-logits[:3]).exp()))
        torch.testing.assert_close(post[t], 2 / (1 + (-logits[3:6]).exp()))
        torch.testing.assert_close(coordinates[t], logits[6:])


def test_per_stream_is_its_formula():
    mapping = mapping_of("hc", "per-stream")
    streams = torch.randn(4, 3, 5, dtype=torch.float64)
    pre, post, coordinates, _ = mapping(streams)
    a, b, matrix = mapping.bias[:3], mapping.bias[3:6], mapping.bias[6:].view(3, 3)
    for token in range(4):
        for s in range(3):
            x = streams[token, s]
            unit = x / (x.square().mean() + 1e-6).sqrt()
            torch.testing.assert_close(pre[token, s], a[s] + mapping.scale[0] * torch.tanh(unit @ mapping.weight[0]))
            torch.testing.assert_close(post[token, s], b[s] + mapping.scale[1] * torch.tanh(unit @ mapping.weight[1]))
            for t in range(3):
                expected = matrix[t, s] + mapping.scale[2] * torch.tanh(unit @ mapping.weight[2 + t])
                torch.testing.assert_close(coordinates[token].view(3, 3)[t, s], expected)


@pytest.mark.parametrize(("name", "n"), supported(sizes=(2, 3, 4)))
def test_per_stream_gives_every_constraint_its_coordinates(name, n):
    mapping = mapping_of(name, "per-stream", n)
    coordinates = mapping(torch.randn(4, n, 5, dtype=torch.float64)).coordinates
    k = hc.make_constraint(name, n).num_coordinates
    assert coordinates.shape == (4, k)
    assert mapping.weight.shape == (2 + -(-k // n), 5)


def test_static_ignores_the_streams():
    mapping = mapping_of("mhc", "static")
    assert isinstance(mapping, StaticMapping)
    assert [name for name, _ in mapping.named_parameters()] == ["bias"]
    assert mapping(torch.randn(4, 3, 5)).coordinates.shape == (9,)


def test_the_constraint_chooses_its_own_mapping_and_the_static_one_keeps_its_gates():
    own = {name: hc.HyperConnection(8, 4, constraint=name).mapping for name in ("hc", "mhc", "shc")}
    assert isinstance(own["hc"], PerStreamMapping)
    assert isinstance(own["hc"].gates, LinearGates)
    assert isinstance(own["mhc"], FlatMapping)
    assert isinstance(own["shc"].gates, SigmoidGates)
    assert isinstance(hc.HyperConnection(8, 4, constraint="hc", mapping="static").mapping.gates, LinearGates)
    assert isinstance(hc.HyperConnection(8, 4, constraint="mhc", mapping="static").mapping.gates, SigmoidGates)


def test_scales_start_at_a_hundredth_and_weights_at_zero():
    for kind in ("flat", "per-stream"):
        mapping = hc.HyperConnection(8, 4, constraint="shc", mapping=kind).mapping
        assert torch.equal(mapping.scale, torch.full((5,), 0.01))
        assert not mapping.weight.any()


@pytest.mark.parametrize("logit", [-1e4, -50.0, 0.0, 50.0, 1e4])
def test_gates_stay_in_their_ranges(logit):
    gates = SigmoidGates()
    logits = torch.full((4,), logit)
    assert ((gates.pre(logits) >= 0) & (gates.pre(logits) <= 1)).all()
    assert ((gates.post(logits) >= 0) & (gates.post(logits) <= 2)).all()
    for value in (gates.pre(torch.randn(100)), gates.post(torch.randn(100)) / 2):
        assert ((value > 0) & (value < 1)).all()


def test_epsilons_and_magnitude_of_other_families():
    gates, logits = SigmoidGates(pre_epsilon=1e-6, post_epsilon=1e-3, magnitude=3.0), torch.randn(4)
    torch.testing.assert_close(gates.pre(logits), logits.sigmoid() + 1e-6)
    torch.testing.assert_close(gates.post(logits), 3 * logits.sigmoid() + 1e-3)
    pre, post = gates.start(4, 1, "residual")
    torch.testing.assert_close(gates.pre(pre).sum(), torch.tensor(1.0))
    torch.testing.assert_close(gates.post(post), torch.ones(4))


def test_a_start_of_the_wrong_length_is_refused():
    with pytest.raises(ValueError, match=r"FlatMapping\(dim=8, streams=2\): expected a start of 8 values"):
        FlatMapping(8, 2, (4,), torch.zeros(7))
