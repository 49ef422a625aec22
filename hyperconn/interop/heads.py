"""The head that collapses the streams: a module or its tensors to a collapse, and back bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from ..streams import Collapse
from .families import family_of
from .tensors import copy_into, tensors_of


def from_head(module: Any, family: str | None = None, **options: Any) -> Collapse:
    """A collapse that computes what the head of a published model computes.

    Args:
        module: a head of ``transformers`` (``hc_head``), or a dict of its tensors under any of the
            published names, which needs ``family``; the head of ``glm5_next`` is a mean without tensors.
        family: ``"deepseek_v4"``, ``"glm5_next"`` or ``"hy_v4"``.
        options: ``hc_eps`` and ``rms_norm_eps``, which a dict does not carry.

    Returns:
        Collapse: with copies of the tensors, in ``float32``.

    Raises:
        ValueError: unknown family, missing tensors, or shapes that do not fit each other.
    """
    known = family_of(module, "head", family, "from_head")
    if not known.learned_head:
        return Collapse("mean")
    fn, base, scale = tensors_of(module, "from_head")
    streams = len(base)
    numbers = replace(known.options_of(module), **options)
    if streams < 2 or fn.dim() != 2 or fn.shape[1] % streams:
        raise ValueError(f"from_head({known.name!r}): expected fn (n, n·C) with n >= 2, got fn {tuple(fn.shape)}.")
    collapse = Collapse(
        "learned",
        dim=fn.shape[1] // streams,
        streams=streams,
        epsilon=numbers.hc_eps,
        norm_epsilon=numbers.rms_norm_eps,
    ).to(fn.device)
    weights: Any = collapse.weights
    copy_into(
        f"from_head({known.name!r})", fn=(weights.weight, fn), base=(weights.bias, base), scale=(weights.scale, scale)
    )
    return collapse


def to_head(collapse: Collapse) -> dict[str, Tensor]:
    """The tensors of a head: ``hc_fn (n, n·C)``, ``hc_base (n)``, ``hc_scale (1)``; none for a mean.

    Raises:
        ValueError: a sum, which no family has.
    """
    if collapse.how == "mean":
        return {}
    weights = collapse.weights
    if weights is None:
        raise ValueError(f"to_head: expected a mean or a learned collapse, got Collapse({collapse.how!r}).")
    return {
        "hc_fn": weights.weight.detach().clone(),
        "hc_base": weights.bias.detach().clone(),
        "hc_scale": weights.scale.detach().clone(),
    }
