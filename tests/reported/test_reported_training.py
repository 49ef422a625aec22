"""Reported of training: blow-ups, unused parameters, kept graphs, recomputation, state on the side, half-precision steps."""

from __future__ import annotations

import copy

import pytest
import torch
from claims import assert_claims
from conftest import branch, relative_error
from reported_sites import Operations, every_constraint, every_mapping, moved
from torch import nn
from torch.autograd.graph import saved_tensors_hooks
from torch.utils.checkpoint import checkpoint

import hyperconn as hc

SYNCHRONISING = {"_local_scalar_dense", "item", "nonzero", "masked_select", "is_nonzero", "equal", "unique_dim"}
retractions = pytest.mark.parametrize("retraction", [None, "projection"])


class Attention(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.norm, self.qkv, self.out = nn.LayerNorm(dim), nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

    def forward(self, x):
        return self.out(nn.functional.scaled_dot_product_attention(*self.qkv(self.norm(x)).chunk(3, -1)))


class TinyVision(nn.Module):
    """Images of 4 × 4 pixels in four patches, one block, three classes."""

    def __init__(self, constraint, dim=8):
        super().__init__()
        mlp = nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, 4 * dim), nn.GELU(), nn.Linear(4 * dim, dim))
        self.embed = nn.Linear(4, dim)
        self.stack = hc.HyperStack([Attention(dim), mlp], dim, 4, constraint=constraint)
        self.head = nn.Linear(dim, 3)

    def forward(self, images):
        return self.head(self.stack(self.embed(images)).mean(-2))


@every_constraint
def test_five_hundred_steps_of_a_tiny_vision_model_stay_finite(name):
    model = TinyVision(name)
    optimizer = torch.optim.AdamW(hc.parameter_groups(model, 0.1), lr=3e-3, fused=True)
    images, labels = torch.randn(64, 4, 4), torch.randint(3, (64,))
    losses = []
    for step in range(500):
        batch = slice(step % 4 * 16, step % 4 * 16 + 16)
        loss = nn.functional.cross_entropy(model(images[batch]), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    losses = torch.stack(losses)
    assert losses.isfinite().all()
    assert losses[-20:].mean() < 0.1 * losses[:4].mean()  # at convergence, where the reported runs broke
    assert all(p.isfinite().all() for p in model.parameters())
    for connection in model.stack.connections:
        assert_claims(connection.constraint, connection.residual_matrix(torch.randn(16, 4, 8)))


STACKS = {
    "mean": lambda **o: hc.HyperStack(o.pop("branches"), 8, **o),
    "learned": lambda **o: hc.HyperStack(o.pop("branches"), 8, collapse="learned", **o),
    "single pass": lambda **o: hc.SinglePassStack(o.pop("branches"), 8, **o),
}


@pytest.mark.parametrize("kind", STACKS)
@retractions
@every_mapping
@every_constraint
def test_no_parameter_is_left_without_a_gradient(name, mapping, retraction, kind):
    """In a network of one layer the first is the last, and both are in one of two."""
    options = {"constraint": name, "mapping": mapping, "retraction": retraction}
    for depth in (1, 2):
        stack = STACKS[kind](branches=[nn.Linear(8, 8) for _ in range(depth)], **options)
        stack(torch.randn(5, 8)).sum().backward()
        assert [key for key, p in stack.named_parameters() if p.grad is None] == []


class Saved(saved_tensors_hooks):
    """Counts what is saved for a backward pass, and its bytes, each storage once."""

    def __init__(self):
        self.count, self.sizes = 0, {}
        super().__init__(self._pack, lambda tensor: tensor)

    def __enter__(self):
        super().__enter__()
        return self

    def _pack(self, tensor):
        self.count += 1
        self.sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
@retractions
@every_mapping
@every_constraint
def test_nothing_is_saved_where_no_gradient_is_wanted(name, mapping, retraction, mode):
    connection = hc.HyperConnection(8, 4, branch(8), constraint=name, mapping=mapping, retraction=retraction)
    streams = torch.randn(5, 4, 8)
    with Saved() as saved:
        with mode():
            output, matrix = connection(streams), connection.residual_matrix(streams)
        assert saved.count == 0
        assert not output.requires_grad and not matrix.requires_grad
        assert connection(streams).requires_grad and saved.count > 0


@every_constraint
def test_recomputation_keeps_less(name):
    """Between layers nothing but streams is kept."""
    stack = moved(hc.HyperStack([branch(32) for _ in range(4)], 32, 4, constraint=name))
    x = torch.randn(64, 32, requires_grad=True)
    kept = []
    for recomputed in (False, True):
        with Saved() as saved:
            streams = stack.expand(x)
            for connection in stack.connections:
                streams = checkpoint(connection, streams, use_reentrant=False) if recomputed else connection(streams)
        kept.append(sum(saved.sizes.values()))
    assert kept[1] <= 5 * streams.numel() * 4 < kept[0]


class Optional(nn.Module):
    """A sublayer with arguments that are no tensors."""

    def __init__(self):
        super().__init__()
        self.inner = branch(8)

    def forward(self, x, mask=None, negate=False, power=1, *, cache=None, scale=True):
        y = self.inner(x) if mask is None else mask * self.inner(x)
        y = (-y if negate else y) ** power
        return 2 * y if scale and cache is None else y


@pytest.mark.parametrize("reentrant", [False, True])
@retractions
@every_constraint
def test_recomputation_with_arguments_that_are_no_tensors(name, retraction, reentrant):
    connection = moved(hc.HyperConnection(8, 4, Optional(), constraint=name, retraction=retraction), 0.1)
    keywords = {"cache": None, "scale": True}
    results = []
    for recomputed in (False, True):
        connection.zero_grad()
        streams = torch.linspace(-1, 1, 160).sin().view(5, 4, 8).requires_grad_()
        if not recomputed:
            out = connection(streams, None, True, 3, **keywords)
        elif reentrant:  # which takes no keywords of its own
            out = checkpoint(lambda s, *a: connection(s, *a, **keywords), streams, None, True, 3, use_reentrant=True)
        else:
            out = checkpoint(connection, streams, None, True, 3, use_reentrant=False, **keywords)
        out.square().sum().backward()
        results.append([streams.grad, *(p.grad.clone() for p in connection.parameters())])
    for plain, again in zip(*results, strict=True):
        torch.testing.assert_close(again, plain, rtol=0, atol=1e-6)


@retractions
@every_mapping
@every_constraint
def test_nothing_waits_for_the_device(name, mapping, retraction):
    """Forward and backward ask for no value: a captured graph or a fake tensor has none."""
    connection = moved(hc.HyperConnection(8, 4, branch(8), constraint=name, mapping=mapping, retraction=retraction))
    streams = torch.randn(5, 4, 8, requires_grad=True)
    with Operations() as operations:
        connection(streams).sum().backward()
    assert len(operations.names) > 10
    assert not SYNCHRONISING & set(operations.names)


@retractions
@every_mapping
@every_constraint
def test_nothing_stays_on_a_module_after_a_call(name, mapping, retraction):
    """All that the next layer needs is in the stream tensor: no call leaves anything behind."""
    connection = hc.HyperConnection(8, 4, branch(8), constraint=name, mapping=mapping, retraction=retraction)
    moved(connection)
    before = [{key: id(value) for key, value in vars(part).items()} for part in connection.modules()]
    buffers = {key: value.clone() for key, value in connection.named_buffers()}
    streams, others = torch.randn(2, 5, 4, 8)
    expected = connection(streams).detach()
    connection(others).sum().backward()
    assert torch.equal(connection(streams), expected)
    assert [{key: id(value) for key, value in vars(part).items()} for part in connection.modules()] == before
    assert all(torch.equal(value, buffers[key]) for key, value in connection.named_buffers())


def gradients(stack, batches):
    stack.zero_grad()
    for x, weight in batches:
        (stack(x).square().mean() * weight).backward()
    return [p.grad.clone() for p in stack.parameters()]


@retractions
@every_mapping
@every_constraint
def test_four_micro_batches_are_one_batch(name, mapping, retraction):
    stack = hc.HyperStack(
        [branch(8) for _ in range(2)], 8, 4, constraint=name, mapping=mapping, retraction=retraction
    )
    moved(stack, 0.1)
    x = torch.randn(16, 8)
    whole = gradients(stack, [(x, 1.0)])
    parts = gradients(stack, [(part, 0.25) for part in x.chunk(4)])
    for one, four in zip(whole, parts, strict=True):
        torch.testing.assert_close(four, one, rtol=2e-5, atol=1e-6)


@every_constraint
def test_fifty_scaled_steps_in_fp16_skip_none_after_the_warm_up(name):
    stack = hc.HyperStack([branch(8)], 8, 4, constraint=name, retraction="projection")
    optimizer = torch.optim.AdamW(hc.parameter_groups(stack, 0.1), lr=1e-2, fused=True)
    scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=1000)
    x, target = torch.randn(64, 8), torch.randn(64, 8)
    scales, losses = [], []
    for _ in range(50):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.float16):
            loss = (stack(x) - target).square().mean()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        scales.append(scaler.get_scale())
        losses.append(loss.item())
    assert len(set(scales[10:])) == 1, "a step was skipped because a gradient overflowed"
    assert losses[-1] < 0.9 * losses[0]
    twin = copy.deepcopy(stack)
    with torch.autocast("cpu", dtype=torch.float16):
        assert relative_error(stack(x), twin.double()(x.double()).float()) < 1e-2
