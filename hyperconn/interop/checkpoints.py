"""Sites and heads of a whole checkpoint, under the names of ``transformers`` or of the original release."""

from __future__ import annotations

import re
from typing import Any

from torch import Tensor

from ..connection import HyperConnection
from ..streams import Collapse
from .families import family_named
from .heads import from_head, to_head
from .sites import from_site, to_site

PARTS = ("fn", "base", "scale")
# Per family: the name of a site or head in transformers, and the original one; {} is fn, base or scale.
NAMES = {
    "deepseek_v4": (
        ("attn_hc.{}", "hc_attn_{}"),
        ("ffn_hc.{}", "hc_ffn_{}"),
        ("hc_head.hc_{}", "hc_head_{}"),
    ),
    "glm5_next": (("attn_hc.{}", "hc_attn_{}"), ("ffn_hc.{}", "hc_ffn_{}")),
    "hy_v4": (
        ("attn_hc.{}", "hc_attn_layer.hc_{}"),
        ("ffn_hc.{}", "hc_mlp_layer.hc_{}"),
        ("hc_head.hc_{}", "hc_head.hc_head_{}"),
    ),
}


def from_checkpoint(tensors: dict[str, Tensor], family: str, **options: Any) -> dict[str, HyperConnection | Collapse]:
    """All sites and the head of a checkpoint.

    Args:
        tensors: a state dict; other tensors in it are passed over.
        family: ``"deepseek_v4"``, ``"glm5_next"`` or ``"hy_v4"``.
        options: numbers of the configuration, as in :func:`from_site`.

    Returns:
        dict: by the name of the module in ``transformers`` (``"model.layers.0.attn_hc"``, ``"model.hc_head"``);
        the prefix is that of the checkpoint.

    Raises:
        ValueError: unknown family, or a checkpoint without its sites.
    """
    family_named(family, "from_checkpoint")
    groups: dict[str, dict[str, Tensor]] = {}
    for key, tensor in tensors.items():
        module, _, part = _to_transformers(key, family).rpartition(".")
        if module.endswith(("attn_hc", "ffn_hc", "hc_head")) and part.removeprefix("hc_") in PARTS:
            groups.setdefault(module, {})[part] = tensor
    if not groups:
        raise ValueError(f"from_checkpoint: no sites of {family} among the {len(tensors)} tensors.")
    return {
        name: (from_head if name.endswith("hc_head") else from_site)(group, family, **options)
        for name, group in groups.items()
    }


def to_checkpoint(
    modules: dict[str, HyperConnection | Collapse], family: str, *, original: bool = False
) -> dict[str, Tensor]:
    """The tensors of :func:`from_checkpoint`'s modules, under the names of ``transformers``.

    Args:
        modules: by the names that :func:`from_checkpoint` gives.
        family: as there.
        original: use the names of the original release instead.
    """
    family_named(family, "to_checkpoint")
    tensors = {}
    for name, module in modules.items():
        parts = to_head(module) if isinstance(module, Collapse) else to_site(module, family)
        tensors.update({f"{name}.{part}": tensor for part, tensor in parts.items()})
    return {_to_original(key, family): tensor for key, tensor in tensors.items()} if original else tensors


def _to_transformers(key: str, family: str) -> str:
    key = key.replace(".hc_pre.hc_", ".hc_") if family == "hy_v4" else key
    return _renamed(key, [(old, new) for new, old in NAMES[family]])


def _to_original(key: str, family: str) -> str:
    return _renamed(key, list(NAMES[family]))


def _renamed(key: str, pairs: list[tuple[str, str]]) -> str:
    for source, target in pairs:
        match = re.fullmatch(rf"(.*\.)?{re.escape(source.format('PART')).replace('PART', '(fn|base|scale)')}", key)
        if match:
            return (match[1] or "") + target.format(match[2])
    return key
