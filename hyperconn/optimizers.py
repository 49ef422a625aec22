"""Parameter groups for the optimizer."""

from __future__ import annotations

from typing import Any

from torch import nn

from .parameters import ConnectionParameters


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict[str, Any]]:
    """Groups of all parameters of a model, each parameter in exactly one, a tied one once.

    Matrices are decayed, vectors and scalars are not. Of a connection only the mapping's weight
    is decayed; biases, scales, steps and static coordinates are not. Groups with
    ``connection=True`` belong to AdamW even where a Muon-type optimizer takes the other matrices:
    their matrices are projections onto a few logits, not maps between features.

    Args:
        model: the module whose parameters are grouped.
        weight_decay: decay of the decayed groups, at least 0.

    Returns:
        list: dictionaries with ``params``, ``weight_decay``, ``connection`` and ``name``, without empty groups.

    Raises:
        ValueError: weight_decay < 0.
    """
    if not weight_decay >= 0:
        raise ValueError(f"parameter_groups: expected weight_decay >= 0, got {weight_decay}.")
    groups: dict[tuple[bool, bool], list[nn.Parameter]] = {}
    seen: set[int] = set()
    for module in sorted(model.modules(), key=lambda m: not isinstance(m, ConnectionParameters)):
        for name, parameter in module.named_parameters(recurse=False):
            if id(parameter) not in seen:
                seen.add(id(parameter))
                groups.setdefault(_kind(module, name, parameter), []).append(parameter)
    return [
        {
            "params": parameters,
            "weight_decay": weight_decay if decayed else 0.0,
            "connection": connection,
            "name": f"{'connection' if connection else 'model'}-{'decayed' if decayed else 'undecayed'}",
        }
        for (connection, decayed), parameters in sorted(groups.items())
    ]


def _kind(module: nn.Module, name: str, parameter: nn.Parameter) -> tuple[bool, bool]:
    if isinstance(module, ConnectionParameters):
        return True, name in module.decayed_parameters
    return False, parameter.dim() >= 2
