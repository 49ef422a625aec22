"""Steps on a sphere: each stream keeps its norm and moves along an arc (the SpheretNorm family)."""

from __future__ import annotations

import copy
import math
from abc import ABC, abstractmethod
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from .numerics import compute_dtype, outside_autocast, parameter_dtype
from .parameters import ConnectionParameters

NAMED_ORDERS = {"projection": 1.0, "cayley": 2.0, "exponential": math.inf}
LARGEST_ALGEBRAIC_ORDER = 2
# Below a root mean square of 1e-3 a vector counts as having no direction: it is scaled by 1e3 instead
# of normalised, which bounds the gradient at an all-zero stream.
LEAST_MEAN_SQUARE = 1e-6


class Retraction(ConnectionParameters, ABC):
    """How a stream moves from its point to a proposal: subclass for a manifold of one's own."""

    @abstractmethod
    def forward(self, x: Tensor, proposal: Tensor) -> Tensor:
        """``(..., C), (..., C) -> (..., C)``: the new point, in the dtype of ``x``."""

    def project(self, x: Tensor) -> Tensor:
        """``(..., C) -> (..., C)``: put a vector on the manifold, when the streams are expanded."""
        return x

    def scale_branch(self, branch_output: Tensor) -> Tensor:
        """``(..., C) -> (..., C)``: what the branch output is scaled by before it is written."""
        return branch_output

    def for_depth(self, num_sublayers: int) -> Retraction:
        """A copy for one of ``num_sublayers`` sublayers."""
        return copy.deepcopy(self)

    def description(self) -> dict[str, Any]:
        """The kind of retraction and its numbers, as plain data, for its state dict."""
        return {"kind": type(self).__name__}


class SphericalRetraction(Retraction):
    """Move a point of the sphere along the tangent part of a proposal.

    With ``x`` on the sphere of radius ρ, the tangent ``z = P − (⟨x, P⟩/ρ²) x`` and ``r = ‖z‖/ρ``::

        R_p(x, z) = cos θ · x + (sin θ / r) · z,      θ_p(r) = p · arctan(r / p)

    p = 1 is the metric projection, p = 2 the Cayley map, p = ∞ the exponential map. The angle
    saturates at pπ/2. ρ is fixed, so that an error of the norm dies out instead of walking.

    Args:
        p: order of the retraction, > 0, or ``"projection"``, ``"cayley"``, ``"exponential"``.
        radius: ρ; None takes ``√C``.
        rescale: scale the branch output to the radius before the step, ``ŷ = ρ F/‖F‖``. False is the
            rule as published, with which a transformer with the usual small start hardly moves.
        step: positive factor on the branch output at the start; None takes ``1/√num_sublayers``.
        learn_step: learn the step (kept positive by a softplus); False fixes it.
        num_sublayers: number of sublayers of the network, for the start of the step;
            ``HyperStack`` fills it in.

    Raises:
        ValueError: p, radius or step is not positive, or a name is unknown.

    Reference: SpheretNorm, 2026, arXiv 2608.02668 (p = 1, 2); GeoNorm, 2026, arXiv 2601.22095 (p = ∞).
    """

    raw_step: nn.Parameter | None

    def __init__(
        self,
        p: float | str = 1.0,
        *,
        radius: float | None = None,
        rescale: bool = True,
        step: float | None = None,
        learn_step: bool = True,
        num_sublayers: int = 1,
    ):
        super().__init__()
        self.p = _order(p)
        self.radius = None if radius is None else _positive("radius", radius)
        self.rescale = bool(rescale)
        self.step_start = None if step is None else _positive("step", step)
        self.num_sublayers = int(_positive("num_sublayers", num_sublayers))
        # One element, not a scalar: sharding (FSDP2) takes no scalars.
        raw_step = nn.Parameter(torch.empty(1, dtype=parameter_dtype())) if learn_step else None
        self.register_parameter("raw_step", raw_step)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Put the step at its start."""
        if self.raw_step is not None:
            start = self._start()
            nn.init.constant_(self.raw_step, start + math.log(-math.expm1(-start)))  # the inverse of softplus

    def for_depth(self, num_sublayers: int) -> SphericalRetraction:
        """A copy for one of ``num_sublayers`` sublayers; a step given explicitly stays."""
        fitted = copy.deepcopy(self)
        fitted.num_sublayers = num_sublayers
        fitted.reset_parameters()
        return fitted

    def description(self) -> dict[str, Any]:
        fixed_step = self._start() if self.raw_step is None else None
        numbers = {"p": self.p, "radius": self.radius, "rescale": self.rescale, "fixed_step": fixed_step}
        return {**super().description(), **numbers}

    @property
    def step(self) -> Tensor | float:
        """The positive factor on the branch output, a scalar."""
        return self._start() if self.raw_step is None else F.softplus(self.raw_step).squeeze(0)

    def project(self, x: Tensor) -> Tensor:
        """``(..., C) -> (..., C)``: scale every vector to the radius; zero stays zero."""
        wide = compute_dtype(x)
        with outside_autocast(x):
            return self._to_radius(x.to(wide)).to(x.dtype)

    def scale_branch(self, branch_output: Tensor) -> Tensor:
        """``(..., C) -> (..., C)``: the branch output rescaled to the radius and times the step."""
        wide = compute_dtype(branch_output)
        with outside_autocast(branch_output):
            output = branch_output.to(wide)
            step = self._start() if self.raw_step is None else F.softplus(self.raw_step.to(wide))
            return step * (self._to_radius(output) if self.rescale else output)

    def forward(self, x: Tensor, proposal: Tensor) -> Tensor:
        """``R_p`` along the tangent part of the proposal.

        Args:
            x: ``(..., C)``, points on the sphere.
            proposal: ``(..., C)``, where the Euclidean update would go.

        Returns:
            Tensor: ``(..., C)``, points on the sphere, in the dtype of ``x``.
        """
        wide = compute_dtype(x)
        with outside_autocast(x):
            return self._retract(x.to(wide), proposal.to(wide)).to(x.dtype)

    def extra_repr(self) -> str:
        radius = "√C" if self.radius is None else self.radius
        return f"p={self.p:g}, radius={radius}, rescale={self.rescale}, learn_step={self.raw_step is not None}"

    def _start(self) -> float:
        return self.num_sublayers**-0.5 if self.step_start is None else self.step_start

    def _retract(self, x: Tensor, proposal: Tensor) -> Tensor:
        radius_squared = self._radius(x.shape[-1]) ** 2
        tangent = _tangent(x, proposal, radius_squared)
        # Again, because of a large proposal along x the first leaves its rounding, which points anywhere.
        tangent = _tangent(x, tangent, radius_squared)
        cosine, sinc = _arc(tangent.square().sum(-1, keepdim=True) / radius_squared, self.p)
        return cosine * x + sinc * tangent

    def _to_radius(self, x: Tensor) -> Tensor:
        width = x.shape[-1]
        mean_square = x.square().mean(-1, keepdim=True).clamp_min(LEAST_MEAN_SQUARE)
        return x * (mean_square.rsqrt() * (self._radius(width) / math.sqrt(width)))

    def _radius(self, width: int) -> float:
        return math.sqrt(width) if self.radius is None else self.radius


def as_retraction(retraction: str | float | Retraction | None) -> Retraction | None:
    """None, a name, an order p or an instance, to a retraction or nothing."""
    if retraction is None or isinstance(retraction, Retraction):
        return retraction
    return SphericalRetraction(retraction)


def _tangent(x: Tensor, vector: Tensor, radius_squared: float) -> Tensor:
    return vector - (x * vector).sum(-1, keepdim=True) / radius_squared * x


def _arc(r_squared: Tensor, p: float) -> tuple[Tensor, Tensor]:
    """``cos θ_p(r)`` and ``sin θ_p(r) / r`` from ``r²``, smooth at 0."""
    if p == int(min(p, LARGEST_ALGEBRAIC_ORDER)):
        return _algebraic_arc(r_squared, int(p))
    return _trigonometric_arc(r_squared, p)


def _algebraic_arc(r_squared: Tensor, p: int) -> tuple[Tensor, Tensor]:
    """Powers of ``(1 + ir/p)/√(1 + r²/p²)``: p = 1 and 2 need neither a root at zero nor an angle."""
    scale = torch.rsqrt(1 + r_squared / p**2)
    cosine, sinc = scale, scale / p
    for _ in range(p - 1):
        cosine, sinc = scale * (cosine - r_squared * sinc / p), scale * (sinc + cosine / p)
    return cosine, sinc


def _trigonometric_arc(r_squared: Tensor, p: float) -> tuple[Tensor, Tensor]:
    inverse_square = 0.0 if math.isinf(p) else 1 / p**2
    small = r_squared < math.sqrt(torch.finfo(r_squared.dtype).eps)
    r = torch.where(small, torch.ones_like(r_squared), r_squared).sqrt()
    angle = r if math.isinf(p) else p * torch.atan(r / p)
    cosine_series = 1 - r_squared / 2 + r_squared.square() * (1 / 24 + inverse_square / 3)
    sinc_series = 1 - r_squared * (1 / 6 + inverse_square / 3)
    return (
        torch.where(small, cosine_series, angle.cos()),
        torch.where(small, sinc_series, angle.sin() / r),
    )


def _order(p: float | str) -> float:
    if isinstance(p, str):
        if p not in NAMED_ORDERS:
            raise ValueError(f"unknown retraction {p!r}; known: {', '.join(NAMED_ORDERS)}, or an order p > 0.")
        return NAMED_ORDERS[p]
    return _positive("p", p)


def _positive(what: str, value: float) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not value > 0:
        raise ValueError(f"SphericalRetraction: expected {what} > 0, got {value!r}.")
    return float(value)
