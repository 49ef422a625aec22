"""Reports on residual matrices: the learned static ones, or those of every token of an input."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..connection import HyperConnection
from .quantities import QUANTITIES
from .table import render_table


@dataclass
class ConnectionReport:
    """One connection: its matrix (static, or the mean over tokens) and the quantities, averaged over tokens."""

    name: str
    constraint: str
    matrix: Tensor
    quantities: dict[str, float] = field(default_factory=dict)


@dataclass
class MixingReport:
    """Connections of a model in order; ``print(report)`` shows a table."""

    connections: list[ConnectionReport]
    per_token: bool

    def __iter__(self) -> Iterator[ConnectionReport]:
        return iter(self.connections)

    def __len__(self) -> int:
        return len(self.connections)

    def __getitem__(self, name: str) -> ConnectionReport:
        for connection in self.connections:
            if connection.name == name:
                return connection
        raise KeyError(f"no connection {name!r}; known: {', '.join(c.name for c in self.connections)}")

    def __str__(self) -> str:
        columns = ["connection", "constraint", *(name.replace("_", " ") for name in QUANTITIES)]
        rows = [[c.name, c.constraint, *(f"{v:.4g}" for v in c.quantities.values())] for c in self.connections]
        kind = "per token, means" if self.per_token else "static"
        return render_table(f"residual matrices ({kind})", columns, rows)


def inspect(model: nn.Module, *inputs: Any, **kwargs: Any) -> MixingReport:
    """Report what the residual matrices of a model look like.

    Args:
        model: any module that contains hyper-connections.
        inputs: without inputs the learned static matrices are reported; with inputs the model runs once
            on them, without gradients, and the matrices of all tokens are.
        kwargs: keyword arguments of that run.

    Returns:
        MixingReport: one entry per connection.

    Raises:
        ValueError: the model has no hyper-connection.
    """
    connections = {name: m for name, m in model.named_modules() if isinstance(m, HyperConnection)}
    if not connections:
        raise ValueError(f"inspect: {type(model).__name__} contains no HyperConnection.")
    per_token = bool(inputs or kwargs)
    matrices = _run(model, connections, inputs, kwargs) if per_token else _static(connections)
    return MixingReport([_report(n, connections[n], h) for n, h in matrices.items()], per_token)


@torch.no_grad()
def _static(connections: dict[str, HyperConnection]) -> dict[str, Tensor]:
    return {name: connection.residual_matrix().detach() for name, connection in connections.items()}


@torch.no_grad()
def _run(model: nn.Module, connections: dict[str, HyperConnection], inputs: tuple, kwargs: dict) -> dict[str, Tensor]:
    matrices: dict[str, Tensor] = {}
    hooks = []
    for name, connection in connections.items():
        if connection.streams == 1:
            matrices[name] = connection.residual_matrix().detach()
            continue
        hook = lambda module, args, output, name=name: matrices.__setitem__(name, output.detach())  # noqa: E731
        hooks.append(connection.constraint.register_forward_hook(hook))
    try:
        model(*inputs, **kwargs)
    finally:
        for hook in hooks:
            hook.remove()
    return matrices


@torch.no_grad()
def _report(name: str, connection: HyperConnection, matrix: Tensor) -> ConnectionReport:
    quantities = {key: float(measure(matrix).mean()) for key, measure in QUANTITIES.items()}
    mean = matrix.flatten(0, -3).mean(0) if matrix.dim() > 2 else matrix
    return ConnectionReport(name, connection.constraint.description()["name"], mean.cpu(), quantities)
