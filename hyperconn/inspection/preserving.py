"""Running somebody's model without leaving a trace in it."""

from __future__ import annotations

import contextlib
import random
from collections.abc import Iterator

import torch
from torch import nn


@contextlib.contextmanager
def preserving(model: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients; afterwards every module's mode and the random states are as before.

    Evaluation mode also keeps running statistics and other buffers of training where they are.
    A compiled model runs eagerly, because compiled code would not notice that somebody listens.
    """
    modes = [(module, module.training) for module in model.modules()]
    python_state = random.getstate()
    try:
        with _same_random_state(model), torch.no_grad(), eagerly():
            model.eval()
            yield
    finally:
        random.setstate(python_state)
        for module, mode in modes:
            module.training = mode


def eagerly() -> contextlib.AbstractContextManager[None]:
    """A context in which compiled modules run their Python code."""
    return torch.compiler.set_stance("force_eager")


@contextlib.contextmanager
def _same_random_state(model: nn.Module) -> Iterator[None]:
    devices = {parameter.device for parameter in model.parameters() if parameter.device.type not in ("cpu", "meta")}
    by_type: dict[str, list[int]] = {}
    for device in devices:
        by_type.setdefault(device.type, []).append(device.index or 0)
    with contextlib.ExitStack() as stack:
        stack.enter_context(torch.random.fork_rng(devices=[]))
        for kind, indices in by_type.items():
            stack.enter_context(torch.random.fork_rng(devices=indices, device_type=kind))
        yield
