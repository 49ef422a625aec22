"""torch.compile: one graph for everything, few recompilations, the numbers of eager."""

from __future__ import annotations

import itertools

import pytest
import torch
from torch import Tensor, nn
from torch._dynamo.testing import CompileCounter

import hyperconn as hc

DIM = 16
KINDS = [
    *({"constraint": name} for name in hc.list_constraints()),
    *({"constraint": "shc", "mapping": mapping} for mapping in ("per-stream", "static")),
    *({"constraint": "shc", "retraction": retraction} for retraction in ("projection", "cayley", "exponential", 1.5)),
    {"constraint": "sinkhorn", "streams": 2},
    {"constraint": "orthogonal", "streams": 6},
    {"constraint": "sinkhorn", "streams": 1},
]
SHAPES = [(2, 5), (3, 7), (4, 9), (5, 11), (6, 4), (7, 13)]
TRACED = (
    "aot_eager_decomp_partition"  # forward and backward are traced and decomposed as for inductor, and run as traced
)


def name_of(options: dict) -> str:
    return "-".join(map(str, options.values()))


every_kind = pytest.mark.parametrize("options", KINDS, ids=name_of)
some_kinds = pytest.mark.parametrize("options", [{"constraint": "sinkhorn"}, {"constraint": "shc", "retraction": "cayley"}], ids=name_of)  # fmt: skip


def stack(**options) -> nn.Module:
    return stirred(hc.HyperStack([nn.Linear(DIM, DIM)], DIM, **options))


def site(**options) -> nn.Module:
    """Without an expansion, so that streams differ and no gradient is zero by symmetry."""
    return stirred(hc.HyperConnection(DIM, branch=nn.Linear(DIM, DIM), **options))


def stirred(model: nn.Module) -> nn.Module:
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.1)
    return model


def streams(model: nn.Module) -> Tensor:
    return torch.randn(2, 5, model.streams, DIM)


def output_and_gradients(model: nn.Module, parameters: list[Tensor], x: Tensor, cotangent: Tensor) -> list[Tensor]:
    x = x.detach().clone().requires_grad_()
    output = model(x)
    return [output.detach(), *torch.autograd.grad(output, [x, *parameters], cotangent)]


def assert_near(got: list[Tensor], expected: list[Tensor], bound: float) -> None:
    """Relative to each gradient, or to a tenth of a typical one where terms cancel."""
    typical = torch.stack([tensor.double().norm() for tensor in expected[1:]]).square().mean().sqrt()
    for index, (one, other) in enumerate(zip(got, expected, strict=True)):
        assert one.isfinite().all()
        size = other.double().norm()
        error = (one.double() - other.double()).norm()
        assert error <= bound * (torch.maximum(size, typical / 10) if index else size)


@pytest.fixture(autouse=True)
def fresh_compiler():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@every_kind
def test_at_most_two_recompilations_over_six_shapes(options):
    """Counted with a backend that makes no code: what recompiles is decided before."""
    model, counter = stack(**options), CompileCounter()
    compiled = torch.compile(model, fullgraph=True, backend=counter)
    for shape in SHAPES:
        x = torch.randn(*shape, DIM)
        torch.testing.assert_close(compiled(x), model(x), rtol=1e-5, atol=1e-5)
    assert 1 <= counter.frame_count <= 3


@every_kind
def test_compiled_equals_eager_for_gradients_from_one_to_1e8(options):
    model = site(**options)
    compiled = torch.compile(model, fullgraph=True, backend=TRACED)
    parameters, x = list(model.parameters()), streams(model)
    direction = torch.randn_like(x)
    for size in (1.0, 1e4, 1e8):
        eager = output_and_gradients(model, parameters, x, size * direction)
        assert_near(output_and_gradients(compiled, parameters, x, size * direction), eager, 1e-5)


@pytest.mark.parametrize("constraint", hc.list_constraints())
def test_a_compiled_function_may_hold_a_transform(constraint):
    """Of ``torch.func``, such as the gradient per sample."""
    model = site(constraint=constraint)
    parameters = {name: parameter.detach() for name, parameter in model.named_parameters()}

    def loss(parameters: dict[str, Tensor], x: Tensor) -> Tensor:
        return torch.func.functional_call(model, parameters, (x,)).square().sum()

    per_sample = torch.func.vmap(torch.func.grad(loss), in_dims=(None, 0))
    x = streams(model)
    expected = per_sample(parameters, x)
    got = torch.compile(per_sample, fullgraph=True, backend="aot_eager")(parameters, x)
    for name, gradient in got.items():
        torch.testing.assert_close(gradient, expected[name], rtol=1e-4, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("constraint", ["sinkhorn", "spectral-sphere", "permutation"])
@pytest.mark.parametrize(
    ("dtype", "bound"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)], ids=["float32", "bfloat16"]
)
def test_generated_code_equals_eager(constraint, dtype, bound):
    """With inductor itself; in bfloat16 eager errs as well, and an exact computation is the judge of both."""
    model = site(constraint=constraint).to(dtype)
    exact = site(constraint=constraint).double()
    exact.load_state_dict(model.state_dict())
    compiled = torch.compile(model, fullgraph=True, dynamic=True)
    x = streams(model).to(dtype)
    direction = torch.randn_like(x)
    for size in (1.0, 1e8):
        judge = output_and_gradients(exact, list(exact.parameters()), x.double(), (size * direction).double())
        for either in (compiled, model):
            assert_near(output_and_gradients(either, list(model.parameters()), x, size * direction), judge, bound)


@some_kinds
def test_under_autocast_in_one_graph(options):
    model = site(**options)
    compiled = torch.compile(model, fullgraph=True, backend=TRACED)
    x = streams(model)
    cotangent = torch.randn_like(x)
    with torch.autocast("cpu", torch.bfloat16):
        eager = output_and_gradients(model, list(model.parameters()), x, cotangent)
        assert_near(output_and_gradients(compiled, list(model.parameters()), x, cotangent), eager, 2e-2)


@some_kinds
def test_zero_tokens_compile(options):
    model = stack(**options)
    compiled = torch.compile(model, fullgraph=True, backend=TRACED)
    for shape in itertools.product((0, 2), (0, 3)):
        assert compiled(torch.randn(*shape, DIM)).shape == (*shape, DIM)
