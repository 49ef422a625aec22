"""A description that travels in the state dict: numbers of one constraint must not enter another in silence."""

from __future__ import annotations

import json
from typing import Any

import torch
from torch import Tensor


def encode_description(description: dict[str, Any]) -> Tensor:
    """Plain data to a ``uint8`` tensor, which every checkpoint format can hold."""
    return torch.tensor(list(json.dumps(description, sort_keys=True).encode()), dtype=torch.uint8, device="cpu")


def decode_description(state: Tensor) -> dict[str, Any]:
    """The plain data of :func:`encode_description`.

    Raises:
        ValueError: the tensor does not hold a description.
    """
    try:
        description = json.loads(bytes(state.to(torch.uint8).flatten().tolist()))
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("the state dict has an unreadable description of its connection (_extra_state).") from error
    if not isinstance(description, dict):
        raise ValueError("the state dict has an unreadable description of its connection (_extra_state).")
    return description


def check_description(who: str, expected: dict[str, Any], state: Tensor) -> None:
    """Refuse the state of a connection of another kind.

    Raises:
        ValueError: a field differs; both values are named.
    """
    found = decode_description(state)
    different = [key for key in expected if found.get(key) != _as_stored(expected[key])]
    if different:
        pairs = "; ".join(f"{key} {found.get(key)} (this model: {expected[key]})" for key in different)
        raise ValueError(f"{who}: the state dict was made with {pairs}. Build the model with the same options.")


def _as_stored(value: Any) -> Any:
    return json.loads(json.dumps(value))
