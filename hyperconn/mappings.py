"""Mappings: streams to the pre and post weights and the coordinates of the residual matrix.

Every mapping owns one weight, one bias and one scale per group of logits; the groups are pre (n),
post (n) and the constraint's coordinate groups. The weight is a bare parameter that starts at zero:
training scripts re-initialise every ``nn.Linear``, which would disturb the start.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import fast
from .constraints import Constraint
from .gates import Gates, Init, LinearGates, SigmoidGates
from .numerics import compute_dtype, outside_autocast, parameter_dtype
from .parameters import ConnectionParameters

SCALE_START = 0.01


class Mapped(NamedTuple):
    """What a mapping says of the streams: gates applied, coordinates still free; and the streams, handed on."""

    pre: Tensor
    post: Tensor
    coordinates: Tensor
    streams: Tensor | None


class Mapping(ConnectionParameters, ABC):
    """``(..., n, C) -> pre (..., n), post (..., n), coordinates (..., k)``, in ``float32`` or ``float64``.

    Args:
        dim: width C of one stream.
        streams: number of streams n.
        coordinate_sizes: sizes of the constraint's coordinate groups, k in all.
        start: ``(2n + k,)``, the bias at the start: logits of pre, of post, and the coordinates.
        gates: what turns logits into pre and post weights.
    """

    default_gates: Gates = SigmoidGates()
    decayed_parameters = ("weight",)

    def __init__(
        self,
        dim: int,
        streams: int,
        coordinate_sizes: Sequence[int],
        start: Tensor,
        gates: Gates | None = None,
    ):
        super().__init__()
        self.dim, self.streams = dim, streams
        self.group_sizes = (streams, streams, *coordinate_sizes)
        if start.shape != (self.num_logits,):
            raise ValueError(
                f"{type(self).__name__}(dim={dim}, streams={streams}): expected a start of {self.num_logits} "
                f"values (pre, post, coordinates), got {tuple(start.shape)}."
            )
        self.gates = self.default_gates if gates is None else gates
        self._start = start.tolist()
        self.bias = nn.Parameter(torch.empty(self.num_logits, dtype=parameter_dtype()))

    @property
    def num_logits(self) -> int:
        """2n + k."""
        return sum(self.group_sizes)

    @abstractmethod
    def logits(self, streams: Tensor) -> Tensor:
        """``(..., n, C) -> (..., 2n + k)``, or ``(2n + k,)`` when they do not depend on the streams."""

    def forward(self, streams: Tensor) -> Mapped:
        """The weights for these streams; leading axes are those of the streams, or absent if static."""
        with outside_autocast(streams):
            return self._gated(self.logits(streams), streams)

    def static(self) -> Mapped:
        """The same with the dynamic part at zero: ``pre (n,), post (n,), coordinates (k,)``."""
        return self._gated(self.bias.to(compute_dtype(self.bias)), None)

    def reset_parameters(self) -> None:
        """Put bias, scales and weight at their start."""
        with torch.no_grad():
            self.bias.copy_(torch.tensor(self._start, dtype=torch.float64, device="cpu"))

    def description(self) -> dict[str, Any]:
        """The kind of mapping and its gates, as plain data."""
        kind = next((name for name, cls in MAPPINGS.items() if cls is type(self)), type(self).__name__)
        return {"kind": kind, "gates": self.gates.description()}

    def extra_repr(self) -> str:
        return f"dim={self.dim}, streams={self.streams}, groups={self.group_sizes}, gates={self.gates}"

    def _gated(self, logits: Tensor, streams: Tensor | None) -> Mapped:
        n = self.streams
        pre, post, coordinates = logits.split((n, n, self.num_logits - 2 * n), dim=-1)
        return Mapped(self.gates.pre(pre), self.gates.post(post), coordinates, streams)


class StaticMapping(Mapping):
    """Logits are the bias: the same matrices for every token."""

    def __init__(
        self,
        dim: int,
        streams: int,
        coordinate_sizes: Sequence[int],
        start: Tensor,
        gates: Gates | None = None,
    ):
        super().__init__(dim, streams, coordinate_sizes, start, gates)
        self.reset_parameters()

    def logits(self, streams: Tensor) -> Tensor:
        return self.bias.to(torch.promote_types(compute_dtype(streams), self.bias.dtype))


class DynamicMapping(Mapping):
    """A mapping with a learned weight on normalised streams, and a learned scale per group."""

    def __init__(
        self,
        dim: int,
        streams: int,
        coordinate_sizes: Sequence[int],
        start: Tensor,
        gates: Gates | None = None,
        *,
        epsilon: float = 1e-6,
    ):
        super().__init__(dim, streams, coordinate_sizes, start, gates)
        self.epsilon = epsilon
        self.scale = nn.Parameter(torch.empty(len(self.group_sizes), dtype=parameter_dtype()))
        self.weight = nn.Parameter(torch.empty(self.weight_shape(), dtype=parameter_dtype()))
        self.reset_parameters()

    @abstractmethod
    def weight_shape(self) -> tuple[int, int]:
        """Rows are logits, columns what they are read from."""

    @abstractmethod
    def project(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        """``(..., n, C) -> (..., 2n + k)``, and the streams for whoever uses them next."""

    def forward(self, streams: Tensor) -> Mapped:
        with outside_autocast(streams):
            return self._gated(*self.project(streams))

    def logits(self, streams: Tensor) -> Tensor:
        return self.project(streams)[0]

    def reset_parameters(self) -> None:
        super().reset_parameters()
        nn.init.constant_(self.scale, SCALE_START)
        nn.init.zeros_(self.weight)

    def _scales(self) -> Tensor:
        """``(2n + k,)``: for each logit the scale α of its group."""
        return torch.cat([s.expand(size) for s, size in zip(self.scale.unbind(), self.group_sizes, strict=True)])


class FlatMapping(DynamicMapping):
    """One linear map of all streams together, normalised as one vector (mHC).

    ``x̃ = v / sqrt(mean(v²) + ε)`` with ``v`` the streams laid end to end, stream-major;
    ``logits = α_g · (W x̃) + b``. A gain on ``x̃`` is folded into ``W``.

    Reference: Xie et al., 2025, arXiv 2512.24880.
    """

    def weight_shape(self) -> tuple[int, int]:
        return self.num_logits, self.streams * self.dim

    def project(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        return fast.project(streams, self.weight, self._scales(), self.bias, self.epsilon)


class PerStreamMapping(DynamicMapping):
    """One small linear map shared by the streams, each normalised on its own (original HC).

    ``û_s = X[s] / rms(X[s])``; stream s decides its own pre and post weight and the coordinates
    c with ``c mod n = s``, for an n × n matrix its column s:
    ``pre[s] = a[s] + α tanh(û_s·w)``, ``H[t, s] = A[t, s] + α tanh(û_s·w_t)``. A gain is folded into ``W``.

    Reference: Zhu et al., 2024, arXiv 2409.19606.
    """

    default_gates = LinearGates()

    def weight_shape(self) -> tuple[int, int]:
        num_coordinates = self.num_logits - 2 * self.streams
        return 2 + -(-num_coordinates // self.streams), self.dim

    def project(self, streams: Tensor) -> tuple[Tensor, Tensor]:
        one, zero = self.weight.new_ones(len(self.weight)), self.weight.new_zeros(len(self.weight))
        # As if each stream were all the streams there are, so that it is normalised on its own.
        by_stream, alone = fast.project(streams.unsqueeze(-2), self.weight, one, zero, self.epsilon)
        dynamic = by_stream.tanh().mT.flatten(-2)[..., : self.num_logits]
        wide = dynamic.dtype
        return torch.addcmul(self.bias.to(wide), dynamic, self._scales().to(wide)), alone.squeeze(-2)


MAPPINGS: dict[str, type[Mapping]] = {
    "flat": FlatMapping,
    "per-stream": PerStreamMapping,
    "static": StaticMapping,
}


def as_mapping(
    mapping: str | Mapping | None,
    dim: int,
    constraint: Constraint,
    *,
    layer_index: int = 0,
    init: Init = "residual",
) -> Mapping | None:
    """A mapping that fits the constraint, by name or as given; None for a single stream, which needs none.

    Raises:
        ValueError: unknown name, unknown start, or an instance with other sizes.
    """
    if not (mapping is None or isinstance(mapping, Mapping) or mapping in MAPPINGS):
        raise ValueError(f"unknown mapping {mapping!r}; known: {', '.join(MAPPINGS)}, or an instance of Mapping.")
    if init not in ("residual", "paper"):
        raise ValueError(f"unknown start init={init!r}; known: 'residual', 'paper'.")
    if constraint.streams == 1:
        return None
    if isinstance(mapping, Mapping):
        return _checked(mapping, dim, constraint)
    return _started(mapping or constraint.default_mapping, dim, constraint, layer_index, init)


def _started(name: str, dim: int, constraint: Constraint, layer_index: int, init: Init) -> Mapping:
    cls = MAPPINGS[name]
    # A static mapping keeps the gates of the constraint's own kind: the paper's static variant.
    gates = (MAPPINGS[constraint.default_mapping] if cls is StaticMapping else cls).default_gates
    with torch.device("cpu"):
        coordinates = constraint.paper_coordinates() if init == "paper" else constraint.identity_coordinates()
        pre, post = gates.start(constraint.streams, layer_index % constraint.streams, init)
        start = torch.cat([pre.double(), post.double(), coordinates.double()])
    return cls(dim, constraint.streams, constraint.coordinate_sizes, start, gates)


def _checked(mapping: Mapping, dim: int, constraint: Constraint) -> Mapping:
    n = constraint.streams
    expected = (dim, (n, n, *constraint.coordinate_sizes))
    got = (mapping.dim, mapping.group_sizes)
    if got != expected:
        raise ValueError(
            f"{type(mapping).__name__}: expected dim={expected[0]} and groups {expected[1]} for "
            f"{type(constraint).__name__}(streams={n}), got dim={got[0]} and groups {got[1]}."
        )
    return mapping
