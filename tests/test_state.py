"""Copies, checkpoints, the meta device, foreign initialisation loops, and parameter groups."""

from __future__ import annotations

import copy
import io
import pickle

import pytest
import torch
from conftest import branch, supported
from torch import nn

import hyperconn as hc


def stack_of(name="shc", n=4, **options):
    torch.manual_seed(1)
    return hc.HyperStack([branch(8) for _ in range(3)], 8, n, constraint=name, **options)


def perturbed(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return module


def bytes_of(state):
    buffer = io.BytesIO()
    torch.save(state, buffer)
    buffer.seek(0)
    return buffer


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 3, 4)))
@pytest.mark.parametrize(
    "options", [{}, {"retraction": "cayley", "collapse": "learned", "mapping": "static"}], ids=str
)
def test_copies_and_round_trips_are_bit_equal(name, n, options):
    stack, x = perturbed(stack_of(name, n, **options)), torch.randn(5, 8)
    expected = stack(x)
    loaded = stack_of(name, n, **options)
    loaded.load_state_dict(torch.load(bytes_of(stack.state_dict()), weights_only=True), strict=True)
    for twin in (copy.deepcopy(stack), pickle.loads(pickle.dumps(stack)), loaded):
        assert torch.equal(twin(x), expected)


@pytest.mark.parametrize(
    ("theirs", "ours", "message"),
    [
        (
            {"name": "mhc"},
            {"name": "hc"},
            r"made with constraint \{.*'sinkhorn'.*\(this model: .*'unconstrained'",
        ),
        ({"name": "shc", "n": 4}, {"name": "shc", "n": 2}, r"streams 4 \(this model: 2\)"),
        ({"mapping": "flat"}, {"mapping": "static"}, r"mapping .*'flat'.*\(this model: .*'static'"),
        ({"retraction": 1.0}, {"retraction": 2.0}, r"retraction .*1.0.*\(this model: .*2.0"),
        ({"retraction": 1.0}, {}, r"retraction .*\(this model: None\)"),
        (
            {"name": hc.constraints.Sinkhorn(4, iterations=5)},
            {"name": "mhc"},
            r"'iterations': 5.*'iterations': 20",
        ),
    ],
)
def test_the_state_of_another_kind_is_refused_with_both_names(theirs, ours, message):
    target = stack_of(**ours)
    before = copy.deepcopy(target.state_dict())
    with pytest.raises(ValueError, match=message):
        target.load_state_dict(perturbed(stack_of(**theirs)).state_dict(), strict=False)
    assert all(torch.equal(tensor, before[name]) for name, tensor in target.state_dict().items())


def test_an_unreadable_description_is_refused():
    state = stack_of().state_dict()
    state["connections.0._extra_state"] = torch.tensor([255, 1, 2], dtype=torch.uint8)
    with pytest.raises(ValueError, match="unreadable description"):
        stack_of().load_state_dict(state)


@pytest.mark.parametrize(("name", "n"), supported(sizes=(1, 4)))
def test_meta_device_then_reset_equals_an_ordinary_build(name, n):
    options = {"retraction": "projection", "collapse": "learned"}
    with torch.device("meta"):
        late = stack_of(name, n, **options)
    late = late.to_empty(device="cpu")
    with torch.no_grad():
        for tensor in (*late.parameters(), *late.buffers()):
            tensor.fill_(1e30 if tensor.is_floating_point() else 1)
    torch.manual_seed(3)
    for module in late.modules():
        if hasattr(module, "reset_parameters"):
            module.reset_parameters()
    ordinary = stack_of(name, n, **options)
    torch.manual_seed(3)
    for module in ordinary.modules():
        if isinstance(module, (nn.Linear, nn.LayerNorm)):
            module.reset_parameters()
    x = torch.randn(4, 8)
    assert torch.equal(late(x), ordinary(x))


@pytest.mark.parametrize(("name", "n"), supported(sizes=(4,)))
def test_a_foreign_loop_over_linears_does_not_disturb_the_start(name, n):
    stack = stack_of(name, n)
    stack.apply(lambda m: nn.init.normal_(m.weight, std=0.5) if isinstance(m, nn.Linear) else None)
    x = torch.randn(5, 8)
    expected = x
    for connection in stack.connections:
        expected = expected + connection.branch(expected)
    torch.testing.assert_close(stack(x), expected, rtol=2e-5, atol=2e-5)
    assert not any(isinstance(m, nn.Linear) for c in stack.connections for m in c.mapping.modules())


def test_parameter_groups_hold_every_parameter_once_and_never_decay_static_ones():
    shared = branch(8)
    model = nn.ModuleDict(
        {
            "embed": nn.Embedding(10, 8),
            "stack": hc.HyperStack(
                [shared, shared], 8, constraint="shc", retraction="projection", collapse="learned"
            ),
            "head": nn.Linear(8, 10, bias=False),
        }
    )
    model["head"].weight = model["embed"].weight
    groups = hc.parameter_groups(model, 0.1)
    members = [id(p) for group in groups for p in group["params"]]
    assert sorted(members) == sorted(id(p) for p in model.parameters())
    decay = {id(p): g["weight_decay"] for g in groups for p in g["params"]}
    connection = {id(p): g["connection"] for g in groups for p in g["params"]}
    for name, parameter in model.named_parameters():
        of_connection = ".mapping." in name or "constraint" in name or "raw_step" in name or "collapse" in name
        static = name.endswith((".bias", ".scale", ".angle_bound", ".raw_step"))
        assert connection[id(parameter)] == of_connection == getattr(parameter, "is_connection", False), name
        assert decay[id(parameter)] == (0.0 if static or parameter.dim() < 2 else 0.1), name
        if of_connection:
            assert parameter.no_weight_decay == static, name
    torch.optim.AdamW(groups, lr=1e-3)
    with pytest.raises(ValueError, match="expected weight_decay >= 0, got -1"):
        hc.parameter_groups(model, -1)


def test_marks_survive_copies_and_moves():
    stack = copy.deepcopy(pickle.loads(pickle.dumps(stack_of()))).double().float()
    with torch.device("meta"):
        late = stack_of()
    for mapping in (stack.connections[0].mapping, late.to_empty(device="cpu").connections[0].mapping):
        assert mapping.bias.no_weight_decay
        assert not mapping.weight.no_weight_decay
        assert mapping.weight.is_connection


def test_scales_are_learned():
    connection = hc.HyperConnection(8, 4, branch(8))
    with torch.no_grad():
        connection.mapping.weight.normal_()
    connection(torch.randn(3, 4, 8)).square().sum().backward()
    assert (connection.mapping.scale.grad != 0).all()
