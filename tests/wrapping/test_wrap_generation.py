"""Generation: with and without cache, with left padding, token by token."""

from __future__ import annotations

import pytest
import torch
from conftest import supported
from tiny_models import DECODERS, make, perturb, tokens

import hyperconn as hc

LEVELS = ("block", "sublayer")


def generate(model, cache=True, **inputs):
    return model.generate(**inputs, max_new_tokens=4, do_sample=False, use_cache=cache)


@pytest.mark.parametrize(("name", "streams"), supported(sizes=(1, 2, 4)))
@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("family", DECODERS)
@torch.no_grad()
def test_greedy_generation(family, level, name, streams):
    """At step 0 as before wrapping; after it has moved, the same with and without cache and padding."""
    inputs = tokens()
    model = make(family)
    expected = generate(model, **inputs)
    hc.wrap(model, streams, constraint=name, level=level)
    assert torch.equal(generate(model, **inputs), expected)
    perturb(model)
    cached = generate(model, **inputs)
    assert torch.equal(cached, generate(model, cache=False, **inputs))
    unpadded = generate(model, input_ids=inputs["input_ids"][:1, 3:])
    assert torch.equal(cached[:1, 3:], unpadded)


@pytest.mark.parametrize("retraction", [None, "projection", "exponential"])
@pytest.mark.parametrize("name", hc.list_constraints())
@pytest.mark.parametrize("level", LEVELS)
@torch.no_grad()
def test_decoding_token_by_token_equals_the_full_pass(level, name, retraction):
    model = perturb(hc.wrap(make("llama"), 4, constraint=name, level=level, retraction=retraction))
    ids = torch.randint(3, 40, (2, 6))
    full = model(ids).logits
    cache, steps = None, []
    for position in range(ids.shape[1]):
        output = model(ids[:, position : position + 1], cache=cache, use_cache=True)
        cache = output.cache
        steps.append(output.logits)
    torch.testing.assert_close(torch.cat(steps, 1), full, rtol=1e-5, atol=2e-5)


@torch.no_grad()
def test_generation_differs_once_the_connections_have_moved():
    inputs = tokens()
    model = make("llama")
    before = generate(model, **inputs)
    assert not torch.equal(generate(perturb(hc.wrap(model, 4), scale=1.0), **inputs), before)
