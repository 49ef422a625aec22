"""Into n streams, through a stack of connections, and back to one."""

from __future__ import annotations

import copy
import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from . import fast
from .checks import check_count, check_floating, check_streams
from .connection import HyperConnection
from .constraints import Constraint
from .gates import Init
from .mappings import SCALE_START, Mapping
from .numerics import outside_autocast, parameter_dtype
from .parameters import ConnectionParameters
from .recompute import Policy, as_policy, recomputed, segment_length
from .retraction import Retraction, as_retraction
from .switch import Switchable

COLLAPSES = ("mean", "sum", "learned")


class Expand(Switchable):
    """``(..., C) -> (..., n, C)``: n copies, put on the manifold of the retraction if there is one.

    Args:
        streams: number of streams n.
        retraction: what keeps the streams on a sphere: None, a name, an order p, or an instance.

    Raises:
        ValueError: streams < 1.
        TypeError: (forward) integer input; embed it first.
    """

    def __init__(self, streams: int, *, retraction: str | float | Retraction | None = None):
        super().__init__()
        check_count("Expand", "streams", streams)
        self.streams = streams
        retraction = as_retraction(retraction)
        # Expansion only projects: without this copy the retraction's step would be registered twice.
        self._retraction = (retraction,)

    def forward(self, x: Tensor) -> Tensor:
        check_floating(f"Expand(streams={self.streams})", x)
        (retraction,) = self._retraction
        x = x if retraction is None else retraction.project(x)
        n = self.streams if self.enabled else 1
        return x.unsqueeze(-2).expand(*x.shape[:-1], n, x.shape[-1]).contiguous()

    def extra_repr(self) -> str:
        return f"streams={self.streams}"


class Collapse(Switchable):
    """``(..., n, C) -> (..., C)``: back to one stream.

    ``"mean"`` keeps the scale of the plain residual network; ``"sum"`` gives n times it at the
    start. ``"learned"`` weighs the streams per token with ``sigmoid(α W x̃ + b) + ε``, not
    normalised, ``x̃`` the flat RMS-normed streams; it starts as the mean.

    Args:
        how: ``"mean"``, ``"sum"`` or ``"learned"``.
        dim: width C of one stream, for ``"learned"``.
        streams: number of streams n, for ``"learned"``.
        epsilon: ε, added to the learned weights and to the mean square.
        norm_epsilon: what is added to the mean square instead.

    Raises:
        ValueError: an unknown way, or ``"learned"`` without its sizes.

    Reference: the head of DeepSeek-V4 (learned).
    """

    def __init__(
        self,
        how: str = "mean",
        *,
        dim: int | None = None,
        streams: int | None = None,
        epsilon: float = 1e-6,
        norm_epsilon: float | None = None,
    ):
        super().__init__()
        if how not in COLLAPSES:
            raise ValueError(f"unknown collapse {how!r}; known: {', '.join(COLLAPSES)}, or a module of your own.")
        self.how, self.dim, self.streams = how, dim, streams
        self.weights = _learned_weights(dim, streams, epsilon, norm_epsilon) if how == "learned" else None

    def forward(self, streams: Tensor) -> Tensor:
        if self.weights is not None and self.enabled:
            return fast.read(streams, self.weights(streams))[0]
        check_streams(f"Collapse({self.how!r})", streams, self.streams if self.enabled else 1, self.dim)
        if streams.shape[-2] == 1:
            return streams.squeeze(-2)
        return streams.mean(-2) if self.how == "mean" else streams.sum(-2)

    def extra_repr(self) -> str:
        return repr(self.how)


def _learned_weights(
    dim: int | None, streams: int | None, epsilon: float, norm_epsilon: float | None
) -> LearnedWeights | None:
    if dim is None or streams is None:
        raise ValueError(f"Collapse('learned'): expected dim= and streams=, got dim={dim}, streams={streams}.")
    return None if streams == 1 else LearnedWeights(dim, streams, epsilon=epsilon, norm_epsilon=norm_epsilon)


class LearnedWeights(ConnectionParameters):
    """``(..., n, C) -> (..., n)``: ``sigmoid(α W x̃ + b) + ε``, in ``float32`` or ``float64``.

    Args:
        dim: width C of one stream.
        streams: number of streams n.
        epsilon: ε, added to the weights and to the mean square of the streams.
        start: ``(n,)``, the weights at the start; None for the mean, 1/n each.
    """

    decayed_parameters = ("weight",)

    def __init__(
        self,
        dim: int,
        streams: int,
        *,
        epsilon: float = 1e-6,
        norm_epsilon: float | None = None,
        start: Tensor | None = None,
    ):
        super().__init__()
        check_count("Collapse('learned')", "dim", dim)
        check_count("Collapse('learned')", "streams", streams)
        self.dim, self.streams, self.epsilon = dim, streams, epsilon
        self._start = [1 / streams] * streams if start is None else start.tolist()
        self.norm_epsilon = epsilon if norm_epsilon is None else norm_epsilon
        self.weight = nn.Parameter(torch.empty(streams, streams * dim, dtype=parameter_dtype()))
        self.bias = nn.Parameter(torch.empty(streams, dtype=parameter_dtype()))
        self.scale = nn.Parameter(torch.empty(1, dtype=parameter_dtype()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the weights at their start."""
        shares = torch.tensor(self._start, dtype=torch.float64, device="cpu") - self.epsilon
        nn.init.zeros_(self.weight)
        with torch.no_grad():
            self.bias.copy_(shares.logit())
        nn.init.constant_(self.scale, SCALE_START)

    def forward(self, streams: Tensor) -> Tensor:
        check_streams("Collapse('learned')", streams, self.streams, self.dim)
        with outside_autocast(streams):
            scale = self.scale.expand(self.streams)
            logits, _ = fast.project(streams, self.weight, scale, self.bias, self.norm_epsilon)
            return logits.sigmoid() + self.epsilon


class HyperStack(Switchable):
    """A network of hyper-connected branches: expand once, apply every branch, collapse once.

    Args:
        branches: the sublayers in order, each with its own norm, ``(..., C) -> (..., C)``.
        dim: width C of one stream.
        streams: number of streams n.
        constraint, mapping, retraction, init: as in :class:`HyperConnection`; an instance of a constraint, a
            mapping or a retraction is copied for every branch. The step of a retraction starts at
            ``1/√(number of branches)``.
        collapse: ``"mean"``, ``"sum"``, ``"learned"``, or a module ``(..., n, C) -> (..., C)``.
        expand: a module ``(..., C) -> (..., n, C)`` in place of :class:`Expand`.
        recompute: True or a policy keeps, of every few connections together, only the streams that enter the
            first and what the policy says of the branches; the rest is computed again in the backward.

    Raises:
        ValueError: no branches, or what :class:`HyperConnection` raises.
        TypeError: (forward) a branch that returns more than a tensor; the rest would be lost.
    """

    def __init__(
        self,
        branches: Iterable[nn.Module],
        dim: int,
        streams: int = 4,
        *,
        constraint: str | Constraint = "sinkhorn",
        mapping: str | Mapping | None = None,
        retraction: str | float | Retraction | None = None,
        init: Init = "residual",
        collapse: str | nn.Module = "mean",
        expand: nn.Module | None = None,
        recompute: bool | Policy = False,
    ):
        super().__init__()
        branches = list(branches)
        if not branches:
            raise ValueError("HyperStack: expected at least one branch, got none.")
        retraction = as_retraction(retraction)
        self.dim, self.streams = dim, streams
        self.expand = Expand(streams, retraction=copy.deepcopy(retraction)) if expand is None else expand
        self.connections = nn.ModuleList(
            HyperConnection(
                dim,
                streams,
                branch,
                constraint=copy.deepcopy(constraint),
                mapping=copy.deepcopy(mapping),
                retraction=None if retraction is None else retraction.for_depth(len(branches)),
                layer_index=layer_index,
                init=init,
            )
            for layer_index, branch in enumerate(branches)
        )
        self.collapse = Collapse(collapse, dim=dim, streams=streams) if isinstance(collapse, str) else collapse
        self.recompute = as_policy(recompute)

    def forward(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """``(..., C) -> (..., C)``; further arguments go to every branch untouched."""
        return self.collapse(self.before_collapse(x, *args, **kwargs))

    def before_collapse(self, x: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        """``(..., C) -> (..., n, C)``: the streams, e.g. for several heads with a collapse of their own."""
        streams = self.expand(x)
        for segment in self.segments():
            run = functools.partial(self._run_segment, segment, args, kwargs)
            streams = recomputed(self.recompute, run, streams)
        return streams

    def segments(self) -> list[range]:
        """The layer indices of connections that are computed again together; all of them without recomputation."""
        num_connections = len(self.connections)
        length = segment_length(num_connections, self.streams) if self.recompute else num_connections
        starts = range(0, num_connections, length)
        return [range(start, min(start + length, num_connections)) for start in starts]

    def _run_segment(self, segment: range, args: tuple[Any, ...], kwargs: dict[str, Any], streams: Tensor) -> Tensor:
        for layer_index in segment:
            streams = self.connections[layer_index](streams, *args, **kwargs)
            check_tensor(streams, layer_index)
        return streams

    def extra_repr(self) -> str:
        return f"dim={self.dim}, streams={self.streams}"


def check_tensor(output: Any, layer_index: int) -> None:
    if not isinstance(output, Tensor):
        raise TypeError(
            f"HyperStack: branch {layer_index} returned {type(output).__name__}; expected a tensor, because "
            "the rest would be lost. Chain Expand, HyperConnection and Collapse by hand to keep it."
        )
