"""The streams layer by layer, as a probe reads them."""

from __future__ import annotations

import pytest
import torch
from conftest import branch
from torch import nn

import hyperconn as hc


def trained(**options):
    model = hc.HyperStack([branch(8) for _ in range(3)], 8, 4, **options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def test_layers_are_what_happened():
    model, x = trained(constraint="shc"), torch.randn(2, 5, 8)
    with hc.collapsed_view(model) as layers:
        model(x)
    streams = model.expand(x)
    assert [layer.name for layer in layers] == ["connections.0", "connections.1", "connections.2"]
    for layer, connection in zip(layers, model.connections, strict=True):
        pre, post, res = connection.mappings(streams)
        y = connection.branch((pre.unsqueeze(-1) * streams).sum(-2))
        torch.testing.assert_close(layer.streams, streams)
        torch.testing.assert_close(layer.collapsed, streams.mean(-2))
        torch.testing.assert_close(layer.branch_output, y, rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(layer.written, post.unsqueeze(-1) * y.unsqueeze(-2), rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(layer.mixed, res @ streams, rtol=1e-4, atol=1e-5)
        streams = connection(streams)
        torch.testing.assert_close(layer.streams_after, streams)


@pytest.mark.parametrize("retraction", [None, "projection"])
def test_outputs_and_gradients_stay_bit_identical_and_everything_is_undone(retraction):
    model, x = trained(retraction=retraction), torch.randn(2, 8)
    results = []
    for watching in (False, True):
        model.zero_grad()
        if watching:
            with hc.collapsed_view(model, lambda layer: None) as layers:
                out = model(x)
            assert layers == []
        else:
            out = model(x)
        out.sum().backward()
        results.append([out, *(p.grad.clone() for p in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))
    assert not any("write" in vars(c) for c in model.connections)


def test_a_callback_gets_layers_one_by_one_with_the_collapse_of_the_model():
    model, seen = trained(collapse="learned"), []
    with hc.collapsed_view(model, seen.append, collapse=model.collapse):
        out = model(torch.randn(2, 8))
    torch.testing.assert_close(model.collapse(seen[-1].streams_after), out)
    assert not any(tensor.requires_grad for layer in seen for tensor in layer[1:])


def test_what_is_written_through_a_retraction_is_scaled():
    model = trained(retraction="cayley")
    with hc.collapsed_view(model) as layers:
        model(torch.randn(2, 8))
    scaled = model.connections[0].retraction.scale_branch(layers[0].branch_output)
    assert layers[0].written.norm(dim=-1).mean() == pytest.approx(scaled.norm(dim=-1).mean().item(), rel=0.2)


def test_fractions_and_single_streams_are_seen():
    model = nn.Sequential(
        hc.FractionalConnection(8, 2, 2, nn.Identity()), hc.FractionalConnection(8, 2, 2, nn.Identity())
    )
    x = torch.randn(3, 2, 8)
    with hc.collapsed_view(model) as layers:
        model(x)
    torch.testing.assert_close(layers[0].streams, x)
    post, parts = model[0].mappings(x).post, layers[0].branch_output.unflatten(-1, (2, 4))
    written = torch.einsum("tmj,tmc->tjc", post, parts).reshape(3, 2, 8)
    torch.testing.assert_close(layers[0].written, written)
    single = hc.HyperStack([branch(8)], 8, 1)
    with hc.collapsed_view(single) as layers:
        out = single(x)
    torch.testing.assert_close(layers[0].streams_after.squeeze(-2), out)


def test_a_model_without_connections_is_refused():
    with (
        pytest.raises(ValueError, match="collapsed_view: Linear contains no HyperConnection"),
        hc.collapsed_view(nn.Linear(2, 2)),
    ):
        pass
