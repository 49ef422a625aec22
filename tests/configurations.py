"""Sites of every kind, drawn from one table: by a seeded generator, or by hypothesis, which shrinks failures."""

from __future__ import annotations

import contextlib
import math
from dataclasses import dataclass

import torch
from conftest import supported
from torch import Tensor, nn

import hyperconn as hc

ALL_SIZES = tuple(range(1, 9))
HUGE = {torch.float16: 1e3, torch.bfloat16: 1e18, torch.float32: 1e18, torch.float64: 1e150}
SUBNORMAL = {torch.float16: 1e-7, torch.bfloat16: 1e-39, torch.float32: 1e-40, torch.float64: 1e-310}
DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16)

OPTIONS = {
    "site": supported(sizes=ALL_SIZES),
    "mapping": [None, "flat", "per-stream", "static"],
    "retraction": [None, None, 1.0, 1.5, 2.0, 4.0, math.inf],
    "init": ["residual", "paper"],
    "dtype": list(DTYPES),
    "autocast": [None, None, torch.bfloat16, torch.float16],
    "leading": [(), (1,), (5,), (0,), (2, 3), (2, 0), (0, 3), (2, 1, 3)],
    "dim": [1, 2, 7, 16],
    "layout": ["contiguous", "channel-last", "expanded", "sliced", "offset"],
    "tokens": ["ordinary", "zero", "padded", "constant", "huge", "subnormal"],
    "logits": [0.0, 0.1, 1.0, 10.0, 1e2, 1e4],
    "seed": list(range(8)),
}


@dataclass(frozen=True)
class Configuration:
    site: tuple[str, int]
    mapping: str | None
    retraction: float | None
    init: str
    dtype: torch.dtype
    autocast: torch.dtype | None
    leading: tuple[int, ...]
    dim: int
    layout: str
    tokens: str
    logits: float
    seed: int

    @property
    def streams(self) -> int:
        return self.site[1]

    @property
    def has_float16(self) -> bool:
        """The branch at least computes in float16, whose largest number is 65,504."""
        return torch.float16 in (self.dtype, self.autocast)


def draw(generator) -> Configuration:
    """One configuration from a ``random.Random``."""
    return Configuration(**{name: generator.choice(options) for name, options in OPTIONS.items()})


def build(configuration: Configuration) -> tuple[hc.HyperConnection, Tensor, Tensor]:
    """The connection with disturbed parameters, a leaf tensor, and the streams: a view of it, put on the sphere."""
    torch.manual_seed(configuration.seed)
    name, n = configuration.site
    connection = hc.HyperConnection(
        configuration.dim, n, bounded_branch(configuration.dim), constraint=name, layer_index=configuration.seed,
        mapping=configuration.mapping, retraction=configuration.retraction, init=configuration.init,
    )  # fmt: skip
    disturb(connection, *_deviations(configuration, connection))
    connection.to(configuration.dtype)
    leaf, streams = layout(tokens(configuration), configuration.layout)
    return connection, leaf, streams if connection.retraction is None else connection.retraction.project(streams)


def bounded_branch(dim: int) -> nn.Module:
    """A sublayer whose output is of order one for any finite input."""
    return nn.Sequential(nn.Linear(dim, dim), nn.Tanh(), nn.Linear(dim, dim))


def disturb(connection: hc.HyperConnection, logits: float, weights: float = 1.0) -> None:
    """Move static logits and the weights of the dynamic part by the given deviations."""
    if connection.mapping is None:
        return
    with torch.no_grad():
        for name, parameter in connection.mapping.named_parameters():
            deviation = {"bias": logits, "weight": weights}.get(name, 1.0)
            parameter.add_(deviation * torch.randn_like(parameter))


def tokens(configuration: Configuration) -> Tensor:
    """``(..., n, C)``; the padded ones have zeros in every second token."""
    dtype, kind = configuration.dtype, configuration.tokens
    huge = HUGE[torch.float16 if configuration.has_float16 else dtype]
    streams = torch.randn(*configuration.leading, configuration.streams, configuration.dim, dtype=torch.float64)
    if kind == "padded" and configuration.leading:
        streams.flatten(0, -3)[::2] = 0
    scale = {"zero": 0.0, "huge": huge, "subnormal": SUBNORMAL[dtype]}.get(kind, 1.0)
    streams = torch.ones_like(streams) if kind == "constant" else streams
    return (scale * streams).to(dtype)


def layout(values: Tensor, kind: str) -> tuple[Tensor, Tensor]:
    """A leaf and a view of it with these values, however they lie in memory."""
    if kind == "channel-last":
        leaf = values.mT.contiguous().requires_grad_()
        return leaf, leaf.mT
    if kind == "expanded":
        leaf = values[..., :1, :].contiguous().requires_grad_()
        return leaf, leaf.expand_as(values)
    if kind == "sliced":
        leaf = values.repeat_interleave(2, -1).requires_grad_()
        return leaf, leaf[..., ::2]
    if kind == "offset":
        leaf = torch.cat([values.new_zeros(3), values.flatten()]).requires_grad_()
        return leaf, leaf[3:].view(values.shape)
    leaf = values.clone().requires_grad_()
    return leaf, leaf


def autocast(configuration: Configuration) -> contextlib.AbstractContextManager:
    if configuration.autocast is None:
        return contextlib.nullcontext()
    return torch.autocast("cpu", dtype=configuration.autocast)


def _deviations(configuration: Configuration, connection: hc.HyperConnection) -> tuple[float, float]:
    """Where H or the gates have no bound, float16 overflows as it must: keep static and dynamic logits of order one."""
    linear = connection.mapping is not None and isinstance(connection.mapping.gates, hc.gates.LinearGates)
    unbounded = linear or not connection.constraint.nonexpansive
    if not (unbounded and configuration.has_float16):
        return configuration.logits, 1.0
    return min(configuration.logits, 1.0), (configuration.streams * configuration.dim) ** -0.5
