"""One site of every constraint, of every mapping and of every retraction, with all parameters disturbed."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from conftest import branch, supported
from torch import Tensor, nn

import hyperconn as hc

STREAMS = 4
KINDS: dict[str, dict[str, Any]] = {
    **{name: {"constraint": name, "mapping": "flat"} for name, _ in supported(sizes=(STREAMS,))},
    "static mapping": {"constraint": "shc", "mapping": "static"},
    "per-stream mapping": {"constraint": "shc", "mapping": "per-stream"},
    **{f"retraction {p:g}": {"constraint": "mhc", "retraction": p} for p in (1.0, 1.5, 2.0, math.inf)},
}
every_kind = pytest.mark.parametrize("kind", KINDS)


def site(kind: str, dim: int = 3, dtype: torch.dtype = torch.float64) -> hc.HyperConnection:
    """A connection around a random sublayer."""
    return disturbed(hc.HyperConnection(dim, STREAMS, branch(dim), **KINDS[kind])).to(dtype)


def stack(kind: str, dim: int = 6, **options: Any) -> hc.HyperStack:
    """A network of one sublayer."""
    return disturbed(hc.HyperStack([branch(dim)], dim, STREAMS, **KINDS[kind], **options))


def points(kind: str, *leading: int, dim: int = 3, dtype: torch.dtype = torch.float64) -> Tensor:
    """Streams ``(..., 4, C)``; on the sphere where a retraction expects them there."""
    streams = torch.randn(*leading, STREAMS, dim, dtype=dtype)
    return hc.SphericalRetraction().project(streams) if "retraction" in KINDS[kind] else streams


def disturbed(module: Any) -> Any:
    """The module with random numbers added to every parameter."""
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return module


def state(module: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers by name, as ``torch.func.functional_call`` takes them."""
    return {**dict(module.named_parameters()), **dict(module.named_buffers())}
