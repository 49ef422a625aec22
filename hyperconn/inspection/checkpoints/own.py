"""Connections of this library in a state dict: the description says what the numbers mean."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...constraints import Constraint, constraint_class
from ...description import LONGEST_DESCRIPTION, decode_description
from ...gates import Gates, LinearGates, SigmoidGates
from ...interop import DeepSeekSinkhorn
from ..sites import Site, plain_gates, starting_matrices
from .errors import CheckpointError, one_line
from .tensors import Tensors

ENDING = "_extra_state"
MOST_STREAMS, LARGEST_OPTION = 64, 1000  # far above anything published, far below anything slow
GATES: dict[str, type[Gates]] = {cls.__name__: cls for cls in (LinearGates, SigmoidGates)}
UNREGISTERED: dict[str, type[Constraint]] = {DeepSeekSinkhorn.__name__: DeepSeekSinkhorn}


@torch.no_grad()
def own_sites(tensors: Tensors) -> Iterator[Site]:
    """The connections in order.

    Raises:
        CheckpointError: a description or its numbers are missing, do not fit each other, or are absurd.
    """
    for name in tensors:
        description = _description(tensors, name)
        if description is not None:
            prefix = name.removesuffix(ENDING)
            try:
                yield _site(tensors, prefix, description)
            except CheckpointError as error:
                raise CheckpointError(f"connection {prefix.rstrip('.') or '(the model itself)'}: {error}") from error


def _description(tensors: Tensors, name: str) -> dict[str, Any] | None:
    """None for the extra state of somebody else."""
    if name != ENDING and not name.endswith("." + ENDING):
        return None
    (length,) = shape if len(shape := tensors.shape(name)) == 1 else (0,)
    if not 0 < length <= LONGEST_DESCRIPTION:
        _refuse_if_ours(tensors, name)
        return None
    state = tensors[name]
    try:
        description = decode_description(state) if state.dtype == torch.uint8 else {}
    except ValueError:
        _refuse_if_ours(tensors, name)
        return None
    return description if {"streams", "constraint", "mapping"} <= description.keys() else None


def _refuse_if_ours(tensors: Tensors, name: str) -> None:
    if name.removesuffix(ENDING) + "mapping.bias" in tensors:
        raise CheckpointError(f"{name}: the description of the connection is unreadable")


def _site(tensors: Tensors, prefix: str, description: dict[str, Any]) -> Site:
    n, name = _count(description["streams"]), prefix.rstrip(".")
    constraint = _constraint(description["constraint"], n)
    _load(tensors, prefix + "constraint.", constraint)
    if description["mapping"] is None:
        one = torch.ones(1)
        return Site(name, constraint.description()["name"], torch.eye(n), one, one, fixed=True)
    bias = _tensor(tensors, prefix + ("mapping.inner.bias" if "fractions" in description else "mapping.bias"))
    k = constraint.num_coordinates
    if bias.dim() != 1 or len(bias) < 2 * n + k:
        raise CheckpointError(f"expected mapping.bias to have at least {2 * n + k} values, got {tuple(bias.shape)}")
    bias = bias if bias.dtype == torch.float64 else bias.float()  # no dtype is promoted with one of eight bits
    matrix = constraint(bias[len(bias) - k :])
    gates = _gates(description["mapping"]) if len(bias) == 2 * n + k else None
    pre, post = (None, None) if gates is None else (gates.pre(bias[:n]), gates.post(bias[n : 2 * n]))
    starts = starting_matrices(constraint) if k else None
    return Site(name, constraint.description()["name"], matrix, *plain_gates(pre, post, matrix), starts, fixed=not k)


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MOST_STREAMS:
        raise CheckpointError(f"expected 1 to {MOST_STREAMS} streams, got {str(value)[:40]}")
    return value


def _constraint(description: Any, n: int) -> Constraint:
    if not isinstance(description, dict) or not isinstance(description.get("name"), str):
        raise CheckpointError(f"expected a constraint by name, got {str(description)[:60]}")
    options = {name: value for name, value in description.items() if name != "name"}
    for option, value in options.items():
        if not isinstance(value, (int, float, type(None))) or (
            value is not None and not abs(value) <= LARGEST_OPTION
        ):
            raise CheckpointError(
                f"constraint option {option[:40]!r}: got {str(value)[:40]}, which no constraint takes"
            )
    if n * max((value for value in options.values() if isinstance(value, int)), default=1) > LARGEST_OPTION * 4:
        raise CheckpointError(f"{n} streams with {options} would take too long to compute")
    known = UNREGISTERED.get(description["name"])
    try:
        return (known or constraint_class(description["name"][:60]))(n, **options)
    except (TypeError, ValueError) as error:
        hint = (
            " If it is your own, import the module that registers it." if "unknown constraint" in str(error) else ""
        )
        raise CheckpointError(f"{one_line(error)}{hint}") from error


def _load(tensors: Tensors, prefix: str, constraint: Constraint) -> None:
    for name, own in constraint.state_dict().items():
        stored = _tensor(tensors, prefix + name)
        if stored.shape != own.shape:
            raise CheckpointError(f"expected {prefix}{name} {tuple(own.shape)}, got {tuple(stored.shape)}")
        own.copy_(stored)


def _tensor(tensors: Tensors, name: str) -> Tensor:
    if name not in tensors:
        raise CheckpointError(f"{name} is missing; is a shard or the end of the file?")
    return tensors[name]


def _gates(mapping: Any) -> Gates | None:
    described = mapping.get("gates") if isinstance(mapping, dict) else None
    if not isinstance(described, dict):
        return None
    numbers = {name: value for name, value in described.items() if name != "kind"}
    known = GATES.get(str(described.get("kind")))
    if known is None or not all(isinstance(value, (int, float)) for value in numbers.values()):
        return None
    try:
        return known(**numbers)
    except TypeError:
        return None
