"""What torch makes of a site: exported, transformed by ``torch.func``, run without data, differentiated twice."""

from __future__ import annotations

import copy
import importlib.util
from pathlib import Path

import pytest
import torch
from kinds import every_kind, points, site, stack, state
from torch import Tensor, nn
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.export import Dim
from torch.func import functional_call, grad, jacfwd, jacrev, jvp, vmap

import hyperconn as hc

# The first forward-mode derivative of a process makes torch compile rules of its own in a way it deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:DeprecationWarning")

# --- torch.export -------------------------------------------------------------------------------------

EXAMPLE = (101, 103)  # sizes that occur nowhere else, so that they can be looked for in a graph
DYNAMIC = ({0: Dim("batch"), 1: Dim("sequence")},)


def exported(module: nn.Module, dim: int = 6) -> torch.export.ExportedProgram:
    return torch.export.export(module, (torch.randn(*EXAMPLE, dim),), dynamic_shapes=DYNAMIC)


def constant_sizes(program: torch.export.ExportedProgram) -> list[str]:
    """Nodes that hold a size of the example, or have it as the size of their result."""
    forbidden = {*EXAMPLE, EXAMPLE[0] * EXAMPLE[1]}
    found = []
    for node in program.graph.nodes:
        numbers: list[int] = []
        torch.fx.node.map_aggregate(
            (node.args, node.kwargs), lambda a, n=numbers: n.append(a) if type(a) is int else a
        )
        value = node.meta.get("val")
        numbers += [size for size in getattr(value, "shape", ()) if type(size) is int]
        if forbidden & set(numbers):
            found.append(str(node))
    return found


@every_kind
def test_an_exported_stack_takes_any_batch_and_sequence(kind):
    model = stack(kind, collapse="learned")
    program = exported(model)
    assert constant_sizes(program) == []
    run = program.module()
    for sizes in ((7, 5), (40, 2), (1, 1), (0, 3)):
        x = torch.randn(*sizes, 6)
        torch.testing.assert_close(run(x), model(x), rtol=1e-5, atol=1e-5)


def test_the_search_for_constant_sizes_would_find_one():
    class Fixed(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x.sum((0, 1)).expand(*EXAMPLE, -1) + 0.0

    assert constant_sizes(exported(Fixed())) != []


IN_ONNX = ("sinkhorn", "transport", "orthogonal", "per-stream mapping", "retraction inf")
WITHOUT_ONNX = ("orthostochastic",)  # ONNX has no inverse of a matrix


@pytest.fixture
def onnx_reference():
    missing = [name for name in ("onnx", "onnxscript") if importlib.util.find_spec(name) is None]
    if missing:
        reason = f"NOT TESTED: the export to ONNX needs {' and '.join(missing)}"
        print(reason)
        pytest.skip(reason)
    from onnx.reference import ReferenceEvaluator

    return ReferenceEvaluator


def save_onnx(model: nn.Module, path: Path) -> str:
    program = torch.onnx.export(
        model.eval(), (torch.randn(*EXAMPLE, 6),), dynamo=True, dynamic_shapes=DYNAMIC, verbose=False
    )
    program.save(path)
    return str(path)


@pytest.mark.parametrize("kind", IN_ONNX)
@pytest.mark.slow
@pytest.mark.filterwarnings("default")  # of the exporter's own
def test_an_onnx_graph_computes_the_same(kind, onnx_reference, tmp_path):
    model = stack(kind)
    evaluator = onnx_reference(save_onnx(model, tmp_path / "model.onnx"))
    for sizes in ((2, 3), (5, 4)):
        x = torch.randn(*sizes, 6)
        (got,) = evaluator.run(None, {evaluator.input_names[0]: x.numpy()})
        torch.testing.assert_close(torch.from_numpy(got), model(x).detach(), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", WITHOUT_ONNX)
@pytest.mark.filterwarnings("default")
def test_what_onnx_cannot_express_is_an_error_at_export(kind, onnx_reference, tmp_path):
    with pytest.raises(torch.onnx.OnnxExporterError, match="linalg_inv"):
        save_onnx(stack(kind), tmp_path / "model.onnx")


# --- torch.func ---------------------------------------------------------------------------------------


@every_kind
def test_a_functional_call_and_a_mapped_batch_are_the_module(kind):
    module, streams = site(kind), points(kind, 5)
    parameters = state(module)
    torch.testing.assert_close(functional_call(module, parameters, (streams,)), module(streams))
    mapped = vmap(lambda token: functional_call(module, parameters, (token,)))(streams)
    torch.testing.assert_close(mapped, module(streams))


@every_kind
def test_forward_and_reverse_jacobians_are_those_of_plain_autograd(kind):
    module, streams = site(kind), points(kind, 1)
    expected = torch.autograd.functional.jacobian(module, streams)
    torch.testing.assert_close(jacrev(module)(streams), expected)
    torch.testing.assert_close(jacfwd(module)(streams), expected)
    tangent = torch.randn_like(streams)
    _, pushed = jvp(module, (streams,), (tangent,))
    torch.testing.assert_close(pushed, torch.einsum("abcdef,def->abc", expected, tangent))


@every_kind
def test_the_jacobian_is_the_limit_of_differences(kind):
    module, streams, tangent, step = site(kind), points(kind, 2), points(kind, 2), 1e-5
    _, pushed = jvp(module, (streams,), (tangent,))
    difference = (module(streams + step * tangent) - module(streams - step * tangent)) / (2 * step)
    torch.testing.assert_close(pushed, difference, rtol=1e-6, atol=1e-7)


@every_kind
def test_gradients_per_sample_are_those_of_a_loop(kind):
    module, batch = site(kind), points(kind, 3, 2)
    parameters = dict(module.named_parameters())

    def loss(given: dict[str, Tensor], sample: Tensor) -> Tensor:
        return functional_call(module, given, (sample,)).square().mean()

    per_sample = vmap(grad(loss), (None, 0))(parameters, batch)
    for index, sample in enumerate(batch):
        gradients = torch.autograd.grad(module(sample).square().mean(), list(parameters.values()))
        for name, expected in zip(parameters, gradients, strict=True):
            torch.testing.assert_close(per_sample[name][index], expected, msg=lambda m, n=name: f"{n}: {m}")


# --- without data -------------------------------------------------------------------------------------


class Syncing(nn.Module):
    """What must not happen: a number taken from the device, and a branch on it."""

    def forward(self, x: Tensor) -> Tensor:
        return x if x.sum().item() > 0 else -x


def train_without_data(module: hc.HyperConnection, mode: FakeTensorMode) -> None:
    fakes = {name: mode.from_tensor(tensor) for name, tensor in state(module).items()}
    with mode:
        streams = torch.randn(2, 3, 4, 3, dtype=torch.float64, requires_grad=True)
        output = functional_call(module, fakes, (streams,))
        output.square().sum().backward()
    assert output.shape == streams.grad.shape == (2, 3, 4, 3)
    missing = [name for name, _ in module.named_parameters() if fakes[name].grad is None]
    assert missing == []


@every_kind
def test_fake_tensors_pass_forward_and_backward(kind):
    train_without_data(site(kind), FakeTensorMode())


def test_a_branch_that_reads_a_value_is_noticed():
    module = site("identity")
    module.branch = Syncing()
    with pytest.raises(DataDependentOutputException):
        train_without_data(module, FakeTensorMode())


@every_kind
def test_the_meta_device_passes_forward_and_backward_by_hand(kind):
    """Fake tensors meet the specification, tensors on the meta device the hand-written gradients."""
    module = copy.deepcopy(site(kind)).to("meta")
    streams = torch.randn(2, 3, 4, 3, dtype=torch.float64, device="meta", requires_grad=True)
    output = module(streams)
    output.square().sum().backward()
    assert output.shape == streams.grad.shape == (2, 3, 4, 3)
    assert all(parameter.grad is not None for parameter in module.parameters())
    module.branch = Syncing()
    with pytest.raises(RuntimeError, match="meta"):
        module(streams)


# --- differentiated twice, twice the same, and nothing at all -----------------------------------------


@every_kind
def test_a_whole_site_can_be_differentiated_twice(kind):
    module = site(kind, dim=2)
    module.branch = nn.Sequential(nn.Linear(2, 2), nn.Tanh()).double()
    names = [name for name, _ in module.named_parameters() if not name.startswith("branch")]
    values = [module.get_parameter(name).detach().clone().requires_grad_() for name in names]

    def call(streams: Tensor, *given: Tensor) -> Tensor:
        return functional_call(module, dict(zip(names, given, strict=True)), (streams,))

    inputs = (points(kind, 2, dim=2).requires_grad_(), *values)
    assert torch.autograd.gradgradcheck(call, inputs, fast_mode=True)


@pytest.fixture
def deterministic():
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)


@every_kind
def test_two_runs_give_the_same_bits(kind, deterministic):
    module, streams = site(kind, dtype=torch.float32), points(kind, 4, 3, dtype=torch.float32)
    runs = []
    for _ in range(2):
        given = streams.clone().requires_grad_()
        output = module(given)
        runs.append([output, *torch.autograd.grad(output.square().sum(), [given, *module.parameters()])])
    assert all(torch.equal(one, other) for one, other in zip(*runs, strict=True))


@every_kind
@pytest.mark.parametrize("leading", [(0,), (2, 0), (0, 3)], ids=str)
def test_no_tokens_are_no_error_with_or_without_gradients(kind, leading):
    module, streams = site(kind), points(kind, *leading).requires_grad_()
    for context in (torch.enable_grad(), torch.no_grad(), torch.inference_mode()):
        with context:
            output = module(streams)
        assert output.shape == streams.shape
        assert output.requires_grad == isinstance(context, torch.enable_grad)
        assert module.mappings(streams).res.shape == (*leading, 4, 4)
