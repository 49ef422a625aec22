"""Constant tables: built on the CPU, moved to a device, one storage for equal tables of many layers."""

from __future__ import annotations

import weakref
from collections.abc import Callable

import torch
from torch import Tensor

_SHARED: weakref.WeakValueDictionary[tuple[object, ...], Tensor] = weakref.WeakValueDictionary()


def table_on_device(build: Callable[[], Tensor], device: torch.device) -> Tensor:
    """The table on a device; on the CPU the same tensor for every layer that asks for equal values."""
    with torch.device("cpu"):
        table = build()
    if device.type == "mps" and table.dtype == torch.float64:
        table = table.float()
    return _shared(table) if device.type == "cpu" else table.to(device)


def _shared(table: Tensor) -> Tensor:
    if type(table) is not Tensor:
        return table  # a fake tensor has no values to compare
    key = (tuple(table.shape), table.dtype)
    known = _SHARED.get(key)
    # Compared by value, so that a table somebody wrote into is never handed out again.
    if known is not None and torch.equal(known, table):
        return known
    _SHARED[key] = table
    return table
