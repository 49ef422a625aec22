"""Recomputation: the same numbers, bit for bit, from a fraction of what a call keeps."""

from __future__ import annotations

import copy

import pytest
import torch
from conftest import branch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

import hyperconn as hc
from hyperconn.recompute import keep_nothing, keep_products, segment_length

POLICIES = pytest.mark.parametrize("policy", [True, keep_nothing], ids=["products", "nothing"])
DIM, STREAMS = 64, 4


def kept(call, model: nn.Module) -> int:
    """Bytes that a call keeps for its backward, parameters apart."""
    sizes = {}

    def note(tensor: Tensor) -> Tensor:
        sizes[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        output = call()
    assert output.requires_grad
    parameters = {parameter.untyped_storage().data_ptr() for parameter in model.parameters()}
    return sum(size for pointer, size in sizes.items() if pointer not in parameters)


def gradients(model: nn.Module, x: Tensor, *args) -> list[Tensor]:
    """The output, then the gradients of the input and of every parameter; random numbers from the same seed."""
    torch.manual_seed(7)
    x = x.detach().clone().requires_grad_()
    output = model(x, *args)
    output.backward(torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output))
    found = [output.detach(), x.grad, *(parameter.grad for parameter in model.parameters())]
    model.zero_grad()
    return found


def assert_same(first: list[Tensor], second: list[Tensor]) -> None:
    for one, other in zip(first, second, strict=True):
        assert torch.equal(one, other)


def twin(model: nn.Module) -> nn.Module:
    """The same parameters without recomputation."""
    plain = copy.deepcopy(model)
    for module in plain.modules():
        if hasattr(module, "recompute"):
            module.recompute = None
    return plain


def stir(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


@POLICIES
@pytest.mark.parametrize("constraint", hc.list_constraints())
@pytest.mark.parametrize("retraction", [None, "cayley"])
def test_output_and_gradients_are_bit_identical_with_dropout_in_the_branch(policy, constraint, retraction):
    model = stir(
        hc.HyperConnection(
            DIM, STREAMS, branch(DIM, dropout=0.3), constraint=constraint, retraction=retraction, recompute=policy
        )
    )
    x = torch.randn(2, 5, STREAMS, DIM)
    assert_same(gradients(model, x), gradients(twin(model), x))


@POLICIES
@pytest.mark.parametrize("stack", [hc.HyperStack, hc.SinglePassStack])
@pytest.mark.parametrize("constraint", ["sinkhorn", "shc"])
def test_a_stack_is_bit_identical_too(policy, stack, constraint):
    branches = [branch(DIM, dropout=0.3) for _ in range(5)]
    model = stir(stack(branches, DIM, STREAMS, constraint=constraint, recompute=policy))
    x = torch.randn(2, 5, DIM)
    assert len(model.segments()) > 1
    assert_same(gradients(model, x), gradients(twin(model), x))


@pytest.mark.parametrize("kind", [hc.FractionalConnection, hc.ResizingConnection])
def test_every_kind_of_connection_recomputes(kind):
    options = (DIM,) if kind is hc.FractionalConnection else (DIM, DIM)
    extra = {} if kind is hc.FractionalConnection else {"transform": nn.Linear(DIM, DIM)}
    model = stir(kind(*options, STREAMS, branch=branch(DIM, dropout=0.3), recompute=True, **extra))
    x = torch.randn(2, 5, STREAMS, DIM)
    assert_same(gradients(model, x), gradients(twin(model), x))
    # Products that a policy keeps are not seen by the hooks that count, so here none is kept.
    plain, model.recompute = twin(model), keep_nothing
    assert kept(lambda: model(x.requires_grad_()), model) < kept(lambda: plain(x), plain)


@POLICIES
@pytest.mark.parametrize("constraint", hc.list_constraints())
def test_only_the_streams_are_kept(policy, constraint):
    model = hc.HyperConnection(512, STREAMS, nn.Identity(), constraint=constraint, recompute=policy)
    x = torch.randn(1, 512, STREAMS, 512, requires_grad=True)
    stream_bytes = x.numel() * x.element_size()
    assert kept(lambda: model(x), model) <= 1.05 * stream_bytes
    # The reason to have it at all; and that the count above is not blind.
    plain = twin(model)
    assert 1.2 * stream_bytes <= kept(lambda: plain(x), plain) <= 1.35 * stream_bytes


def test_a_stack_keeps_streams_between_segments_only():
    model = hc.HyperStack([nn.Identity() for _ in range(8)], DIM, STREAMS, recompute=True)
    x = torch.randn(1, 64, DIM, requires_grad=True)
    streams = STREAMS * x.numel() * x.element_size()
    assert kept(lambda: model.before_collapse(x), model) <= 1.05 * len(model.segments()) * streams
    assert len(model.segments()) == 4


def test_segments_follow_the_square_root_of_the_depth():
    assert [segment_length(depth, 4) for depth in (1, 6, 24, 96)] == [1, 2, 4, 8]


class CountProducts(TorchDispatchMode):
    """Outside the policy: it counts what the policy lets through."""

    count = 0

    def __torch_dispatch__(self, operation, types, args=(), kwargs=None):
        self.count += operation in (torch.ops.aten.mm.default, torch.ops.aten.addmm.default)
        return operation(*args, **(kwargs or {}))


@pytest.mark.parametrize(("policy", "expected"), [(False, 6), (True, 6), (keep_nothing, 8)])
def test_the_policy_says_whether_products_are_computed_again(policy, expected):
    """Two linear layers: two products forward, four backward, and two more if they are computed again."""
    linears = nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, DIM), nn.GELU(), nn.Linear(DIM, DIM), nn.GELU())
    model = hc.HyperConnection(DIM, STREAMS, linears, mapping="static", recompute=policy)
    x = torch.randn(2, 5, STREAMS, DIM, requires_grad=True)
    with CountProducts() as counting:
        model(x).sum().backward()
    assert counting.count == expected


@POLICIES
def test_arguments_and_structures_pass_through(policy):
    class Attend(nn.Module):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(DIM, DIM)

        def forward(self, x, context, *, scale, mask=None):
            return self.linear(x) * scale + context, {"mask": mask}

    model = hc.HyperConnection(DIM, STREAMS, Attend(), recompute=policy)
    x = torch.randn(2, 5, STREAMS, DIM, requires_grad=True)
    context = torch.randn(2, 5, DIM, requires_grad=True)
    streams, rest = model(x, context, scale=2)
    streams.square().sum().backward()
    assert rest == {"mask": None}
    found = context.grad.clone()
    context.grad = None
    twin(model)(x, context, scale=2)[0].square().sum().backward()
    assert torch.equal(found, context.grad)


@pytest.mark.parametrize("dropout", [0.0, 0.2])
def test_fused_attention_in_the_branch(dropout):
    class Attention(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv, self.out, self.drop = nn.Linear(DIM, 3 * DIM), nn.Linear(DIM, DIM), nn.Dropout(0.2)

        def forward(self, x):
            q, k, v = (part.unflatten(-1, (4, -1)).mT for part in self.qkv(x).chunk(3, -1))
            mixed = nn.functional.scaled_dot_product_attention(
                q.movedim(-1, 1), k.movedim(-1, 1), v.movedim(-1, 1), dropout_p=dropout if self.training else 0.0
            )
            return self.drop(self.out(mixed.movedim(1, -1).flatten(-2)))

    model = hc.HyperConnection(DIM, STREAMS, Attention(), recompute=True)
    x = torch.randn(2, 8, STREAMS, DIM)
    assert_same(gradients(model, x), gradients(twin(model), x))


def test_under_autocast_and_in_bfloat16():
    model = stir(hc.HyperConnection(DIM, STREAMS, branch(DIM, dropout=0.3), recompute=True))
    x = torch.randn(2, 5, STREAMS, DIM)
    with torch.autocast("cpu", torch.bfloat16):
        assert_same(gradients(model, x), gradients(twin(model), x))
    model.bfloat16()
    assert_same(gradients(model, x.bfloat16()), gradients(twin(model), x.bfloat16()))


def test_nothing_is_kept_without_gradients_and_transforms_go_through():
    model = hc.HyperConnection(8, STREAMS, branch(8), recompute=True)
    x = torch.randn(3, STREAMS, 8)
    with torch.no_grad():
        assert not model(x).requires_grad
    assert torch.equal(torch.func.vmap(model)(x), torch.func.vmap(twin(model))(x))
    exported = torch.export.export(model, (x,)).module()
    torch.testing.assert_close(exported(x), model(x))


def test_a_graph_run_backward_twice_says_so_or_works():
    x = torch.randn(3, STREAMS, 8, requires_grad=True)
    again = hc.HyperConnection(8, STREAMS, branch(8), recompute=keep_nothing)
    output = again(x).sum()
    output.backward(retain_graph=True)
    first = x.grad.clone()
    output.backward()
    assert torch.equal(x.grad, 2 * first)
    output = hc.HyperConnection(8, STREAMS, branch(8), recompute=True)(x).sum()
    output.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match="backward an extra time"):
        output.backward()


def test_inspection_counts_a_call_once():
    torch.manual_seed(0)
    model = hc.HyperStack([branch(8) for _ in range(4)], 8, STREAMS, recompute=True)
    x = torch.randn(2, 3, 8)
    plain = hc.inspect(twin(model), x).to_dict()
    with hc.inspection.watch(model) as watched:
        model(x).sum().backward()
    assert watched.report().to_dict() == plain


def test_compiled_equals_eager():
    model = stir(hc.HyperStack([branch(16) for _ in range(3)], 16, STREAMS, recompute=True))
    x = torch.randn(2, 5, 16)
    eager = gradients(model, x)
    torch._dynamo.reset()
    for one, other in zip(gradients(torch.compile(model, fullgraph=True), x), eager, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-5)


def test_a_policy_of_ones_own_is_asked_and_anything_else_refused():
    asked = set()

    def policy(context, operation, *args, **kwargs):
        asked.add(operation)
        return keep_products(context, operation, *args, **kwargs)

    model = hc.HyperConnection(8, STREAMS, branch(8), recompute=policy)
    model(torch.randn(3, STREAMS, 8, requires_grad=True)).sum().backward()
    assert torch.ops.aten.addmm.default in asked
    with pytest.raises(TypeError, match=r"recompute: expected True, False or a policy .* got 'all'"):
        hc.HyperConnection(8, STREAMS, recompute="all")


def test_a_branch_that_changes_a_kept_product_in_place_is_noticed():
    in_place = nn.Sequential(nn.Linear(8, 8), nn.ReLU(inplace=True), nn.Linear(8, 8))
    x = torch.randn(3, STREAMS, 8, requires_grad=True)
    with pytest.raises(RuntimeError, match="has been mutated"):
        hc.HyperConnection(8, STREAMS, in_place, recompute=True)(x).sum().backward()
    model = hc.HyperConnection(8, STREAMS, in_place, recompute=keep_nothing)
    assert_same(gradients(model, x), gradients(twin(model), x))


def test_batch_norm_in_the_branch_counts_the_second_call():
    norm = nn.BatchNorm1d(8)
    for recompute, calls in ((False, 1), (True, 2)):
        norm.reset_running_stats()
        hc.HyperConnection(8, STREAMS, norm, recompute=recompute)(torch.randn(3, STREAMS, 8)).sum().backward()
        assert norm.num_batches_tracked == calls
