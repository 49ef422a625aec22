"""What a site keeps: nothing without gradients, nothing after the backward, nothing on itself, nothing per step."""

from __future__ import annotations

import gc
from typing import Any

import pytest
import torch
from kinds import every_kind, points, site
from torch import Tensor, nn
from torch.multiprocessing.reductions import StorageWeakRef
from torch.utils._python_dispatch import TorchDispatchMode

import hyperconn as hc


class Storages(TorchDispatchMode):
    """Weak references to the memory of every result of every operation, forward and backward."""

    def __init__(self) -> None:
        super().__init__()
        self.references: list[tuple[str, StorageWeakRef]] = []

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        for tensor in result if isinstance(result, (tuple, list)) else [result]:
            if isinstance(tensor, Tensor):
                self.references.append((str(func), StorageWeakRef(tensor.untyped_storage())))
        return result

    def alive(self, known: nn.Module) -> list[str]:
        """Operations whose result still lies in memory, parameters and tables of the module apart."""
        own = {t.untyped_storage()._cdata for t in (*known.parameters(), *known.buffers())}
        return [name for name, reference in self.references if not (reference.expired() or reference.cdata in own)]


class Keeping(nn.Module):
    """The planted fault: a branch that keeps its input."""

    def forward(self, x: Tensor) -> Tensor:
        self.kept = x
        return x.sin()


@pytest.fixture
def no_collector():
    """What a cycle of references keeps alive stays alive."""
    with Storages():  # the first mode of a process imports torch's compiler, which keeps that call's frames
        torch.ones(1) + 1
    gc.disable()
    yield
    gc.enable()


def left_in_memory(module: nn.Module, kind: str) -> list[str]:
    with Storages() as storages:
        streams = points(kind, 2, 3).requires_grad_()
        output = module(streams)
        output.square().sum().backward()
        held = len(storages.alive(module))
        module.zero_grad(set_to_none=True)
        del streams, output
    assert held > 0, "the references see what is alive"
    return storages.alive(module)


@every_kind
def test_nothing_lives_after_the_backward(kind, no_collector):
    assert left_in_memory(site(kind), kind) == []


def test_a_branch_that_keeps_its_input_is_noticed(no_collector):
    module = site("sinkhorn")
    module.branch = Keeping()
    assert left_in_memory(module, "sinkhorn") != []


@every_kind
@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode])
def test_nothing_is_saved_without_gradients(kind, context, no_collector):
    module, saved = site(kind), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: saved.append(t.shape), lambda t: t):
        with context(), Storages() as storages:
            streams = points(kind, 2, 3)
            output = module(streams)
        assert saved == [] and not output.requires_grad
        del streams, output
        assert storages.alive(module) == []
        assert module(points(kind, 2, 3)).requires_grad
    assert saved, "with gradients the hooks are called"


def attributes(module: nn.Module) -> dict[str, Any]:
    """Everything on every module inside, by identity; parameters and buffers one by one."""
    found = {}
    for name, part in module.named_modules():
        for attribute, value in vars(part).items():
            found[name, attribute] = {k: id(v) for k, v in value.items()} if isinstance(value, dict) else id(value)
    return found


@every_kind
def test_a_forward_leaves_nothing_on_a_module(kind):
    module = site(kind)
    before = attributes(module)
    module(points(kind, 2)).sum().backward()
    module.mappings(points(kind, 2))
    assert attributes(module) == before
    module.branch = Keeping()
    before = attributes(module)
    module(points(kind, 2))
    assert attributes(module) != before


FEW = ("sinkhorn", "permutation", "per-stream mapping", "retraction inf")


def live_tensors() -> tuple[int, int]:
    """How many tensors there are in this process, and their bytes."""
    gc.collect()
    tensors = [thing for thing in gc.get_objects() if issubclass(type(thing), Tensor)]
    return len(tensors), sum(tensor.untyped_storage().nbytes() for tensor in tensors)


def test_memory_is_the_same_at_step_2_and_at_step_200():
    model = nn.ModuleList(site(kind, dtype=torch.float32) for kind in FEW)
    optimizer = torch.optim.AdamW(hc.parameter_groups(model, weight_decay=0.1), lr=1e-4)
    counts = {}
    for step in range(1, 201):
        loss = sum(
            part(points(kind, 2, dtype=torch.float32)).square().mean() for kind, part in zip(FEW, model, strict=True)
        )
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step in (2, 200):
            counts[step] = live_tensors()
    print(f"live tensors and bytes at step 2: {counts[2]}, at step 200: {counts[200]}")
    assert counts[2] == counts[200]
    kept = torch.ones(5)
    assert live_tensors() == (counts[200][0] + 1, counts[200][1] + kept.untyped_storage().nbytes())
