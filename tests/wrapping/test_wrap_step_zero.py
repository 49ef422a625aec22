"""Wrapping does not change the function at step 0, and training does, for every family, level, constraint and n."""

from __future__ import annotations

import pytest
import torch
from conftest import relative_error, supported
from tiny_models import LEVELS, connection_parameters, make, run

import hyperconn as hc

CASES = supported(sizes=(1, 2, 4))


@pytest.mark.parametrize(("name", "streams"), CASES)
@pytest.mark.parametrize(("family", "level"), LEVELS)
def test_wrapped_model_is_the_unwrapped_one_at_step_zero(family, level, name, streams):
    model = make(family)
    with torch.no_grad():
        expected = run(model, family)
        got = run(hc.wrap(model, streams, constraint=name, level=level), family)
    if streams == 1:
        assert torch.equal(got, expected)
    assert relative_error(got, expected) <= 1e-5


@pytest.mark.parametrize("name", hc.list_constraints())
@pytest.mark.parametrize(("family", "level"), LEVELS)
def test_training_the_connections_alone_changes_the_function(family, level, name):
    model = make(family).requires_grad_(False)
    expected = run(model, family)
    hc.wrap(model, 4, constraint=name, level=level)
    frozen = {key: p.clone() for key, p in model.named_parameters() if not p.requires_grad}
    optimizer = torch.optim.AdamW(connection_parameters(model), lr=0.05)
    for _ in range(3):
        optimizer.zero_grad()
        run(model, family).square().mean().backward()
        optimizer.step()
    assert relative_error(run(model, family), expected) > 1e-3
    assert frozen
    assert all(torch.equal(p, frozen[key]) for key, p in model.named_parameters() if not p.requires_grad)


@pytest.mark.parametrize(("family", "level"), LEVELS)
def test_every_connection_parameter_gets_a_gradient(family, level):
    model = hc.wrap(make(family), 4, level=level, retraction="cayley", collapse="learned")
    run(model, family).square().mean().backward()
    assert all(parameter.grad is not None for parameter in connection_parameters(model))


@pytest.mark.parametrize(("family", "level"), LEVELS)
def test_retraction_at_step_zero_is_the_single_stream_network_with_the_same_retraction(family, level):
    single = hc.wrap(make(family), 1, level=level, retraction="projection")
    several = hc.wrap(make(family), 4, level=level, retraction="projection")
    with torch.no_grad():
        assert relative_error(run(several, family), run(single, family)) <= 1e-5
        assert relative_error(run(several, family), run(make(family), family)) > 1e-2
