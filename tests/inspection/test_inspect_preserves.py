"""Inspection leaves no trace, and its memory does not grow with the number of batches."""

from __future__ import annotations

import copy
import random

import pytest
import torch
from planted import small_stack
from torch import nn

import hyperconn as hc


class Model(nn.Module):
    """Stack with dropout and running statistics, every module in a mode of its own."""

    def __init__(self, constraint: str = "shc", **options):
        super().__init__()
        self.norm = nn.BatchNorm1d(16)
        self.stack = small_stack(constraint, **options)

    def forward(self, x):
        return self.stack(self.norm(x)) + random.random() + torch.rand(())


def state(model: nn.Module) -> list:
    hooks = [
        {name: len(value) for name, value in vars(module).items() if "hooks" in name and value}
        for module in model.modules()
    ]
    attributes = [sorted(vars(module)) for module in model.modules()]
    return [[module.training for module in model.modules()], hooks, attributes]


def everything(model: nn.Module, x: torch.Tensor) -> list[torch.Tensor]:
    """Outputs and gradients of one seeded training step, by value."""
    torch.manual_seed(1), random.seed(1)
    model.zero_grad()
    output = model(x)
    output.square().mean().backward()
    return [
        output.detach().clone(),
        *(parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None),
    ]


@pytest.mark.parametrize("constraint", hc.list_constraints())
def test_outputs_gradients_modes_hooks_and_random_states_are_untouched(constraint):
    model, x = Model(constraint), torch.randn(6, 16)
    model.stack.connections[1].branch.eval()
    twin = copy.deepcopy(model)
    before, rng, python_rng = state(model), torch.get_rng_state(), random.getstate()
    hc.inspect(model)
    hc.inspect(model, x)
    hc.inspect(model, batches=[x, (x,)])
    assert state(model) == before
    assert torch.equal(torch.get_rng_state(), rng) and random.getstate() == python_rng
    assert all(
        torch.equal(a, b) for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True)
    )
    got, expected = everything(model, x), everything(twin, x)
    assert len(got) == len(expected) > 10
    assert all(torch.equal(a, b) for a, b in zip(got, expected, strict=True))


def test_outputs_and_gradients_are_the_same_bits_while_somebody_watches():
    model, x = Model(), torch.randn(6, 16)
    twin = copy.deepcopy(model)
    before = state(model)
    with hc.inspection.watch(model) as watched:
        got = everything(model, x)
    assert state(model) == before
    assert all(torch.equal(a, b) for a, b in zip(got, everything(twin, x), strict=True))
    assert watched.report().batches == 1


def test_a_failing_model_is_put_back_as_well():
    model, x = Model(), torch.randn(6, 17)
    before, rng = state(model), torch.get_rng_state()
    with pytest.raises(RuntimeError):
        hc.inspect(model, x)
    assert state(model) == before
    assert torch.equal(torch.get_rng_state(), rng)


def test_recomputation_in_backward_is_not_another_token():
    stack = small_stack()

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = stack

        def forward(self, x):
            return torch.utils.checkpoint.checkpoint(self.stack, x, use_reentrant=False)

    model = Checkpointed()
    with hc.inspection.watch(model) as watched:
        model(torch.randn(5, 16)).sum().backward()
    assert [c.calls for c in watched.report()] == [1] * 4


def test_a_compiled_model_is_seen():
    model = small_stack()
    x = torch.randn(5, 16)
    expected = hc.inspect(model, x).to_dict()
    model.compile(backend="eager")
    model(x)
    assert hc.inspect(model, x).to_dict() == expected


def test_batches_are_the_same_as_their_concatenation():
    model, x = small_stack(), torch.randn(7, 16)
    whole = hc.inspect(model, x)
    parts = hc.inspect(model, batches=(part for part in (x[:4], (x[4:6],), {"x": x[6:]})))
    assert parts.batches == 3
    for a, b in zip(whole, parts, strict=True):
        assert a.tokens == b.tokens == 7
        torch.testing.assert_close(a.matrix, b.matrix)
        for name, summary in a.quantities.items():
            assert summary[:3] == pytest.approx(b.quantities[name][:3], abs=1e-6), name
    for a, b in zip(whole.depth, parts.depth, strict=True):
        torch.testing.assert_close(a.singular_values, b.singular_values, rtol=0, atol=1e-6)  # H is float32
    place = parts.connections[2].quantities["spectral_norm"].where_largest
    flat = whole.connections[2].quantities["spectral_norm"].where_largest.token[0]
    assert (0, 4, 6)[place.batch] + place.token[0] == flat


def held_tensors(collected: object) -> int:
    """Elements of all tensors reachable from an object."""
    seen, stack, total = set(), [collected], 0
    while stack:
        item = stack.pop()
        if id(item) in seen:
            continue
        seen.add(id(item))
        if isinstance(item, torch.Tensor):
            total += item.numel()
        elif isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, (list, tuple, set)):
            stack.extend(item)
        elif type(item).__module__.startswith("hyperconn.inspection"):
            stack.extend(vars(item).values())
    return total


def test_memory_does_not_grow_with_batches():
    model = small_stack()
    with torch.no_grad(), hc.inspection.watch(model) as watched:
        sizes = []
        for _ in range(4):
            model(torch.randn(50, 16))
            sizes.append(held_tensors(watched))
    assert len(set(sizes)) == 1
    assert sizes[0] < 4 * 2 * 16 * 50  # less than the per-token matrices of one batch: only starts are left


def test_shared_constraints_and_mappings_are_told_apart():
    constraint = hc.make_constraint("unconstrained", 4)
    sites = [hc.HyperConnection(8, 4, nn.Identity(), constraint=constraint, mapping="static") for _ in range(2)]
    with torch.no_grad():
        sites[1].mapping.bias.neg_()
    report = hc.inspect(nn.Sequential(*sites), torch.randn(3, 4, 8))
    torch.testing.assert_close(report["0"].matrix, -report["1"].matrix)


def test_connections_used_by_hand_and_single_streams_are_seen():
    class ByHand(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.site = hc.HyperConnection(8, n)

        def forward(self, streams):
            branch_input, carry = self.site.read(streams)
            return self.site.write(branch_input.tanh(), carry)

    for n in (1, 4):
        (found,) = hc.inspect(ByHand(n), torch.randn(3, n, 8))
        assert (found.name, found.calls, found.streams) == ("site", 1, n)


def test_every_kind_of_connection_is_seen():
    """Fractions, resizing, single pass and wrapped models all end in ``write``."""
    x = torch.randn(3, 4, 8)
    fractional = hc.inspect(nn.Sequential(hc.FractionalConnection(8, 4, branch=nn.Identity())), x)
    assert fractional["0"].streams == 8 and fractional["0"].pre is None
    assert hc.inspect(hc.FractionalConnection(8, 4, branch=nn.Identity())).connections[0].streams == 8
    stack = hc.SinglePassStack([nn.Linear(8, 8)] * 3, 8, 4)
    assert [p.length for p in hc.inspect(stack, torch.randn(2, 8)).depth] == [1, 2, 3]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, batch_first=True, norm_first=True), 2, enable_nested_tensor=False
    )
    wrapped = hc.wrap(encoder, streams=4)
    report = hc.inspect(wrapped, torch.randn(2, 5, 8))
    assert [p.length for p in report.depth] == [1, 2, 3, 4] and report.uncalled == []


def test_a_network_inside_a_branch_has_a_chain_of_its_own():
    outer = hc.HyperStack([hc.HyperStack([nn.Linear(8, 8)] * 2, 8, 4), nn.Linear(8, 8)], 8, 4)
    chains = {}
    for prefix in hc.inspect(outer, torch.randn(3, 8)).depth:
        chains.setdefault(prefix.chain, []).append(prefix.name)
    inner = [f"connections.0.branch.connections.{i}" for i in (0, 1)]
    assert sorted(chains.values()) == [["connections.0", "connections.1"], inner]


def test_inputs_in_half_precision_and_under_autocast():
    model, x = small_stack(), torch.randn(5, 16)
    expected = hc.inspect(model, x)
    with torch.autocast("cpu", torch.bfloat16):
        report = hc.inspect(model, x)
    assert report["connections.0"].similarity.mean == expected["connections.0"].similarity.mean
    report = hc.inspect(model.bfloat16(), x.bfloat16())
    assert all(c.quantities["row_sum_error"].largest < 1e-5 for c in report)


@pytest.mark.parametrize(
    ("call", "error", "words"),
    [
        (lambda: hc.inspect(nn.Linear(2, 2)), ValueError, "Linear contains no HyperConnection"),
        (lambda: hc.inspect("model"), TypeError, "expected a torch.nn.Module, got str"),
        (lambda: hc.inspect(small_stack(), torch.randn(2, 16), batches=[]), TypeError, "got both"),
        (lambda: hc.inspect(small_stack(), batches=[]), ValueError, "at least one run of the model, got none"),
        (lambda: hc.inspect(small_stack(), torch.randn(2, 16))["nobody"], KeyError, "known: connections.0"),
        (lambda: hc.inspect(small_stack().to("meta")), ValueError, "meta device and has no values"),
    ],
)
def test_errors_say_what_to_do(call, error, words):
    with pytest.raises(error, match=words):
        call()
