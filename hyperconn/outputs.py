"""The first element of whatever a branch returns, and the way back to the same structure."""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from typing import Any

from torch import Tensor


def split_first(output: Any) -> tuple[Tensor, Callable[[Tensor], Any]]:
    """The connected tensor of a branch output and a function that puts another in its place.

    Args:
        output: a tensor, or a tuple, named tuple, list, dict or dataclass whose first element is one.

    Returns:
        tuple: the first tensor, and ``rebuild(tensor)`` that returns the same structure around it;
        the rest is passed on untouched.

    Raises:
        TypeError: there is no tensor in first place.
    """
    if isinstance(output, Tensor):
        return output, lambda tensor: tensor
    first, rebuild = _open(output)
    if not isinstance(first, Tensor):
        raise TypeError(
            f"the branch returned {type(output).__name__}; expected a tensor, or a non-empty tuple, list, dict "
            f"or dataclass with a tensor in first place, got {type(first).__name__} there."
        )
    return first, rebuild


def _open(output: Any) -> tuple[Any, Callable[[Tensor], Any]]:
    if isinstance(output, tuple) and output:
        return output[0], lambda tensor: _retuple(output, tensor)
    if isinstance(output, list) and output:
        return output[0], lambda tensor: [tensor, *output[1:]]
    if isinstance(output, dict) and output:
        key = next(iter(output))
        return output[key], lambda tensor: _with_item(output, key, tensor)
    if dataclasses.is_dataclass(output) and not isinstance(output, type) and dataclasses.fields(output):
        name = dataclasses.fields(output)[0].name
        return getattr(output, name), lambda tensor: dataclasses.replace(output, **{name: tensor})
    return None, lambda tensor: tensor


def _retuple(output: tuple[Any, ...], tensor: Tensor) -> tuple[Any, ...]:
    if hasattr(output, "_replace"):
        return type(output)(tensor, *output[1:])
    return (tensor, *output[1:])


def _with_item(output: dict[Any, Any], key: Any, tensor: Tensor) -> dict[Any, Any]:
    changed = copy.copy(output)
    changed[key] = tensor
    return changed
