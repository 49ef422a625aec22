"""The families: which modules carry their sites, and what their numbers mean."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Any

from ..constraints import Constraint
from ..constraints.identity import Identity
from ..gates import SigmoidGates
from .deepseek_sinkhorn import DeepSeekSinkhorn


@dataclass(frozen=True)
class SiteOptions:
    """The numbers of a site beside its tensors, named as in the configurations of ``transformers``."""

    hc_eps: float = 1e-6
    rms_norm_eps: float = 1e-6
    hc_sinkhorn_iters: int = 20
    hc_magnitude: float = 2.0


@dataclass(frozen=True)
class Family(ABC):
    """One family of models.

    Args:
        name: its ``model_type``.
        site_classes, head_classes: names of its modules in ``transformers``.
        learned_head: whether the head has weights; otherwise it is the mean.
        defaults: the numbers of its published configuration.
    """

    name: str
    site_classes: tuple[str, ...]
    head_classes: tuple[str, ...]
    learned_head: bool
    defaults: SiteOptions
    mixes: bool

    @abstractmethod
    def streams_of(self, num_logits: int) -> int:
        """n, from the number of rows of a site's ``fn``."""

    @abstractmethod
    def constraint(self, streams: int, options: SiteOptions) -> Constraint:
        """The constraint of a site."""

    @abstractmethod
    def gates(self, options: SiteOptions) -> SigmoidGates:
        """The gates of a site."""

    def options_of(self, module: Any) -> SiteOptions:
        """The numbers that a site or head of ``transformers`` carries; the defaults where it carries none."""
        found = {
            "hc_eps": getattr(module, "hc_eps", getattr(module, "eps", None)),
            "rms_norm_eps": getattr(getattr(module, "input_norm", None), "eps", None),
            "hc_sinkhorn_iters": getattr(module, "hc_sinkhorn_iters", None),
            "hc_magnitude": getattr(module, "hc_post_magnitude", None),
        }
        return replace(self.defaults, **{key: value for key, value in found.items() if value is not None})


class Mixing(Family):
    """Sites with pre, post and a doubly stochastic matrix: DeepSeek-V4 and GLM-5-Next."""

    def streams_of(self, num_logits: int) -> int:
        return math.isqrt(num_logits + 1) - 1

    def constraint(self, streams: int, options: SiteOptions) -> Constraint:
        return DeepSeekSinkhorn(streams, iterations=options.hc_sinkhorn_iters, epsilon=options.hc_eps)

    def gates(self, options: SiteOptions) -> SigmoidGates:
        return SigmoidGates(pre_epsilon=options.hc_eps)


class Independent(Family):
    """Sites with pre and post alone, ``H = I``: HY-V4. ε is added to post as well."""

    def streams_of(self, num_logits: int) -> int:
        return num_logits // 2

    def constraint(self, streams: int, options: SiteOptions) -> Constraint:
        return Identity(streams)

    def gates(self, options: SiteOptions) -> SigmoidGates:
        return SigmoidGates(options.hc_eps, options.hc_eps, options.hc_magnitude)


DEEPSEEK_V4 = Mixing(
    "deepseek_v4", ("DeepseekV4HyperConnection",), ("DeepseekV4HyperHead",), True, SiteOptions(), mixes=True
)
GLM5_NEXT = Mixing(
    "glm5_next",
    ("Glm5NextTextHyperConnection",),
    ("Glm5NextTextHyperHead",),
    False,
    SiteOptions(rms_norm_eps=1e-5),
    mixes=True,
)
HY_V4 = Independent(
    "hy_v4",
    ("HYV4HyperConnection", "HYV4VLHyperConnection"),
    ("HYV4HyperHead", "HYV4VLHyperHead"),
    True,
    SiteOptions(rms_norm_eps=1e-5),
    mixes=False,
)
FAMILIES: dict[str, Family] = {family.name: family for family in (DEEPSEEK_V4, GLM5_NEXT, HY_V4)}


def family_named(family: str | None, who: str) -> Family:
    """The family of this name.

    Raises:
        ValueError: no name was given, or an unknown one.
    """
    if family in FAMILIES:
        return FAMILIES[family]
    raise ValueError(f"{who}: expected family= to be one of {', '.join(map(repr, FAMILIES))}, got {family!r}.")


def family_of(module: Any, kind: str, family: str | None, who: str) -> Family:
    """The family of a module by the name of its class, or the named one for a dict of tensors.

    Raises:
        ValueError: the class is not known and no family was named.
    """
    if family is not None or isinstance(module, dict):
        return family_named(family, who)
    name = type(module).__name__
    for known in FAMILIES.values():
        if name in getattr(known, f"{kind}_classes"):
            return known
    classes = [name for known in FAMILIES.values() for name in getattr(known, f"{kind}_classes")]
    raise ValueError(f"{who}: unknown {kind} {name}; known: {', '.join(classes)}. Name its family= if it is a copy.")
