"""The hand-written gradients against the specification: values, every gradient, and nobody's memory touched."""

from __future__ import annotations

import pytest
import torch
from conftest import relative_error
from torch import Tensor

from hyperconn import fast, functional
from hyperconn.fast import chunks, matmul
from hyperconn.numerics import tolerance

TOKENS = pytest.mark.parametrize("leading", [(), (1,), (17,), (3, 11), (2049,), (0,), (2, 0)], ids=str)
SIZES = pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 8])
DTYPES = pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16], ids=str)
C = 12


def arguments(leading: tuple[int, ...], n: int, dtype: torch.dtype, dim: int = C) -> dict[str, Tensor]:
    """Leaves for the three functions; maps are at least float32, as a site makes them."""
    wide = torch.promote_types(dtype, torch.float32)
    m = 2 * n + n * n
    return {
        "streams": leaf(*leading, n, dim, dtype=dtype),
        "weight": leaf(m, n * dim, dtype=wide),
        "scale": leaf(m, dtype=wide),
        "bias": leaf(m, dtype=wide),
        "pre": leaf(*leading, n, dtype=wide),
        "post": leaf(*leading, n, dtype=wide),
        "res": leaf(*leading, n, n, dtype=wide),
        "y": leaf(*leading, dim, dtype=dtype),
    }


def leaf(*shape: int, dtype: torch.dtype) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64).to(dtype).requires_grad_()


def specified(a: dict[str, Tensor]) -> tuple[Tensor, ...]:
    streams = a["streams"]
    logits = functional.project(streams, a["weight"], a["scale"], a["bias"], 1e-6)
    return (
        logits,
        functional.read(streams, a["pre"]),
        functional.mix(streams, a["post"], a["res"], a["y"]),
        functional.write(streams, a["post"], a["res"], a["y"]),
    )


def handwritten(a: dict[str, Tensor]) -> tuple[Tensor, ...]:
    """Chained as a site chains them: each hands the streams on to the next."""
    logits, streams = fast.project(a["streams"], a["weight"], a["scale"], a["bias"], 1e-6)
    u, streams = fast.read(streams, a["pre"])
    return (
        logits,
        u,
        fast.mix(streams, a["post"], a["res"], a["y"]),
        fast.write(streams, a["post"], a["res"], a["y"]),
    )


def reference(a: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: tensor.detach().double().requires_grad_() for name, tensor in a.items()}


def backward(outputs: tuple[Tensor, ...], inputs: dict[str, Tensor], cotangents: list[Tensor]) -> dict[str, Tensor]:
    cotangents = [c.to(o.dtype) for c, o in zip(cotangents, outputs, strict=True)]
    found = torch.autograd.grad(outputs, list(inputs.values()), cotangents)
    return dict(zip(inputs, found, strict=True))


@TOKENS
@SIZES
@DTYPES
def test_every_gradient_equals_the_specification(leading, n, dtype):
    assert_equals_the_specification(arguments(leading, n, dtype))


@pytest.mark.parametrize("n", [4, 8])
@pytest.mark.parametrize("tokens", [700, 512], ids=["a broken chunk", "whole chunks"])
@pytest.mark.parametrize("onednn", [True, False], ids=["oneDNN", "no oneDNN"])
def test_products_of_the_size_of_a_model(n, tokens, onednn, monkeypatch):
    if onednn and not matmul.onednn_at_hand():
        pytest.skip("NOT TESTED: this build of PyTorch has no oneDNN")
    calls = count_calls(monkeypatch, "_onednn")
    monkeypatch.setattr(matmul, "onednn_at_hand", lambda: onednn)
    assert_equals_the_specification(arguments((tokens,), n, torch.float32, dim=512))
    assert bool(calls) == onednn


@pytest.mark.parametrize("numbers", [1, 3 * 4 * C, 5 * 4 * C])
@DTYPES
def test_any_chunk_gives_the_same(numbers, dtype, monkeypatch):
    """Of one token, of three, and of five, which does not divide the tokens there are."""
    monkeypatch.setattr(chunks, "CHUNK", numbers)
    assert_equals_the_specification(arguments((3, 4), 4, dtype))


def count_calls(monkeypatch, name: str) -> list[str]:
    original, calls = getattr(matmul, name), []

    def counted(*arguments):
        calls.append(name)
        return original(*arguments)

    monkeypatch.setattr(matmul, name, counted)
    return calls


def assert_equals_the_specification(a: dict[str, Tensor]) -> None:
    dtype, (n, dim) = a["streams"].dtype, a["streams"].shape[-2:]
    exact, outputs = specified(reference(a)), handwritten(a)
    cotangents = [torch.randn_like(output) for output in exact]
    exact_inputs = reference(a)
    expected = backward(specified(exact_inputs), exact_inputs, cotangents)
    got = backward(outputs, a, cotangents)
    bound = 8 * tolerance(dtype, n * dim)
    for name, gradient in got.items():
        assert gradient.shape == a[name].shape
        assert gradient.dtype == a[name].dtype
        assert (
            gradient.numel() == 0 or not expected[name].any() or relative_error(gradient, expected[name]) <= bound
        ), name
    for one, other in zip(outputs, exact, strict=True):
        assert one.numel() == 0 or relative_error(one, other) <= bound


@pytest.mark.parametrize("size", [1e-12, 1e12, 1e17])
def test_huge_and_tiny_streams_keep_the_gradient_through_the_normalisation(size):
    a = arguments((17,), 4, torch.float32)
    a["streams"] = (size * a["streams"].detach()).requires_grad_()
    exact = reference(a)
    names = ("streams", "weight", "scale", "bias")
    outputs = (
        functional.project(*(exact[name] for name in names), 1e-30),
        fast.project(*(a[name] for name in names), 1e-30)[0],
    )
    cotangent = torch.randn_like(outputs[0])
    expected = torch.autograd.grad(outputs[0], [exact[name] for name in names], cotangent)
    got = torch.autograd.grad(outputs[1], [a[name] for name in names], cotangent.float())
    for one, other in zip(got, expected, strict=True):
        assert relative_error(size * one.double(), size * other) <= 8 * tolerance(torch.float32, 4 * C)


@SIZES
def test_static_maps_are_broadcast_and_their_gradients_summed(n):
    a = arguments((3, 5), n, torch.float64)
    a |= {
        "pre": leaf(n, dtype=torch.float64),
        "post": leaf(n, dtype=torch.float64),
        "res": leaf(n, n, dtype=torch.float64),
    }
    cotangents = [torch.randn_like(output) for output in specified(a)]
    expected, got = backward(specified(a), a, cotangents), backward(handwritten(a), a, cotangents)
    for name, gradient in got.items():
        assert relative_error(gradient, expected[name]) <= 1e-12, name


@pytest.mark.parametrize("used", [(0,), (1,), (2,), (3,), (0, 1), (0, 3), (1, 2)], ids=str)
def test_outputs_that_nobody_uses_leave_no_trace(used):
    a = arguments((3, 5), 4, torch.float64)
    pick = lambda outputs: [outputs[index] for index in used]  # noqa: E731
    cotangents = [torch.randn_like(output) for output in pick(specified(a))]
    expected = torch.autograd.grad(pick(specified(a)), list(a.values()), cotangents, allow_unused=True)
    got = torch.autograd.grad(pick(handwritten(a)), list(a.values()), cotangents, allow_unused=True)
    for name, one, other in zip(a, got, expected, strict=True):
        assert (one is None or not one.any()) if other is None else relative_error(one, other) <= 1e-12, name


@pytest.mark.parametrize("frozen", ["streams", "weight", "scale", "bias", "pre", "post", "res", "y"])
def test_frozen_inputs_get_no_gradient_and_change_no_other(frozen):
    a = arguments((3, 5), 4, torch.float64)
    expected_all = total_gradient(specified, a)
    a[frozen] = a[frozen].detach()
    got = total_gradient(
        handwritten, {name: tensor.detach().requires_grad_(name != frozen) for name, tensor in a.items()}
    )
    assert got.pop(frozen) is None
    for name, gradient in got.items():
        assert relative_error(gradient, expected_all[name]) <= 1e-12, name


def total_gradient(function, a: dict[str, Tensor]) -> dict[str, Tensor | None]:
    sum(
        (output * torch.linspace(-1, 1, output.numel(), dtype=output.dtype).view_as(output)).sum()
        for output in function(a)
    ).backward()
    gradients = {name: tensor.grad for name, tensor in a.items()}
    for tensor in a.values():
        tensor.grad = None
    return gradients


def chain(a: dict[str, Tensor], watch) -> Tensor:
    logits, streams = fast.project(a["streams"], a["weight"], a["scale"], a["bias"], 1e-6)
    watch(streams)
    u, streams = fast.read(streams, a["pre"] + logits[..., : a["pre"].shape[-1]])
    watch(streams)
    return fast.write(streams, a["post"], a["res"], a["y"] * u)


def gradient_of_chain(a: dict[str, Tensor], watch, cotangent: Tensor) -> Tensor:
    (found,) = torch.autograd.grad(chain(a, watch), [a["streams"]], [cotangent])
    return found


def nobody(streams: Tensor) -> None:
    pass


def watched_by_hook(kept: list[Tensor]):
    return lambda streams: streams.register_hook(kept.append)


def watched_by_node(kept: list[Tensor]):
    return lambda streams: streams.grad_fn.register_hook(
        lambda ins, outs: kept.extend(t for t in (*ins, *outs) if t is not None)
    )


@pytest.mark.parametrize("watcher", [watched_by_hook, watched_by_node])
def test_gradients_that_somebody_keeps_are_never_written_to(watcher):
    a = arguments((3, 5), 4, torch.float64)
    cotangent = torch.randn(3, 5, 4, C, dtype=torch.float64)
    snapshots: list[tuple[Tensor, Tensor]] = []

    class Keeper(list):
        def append(self, gradient):
            snapshots.append((gradient, gradient.clone()))

        def extend(self, gradients):
            for gradient in gradients:
                self.append(gradient)

    expected = gradient_of_chain(a, nobody, cotangent)
    assert torch.equal(gradient_of_chain(a, watcher(Keeper()), cotangent), expected)
    assert snapshots
    for kept, as_it_was in snapshots:
        assert torch.equal(kept, as_it_was)


def test_retained_gradients_are_those_of_the_specification():
    a = arguments((3, 5), 4, torch.float64)
    seen = []
    output = chain(a, lambda streams: (streams.retain_grad(), seen.append(streams)))
    cotangent = torch.randn_like(output)
    output.backward(cotangent, retain_graph=True)
    first = [streams.grad.clone() for streams in seen]
    output.backward(cotangent)
    for streams, once in zip(seen, first, strict=True):
        torch.testing.assert_close(streams.grad, 2 * once)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_the_cotangent_of_the_caller_is_never_written_to(dtype):
    """Whatever is handed to ``backward`` stays as it was, alone or used by two graphs at once."""
    a = arguments((3, 5), 4, dtype)
    for outputs in (handwritten(a), [chain(a, nobody)], [fast.read(a["streams"], a["pre"])[1]]):
        cotangents = [torch.randn_like(output) for output in outputs]
        before = [cotangent.clone() for cotangent in cotangents]
        torch.autograd.grad(outputs, [a["streams"]], cotangents)
        assert all(torch.equal(one, other) for one, other in zip(cotangents, before, strict=True))


def test_streams_used_elsewhere_receive_the_sum():
    a = arguments((3, 5), 4, torch.float64)

    def both(function) -> Tensor:
        logits, streams = function(a)
        return logits.square().sum() + (streams**3).sum() + a["streams"].sin().sum() + (streams * a["streams"]).sum()

    ours = both(lambda a: fast.project(a["streams"], a["weight"], a["scale"], a["bias"], 1e-6))
    theirs = both(
        lambda a: (functional.project(a["streams"], a["weight"], a["scale"], a["bias"], 1e-6), a["streams"])
    )
    (got,), (expected,) = torch.autograd.grad(ours, [a["streams"]]), torch.autograd.grad(theirs, [a["streams"]])
    assert relative_error(got, expected) <= 1e-12


def test_gradcheck_and_gradgradcheck():
    a = arguments((2,), 2, torch.float64)
    names = list(a)
    call = lambda *tensors: handwritten(dict(zip(names, tensors, strict=True)))  # noqa: E731
    assert torch.autograd.gradcheck(call, tuple(a.values()), fast_mode=True)
    assert torch.autograd.gradgradcheck(call, tuple(a.values()), fast_mode=True)


def test_transforms_and_subclasses_take_the_specification():
    a = {name: tensor.detach() for name, tensor in arguments((3,), 2, torch.float64).items()}
    rows = {
        name: tensor for name, tensor in a.items() if tensor.shape[0] == 3 and name not in ("weight", "scale", "bias")
    }
    mapped = torch.func.vmap(lambda rows: handwritten(a | rows)[3])(rows)
    torch.testing.assert_close(mapped, specified(a)[3])
    value, tangent = torch.func.jvp(
        lambda x: handwritten(a | {"streams": x})[0], (a["streams"],), (torch.ones_like(a["streams"]),)
    )
    expected = torch.func.jvp(
        lambda x: specified(a | {"streams": x})[0], (a["streams"],), (torch.ones_like(a["streams"]),)
    )
    torch.testing.assert_close((value, tangent), expected)


@pytest.mark.parametrize("layout", ["transposed", "expanded", "sliced"])
def test_layouts_that_are_not_contiguous(layout):
    a = arguments((3, 5), 4, torch.float64)
    view = {
        "transposed": lambda t: t.transpose(0, 1).contiguous().transpose(0, 1),
        "expanded": lambda t: t[:, :, :1].expand(-1, -1, 4, -1),
        "sliced": lambda t: torch.cat([t, t], -1)[..., ::2],
    }[layout]
    viewed = lambda function: function(a | {"streams": view(a["streams"])})  # noqa: E731
    cotangents = [torch.randn_like(output) for output in viewed(specified)]
    expected, got = backward(viewed(specified), a, cotangents), backward(viewed(handwritten), a, cotangents)
    for name, gradient in got.items():
        assert relative_error(gradient, expected[name]) <= 1e-12, name
