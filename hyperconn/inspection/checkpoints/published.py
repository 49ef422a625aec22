"""Sites of published models (DeepSeek-V4 and relatives) in a state dict; only base and scale are read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from ...interop.families import FAMILIES, Family, SiteOptions
from ..sites import Site, plain_gates
from .errors import CheckpointError
from .tensors import Tensors, natural

# The original names and those of transformers: …hc_attn_base, …attn_hc.base, …hc_attn_layer.hc_base.
BASE = re.compile(r"(?:.*\.)?(?:hc_(?:attn|ffn)_|(?:attn|ffn)_hc\.|hc_(?:attn|mlp)_layer\.(?:hc_pre\.)?hc_)base")
LONGEST_BASE = 64**2 + 2 * 64
MOST_ITERATIONS = 1000


@torch.no_grad()
def published_sites(tensors: Tensors, config: dict[str, Any]) -> Iterator[Site]:
    """The sites in the order of their layers.

    Raises:
        CheckpointError: shapes or numbers of the configuration that no such site has.
    """
    for name in sorted(filter(BASE.fullmatch, tensors), key=natural):
        yield _site(tensors, name, config)


def _site(tensors: Tensors, name: str, config: dict[str, Any]) -> Site:
    family = _family(tensors, name)
    shape = tensors.shape(name)
    n = family.streams_of(shape[0]) if len(shape) == 1 and shape[0] <= LONGEST_BASE else 0
    constraint = family.constraint(max(n, 1), _options(config))
    if n < 2 or 2 * n + constraint.num_coordinates != shape[0]:
        raise CheckpointError(f"{name}: expected n² + 2n or 2n values, got {shape}")
    base = tensors[name].float()
    gates = family.gates(_options(config))
    pre, post, coordinates = base.split((n, n, len(base) - 2 * n))
    matrix = constraint(coordinates)
    known_as = f"{family.name} ({constraint.description()['name']})"
    fixed = not constraint.num_coordinates
    return Site(name.removesuffix("base").rstrip("._"), known_as, matrix,
                *plain_gates(gates.pre(pre), gates.post(post), matrix), fixed=fixed)  # fmt: skip


def _family(tensors: Tensors, name: str) -> Family:
    """Three scales say that there is a matrix, two that there is none."""
    scale = name.removesuffix("base") + "scale"
    if scale not in tensors:
        raise CheckpointError(f"{scale} is missing beside {name}; is a shard missing?")
    return FAMILIES["hy_v4" if tensors.shape(scale) == (2,) else "deepseek_v4"]


def _options(config: dict[str, Any]) -> SiteOptions:
    """Numbers of ``config.json``, where it is there and says them."""
    kinds = {"hc_eps": (float, int), "hc_sinkhorn_iters": (int,), "hc_magnitude": (float, int)}
    given = {name: config[name] for name, types in kinds.items() if type(config.get(name)) in types}
    options = replace(SiteOptions(), **given)
    if not (1 <= options.hc_sinkhorn_iters <= MOST_ITERATIONS and 0 <= options.hc_eps < 1):
        raise CheckpointError(f"config.json: hc_sinkhorn_iters and hc_eps out of range: {given}")
    return options
