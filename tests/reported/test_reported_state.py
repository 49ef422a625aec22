"""Reported of construction and state: garbage, tables left behind, new random numbers, groups, names."""

from __future__ import annotations

import ast
import copy
from pathlib import Path

import pytest
import torch
from conftest import branch
from reported_sites import every_constraint, every_mapping, every_small_size, moved
from torch import nn

import hyperconn as hc

PACKAGE = Path(hc.__file__).parent


def everything(name, mapping=None, n=4):
    """One of every kind of part, with and without a retraction."""
    options = {"constraint": name, "mapping": mapping}
    wide = {"unconstrained", "identity"} | {c for c in hc.list_constraints() if fits(c, 2 * n)}
    return nn.ModuleList(
        [
            hc.HyperStack([nn.Tanh()] * 2, 8, n, collapse="learned", retraction="cayley", **options),
            hc.SinglePassStack([nn.Tanh()] * 2, 8, n, **options),
            hc.ExtraReads(hc.HyperConnection(8, n, nn.Bilinear(8, 8, 8), **options), 1),
            hc.ResizingConnection(8, 6, n, nn.Linear(8, 6), transform=nn.Linear(8, 6), **options),
            hc.FractionalConnection(8, n, 2, nn.Tanh(), constraint=name if name in wide else "hc"),
            hc.StreamEmbedding(n, 8),
            hc.Read(8, n),
        ]
    )


def fits(name, n):
    return hc.constraints.constraint_class(name).unsupported(n) is None


@every_mapping
@every_constraint
def test_nothing_is_left_of_poisoned_memory(name, mapping, monkeypatch):
    """Memory that nobody wrote to would be finite garbage, which looks like a value."""
    torch.manual_seed(1)
    ordinary = everything(name, mapping)
    allocate = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **options: allocate(*size, **options).fill_(1e30))
    torch.manual_seed(1)
    poisoned = everything(name, mapping)
    for (key, value), twin in zip(ordinary.state_dict().items(), poisoned.state_dict().values(), strict=True):
        assert torch.equal(value, twin), key
        assert value.dtype == torch.uint8 or value.abs().max() < 100, key


@every_mapping
@every_constraint
def test_reset_parameters_reaches_everything(name, mapping):
    module = everything(name, mapping)
    connection = {key: p.clone() for key, p in module.named_parameters() if getattr(p, "is_connection", False)}
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.fill_(1e30)
    for part in module.modules():
        if hasattr(part, "reset_parameters"):
            part.reset_parameters()
    for key, parameter in module.named_parameters():
        assert parameter.abs().max() < 100, key
        assert key not in connection or torch.equal(parameter, connection[key]), key


@every_mapping
@every_small_size
def test_every_tensor_moves_with_its_module(name, n, mapping):
    connection = hc.HyperConnection(8, n, nn.Tanh(), constraint=name, mapping=mapping, retraction="projection")
    moves = (("double", connection.double), ("half", connection.half), ("meta", lambda: connection.to("meta")))
    for _, move in moves:
        move()
        for part in connection.modules():
            hidden = [key for key, value in vars(part).items() if isinstance(value, torch.Tensor)]
            assert not hidden, "a tensor that is neither parameter nor buffer stays behind"
    assert {tensor.device.type for tensor in (*connection.parameters(), *connection.buffers())} <= {"meta"}
    streams = torch.randn(3, n, 8, device="meta")
    assert connection(streams).device.type == "meta"
    assert connection.residual_matrix().device.type == "meta"


@every_small_size
def test_a_cast_there_and_back_has_the_digits_of_one_built_there(name, n):
    torch.set_default_dtype(torch.float64)
    try:
        built = hc.make_constraint(name, n)
    finally:
        torch.set_default_dtype(torch.float32)
    moved_there = hc.make_constraint(name, n).half().double()
    point = torch.randn(4, built.num_coordinates, dtype=torch.float64)
    assert torch.equal(moved_there(point), built(point))
    assert moved_there(point).dtype == torch.float64


@every_mapping
@every_small_size
def test_nothing_draws_random_numbers_and_given_coordinates_stay(name, n, mapping):
    """No build, call or load samples: a matrix that was put in is the matrix that is there."""
    before = torch.get_rng_state()
    site = hc.HyperConnection(8, n, nn.Tanh(), constraint=name, mapping=mapping)
    coordinates = torch.linspace(-1, 1, site.constraint.num_coordinates)
    with torch.no_grad():
        site.mapping.bias[2 * n :] = coordinates
    expected = site.constraint(coordinates)
    for _ in range(2):
        site(torch.ones(2, n, 8))
        twin = hc.HyperConnection(8, n, nn.Tanh(), constraint=name, mapping=mapping)
        twin.load_state_dict(site.state_dict())
        for one in (site, twin, copy.deepcopy(site)):
            torch.testing.assert_close(one.residual_matrix(), expected, rtol=0, atol=1e-6)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda path: str(path.relative_to(PACKAGE)))
def test_every_file_is_valid_in_the_oldest_python(path):
    ast.parse(path.read_text(), feature_version=(3, 10))


@every_mapping
@every_constraint
def test_every_parameter_is_in_one_group_and_only_projections_decay(name, mapping):
    module = everything(name, mapping)
    module.append(module[0].connections[0].branch)
    module[3].transform.module.weight = module[3].branch.weight  # tied
    groups = hc.parameter_groups(module, 0.1)
    members = [id(p) for group in groups for p in group["params"]]
    assert sorted(members) == sorted(id(p) for p in module.parameters())
    group_of = {id(p): group for group in groups for p in group["params"]}
    for key, parameter in module.named_parameters():
        group, of_branch = group_of[id(parameter)], ".branch." in key or ".transform." in key
        assert group["connection"] != of_branch, key
        if not of_branch:
            assert parameter.is_connection
            projection = key.endswith("weight") or key.endswith("weights.weight")
            assert (group["weight_decay"] > 0) == projection == (not parameter.no_weight_decay), key


@every_mapping
@every_constraint
def test_weight_decay_alone_moves_no_static_number(name, mapping):
    stack = hc.HyperStack([branch(8)] * 2, 8, 4, constraint=name, mapping=mapping, retraction="cayley")
    before = [connection.residual_matrix() for connection in stack.connections]
    optimizer = torch.optim.AdamW(hc.parameter_groups(stack, 0.5), lr=0.1)
    for _ in range(20):
        for parameter in stack.parameters():
            parameter.grad = torch.zeros_like(parameter)
        optimizer.step()
    assert all(torch.equal(c.residual_matrix(), h) for c, h in zip(stack.connections, before, strict=True))


@every_constraint
def test_connections_are_found_by_their_class_however_deep(name):
    inner = hc.HyperStack([nn.Tanh()] * 2, 8, 2 if fits(name, 2) else 4, constraint=name)
    outer = hc.HyperStack([inner, nn.Tanh()], 8, 4, constraint=name)
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), 2, enable_nested_tensor=False
    )
    model = nn.ModuleDict({"nested": nn.Sequential(outer), "parts": everything(name)})
    model["wrapped"] = hc.wrap(encoder, 4, constraint=name, level="block")
    found = [key for key, module in model.named_modules() if isinstance(module, hc.HyperConnection)]
    assert len(found) == 4 + (2 + 2 + 1 + 1 + 1) + 2
    assert {c.name for c in hc.inspect(model)} == set(found)
    assert {type(m) for m in model.modules() if isinstance(m, hc.Constraint) and m.name == name}


ENTRANCES = {
    "make_constraint": lambda name: hc.make_constraint(name, 4),
    "connection": lambda name: hc.HyperConnection(8, 4, constraint=name),
    "stack": lambda name: hc.HyperStack([branch(8)], 8, constraint=name),
    "single pass": lambda name: hc.SinglePassStack([branch(8)], 8, constraint=name),
    "fractions": lambda name: hc.FractionalConnection(8, 4, 2, constraint=name),
    "resizing": lambda name: hc.ResizingConnection(8, 6, 4, transform=nn.Linear(8, 6), constraint=name),
    "wrap": lambda name: hc.wrap(nn.Sequential(nn.ModuleList([nn.Linear(8, 8)])), blocks="0", level="block", dim=8, constraint=name),
}  # fmt: skip


@pytest.mark.parametrize("entrance", ENTRANCES)
@pytest.mark.parametrize("bad", ["", "mhcc", "doubly-stochastic"])
def test_a_wrong_name_is_answered_with_all_right_ones(entrance, bad):
    with pytest.raises(ValueError, match=f"unknown constraint '{bad}'") as raised:
        ENTRANCES[entrance](bad)
    for name in hc.list_constraints():
        assert name in str(raised.value)
        assert all(alias in str(raised.value) for alias in hc.constraints.constraint_class(name).aliases)


@every_constraint
def test_an_unknown_option_is_refused_by_name(name):
    with pytest.raises(TypeError, match="'sharpness'"):
        hc.make_constraint(name, 4, sharpness=3)


@every_constraint
def test_an_extension_under_its_own_name_is_picked_everywhere(name, registry_restored):
    base = hc.constraints.constraint_class(name)

    @hc.register_constraint("test-extension", "test-short")
    class Extension(base):
        pass

    for known_as in ("test-extension", "test-short", "Test_Extension"):
        stack = moved(hc.HyperStack([branch(8)], 8, 4, constraint=known_as))
        assert type(stack.connections[0].constraint) is Extension
        assert stack.connections[0].description()["constraint"]["name"] == "test-extension"
    assert "test-extension" in hc.list_constraints() and name in hc.list_constraints()
