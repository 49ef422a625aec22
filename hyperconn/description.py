"""A description that travels in the state dict: numbers of one constraint must not enter another in silence."""

from __future__ import annotations

import contextlib
import json
from typing import Any

import torch
from torch import Tensor

LONGEST_DESCRIPTION = 1 << 14  # bytes; a real one takes 300
LONGEST_SHOWN = 400
UNREADABLE = (ValueError, TypeError, AttributeError, RuntimeError)  # RuntimeError: without values, or nested too deep


def encode_description(description: dict[str, Any]) -> Tensor:
    """Plain data to a ``uint8`` tensor, which every checkpoint format can hold."""
    return torch.tensor(list(json.dumps(description, sort_keys=True).encode()), dtype=torch.uint8, device="cpu")


def decode_description(state: Tensor) -> dict[str, Any]:
    """The plain data of :func:`encode_description`.

    Raises:
        ValueError: the tensor does not hold a description.
    """
    description = None
    with contextlib.suppress(*UNREADABLE):
        if state.numel() <= LONGEST_DESCRIPTION and not state.is_complex():
            description = json.loads(bytes(state.to(torch.uint8).flatten().tolist()))
    if not isinstance(description, dict):
        raise ValueError("the state dict has an unreadable description of its connection (_extra_state).")
    return description


def check_description(who: str, expected: dict[str, Any], state: Tensor) -> None:
    """Refuse the state of a connection of another kind.

    Raises:
        ValueError: a field differs; both values are named.
    """
    try:
        found = decode_description(state)
    except ValueError as error:
        raise ValueError(f"{who}: {error} Was the checkpoint damaged, or made by something else?") from error
    different = [key for key in expected if found.get(key) != _as_stored(expected[key])]
    if different:
        pairs = "; ".join(f"{key} {_short(found.get(key))} (this model: {expected[key]})" for key in different)
        raise ValueError(f"{who}: the state dict was made with {pairs}. Build the model with the same options.")


def _short(value: Any) -> str:
    """What a file says, without control characters and without end."""
    text = ascii(value)
    return text if len(text) <= LONGEST_SHOWN else text[:LONGEST_SHOWN] + "…"


def _as_stored(value: Any) -> Any:
    return json.loads(json.dumps(value))
