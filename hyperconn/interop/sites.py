"""One site: a module or its tensors to a connection, and back bit for bit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from torch import Tensor

from ..connection import HyperConnection
from ..mappings import FlatMapping
from .families import FAMILIES, Family, SiteOptions, family_named, family_of
from .tensors import copy_into, tensors_of


def from_site(module: Any, family: str | None = None, **options: Any) -> HyperConnection:
    """A connection that computes what a site of a published model computes, without its branch.

    Args:
        module: a site of ``transformers`` (``layers.i.attn_hc``, say), or a dict of its three tensors
            under any of the published names, which needs ``family``.
        family: ``"deepseek_v4"``, ``"glm5_next"`` or ``"hy_v4"``.
        options: numbers of the configuration that a dict does not carry: ``hc_eps``,
            ``rms_norm_eps``, ``hc_sinkhorn_iters``, ``hc_magnitude``.

    Returns:
        HyperConnection: with copies of the tensors, in ``float32``.

    Raises:
        ValueError: unknown family, missing tensors, or shapes that do not fit each other.
    """
    known = family_of(module, "site", family, "from_site")
    fn, base, scale = tensors_of(module, "from_site")
    numbers = replace(known.options_of(module), **options)
    streams = known.streams_of(len(base))
    if streams < 2 or fn.dim() != 2 or fn.shape[1] % streams:
        raise ValueError(
            f"from_site({known.name!r}): expected fn (rows, n·C) with n >= 2, got fn {tuple(fn.shape)} and "
            f"{len(base)} values of base, which say n = {streams}."
        )
    connection = _connection(known, fn.shape[1] // streams, streams, base, numbers).to(fn.device)
    weight, bias, scales = _parameters(connection)
    copy_into(f"from_site({known.name!r})", fn=(weight, fn), base=(bias, base), scale=(scales, scale))
    return connection


def to_site(connection: HyperConnection, family: str | None = None) -> dict[str, Tensor]:
    """The tensors of a site of a published model, bit for bit those that :func:`from_site` read.

    Args:
        connection: a connection made by :func:`from_site`, trained or not.
        family: its family; None takes the first that fits.

    Returns:
        dict: ``fn (rows, n·C)``, ``base (rows)``, ``scale (groups)``, in ``float32``.

    Raises:
        ValueError: the family has no such constraint, gates or mapping.
    """
    candidates = list(FAMILIES.values()) if family is None else [family_named(family, "to_site")]
    if not any(_fits(connection, known) for known in candidates):
        description = connection.description()
        raise ValueError(
            f"to_site: no site of {', '.join(known.name for known in candidates)} computes "
            f"{description['constraint']} with mapping {description['mapping']} and retraction "
            f"{description['retraction']}. Only connections from from_site() export."
        )
    weight, bias, scale = _parameters(connection)
    return {"fn": weight.detach().clone(), "base": bias.detach().clone(), "scale": scale.detach().clone()}


def _connection(family: Family, dim: int, streams: int, base: Tensor, options: SiteOptions) -> HyperConnection:
    constraint = family.constraint(streams, options)
    start = base.float().cpu()
    gates = family.gates(options)
    mapping = FlatMapping(dim, streams, constraint.coordinate_sizes, start, gates, epsilon=options.rms_norm_eps)
    return HyperConnection(dim, streams, constraint=constraint, mapping=mapping)


def _parameters(connection: HyperConnection) -> tuple[Tensor, Tensor, Tensor]:
    mapping: Any = connection.mapping
    return mapping.weight, mapping.bias, mapping.scale


def _fits(connection: HyperConnection, family: Family) -> bool:
    """Whether the family can say what this connection computes, in numbers of its own."""
    mapping = connection.mapping
    if type(mapping) is not FlatMapping or connection.retraction is not None:
        return False
    stored = connection.constraint.description()
    numbers: Any = {**vars(mapping.gates), **stored}
    options = replace(
        family.defaults,
        hc_eps=numbers.get("pre_epsilon", 0.0),
        hc_magnitude=numbers.get("magnitude", 2.0),
        hc_sinkhorn_iters=numbers.get("iterations", 20),
    )
    same_set = family.constraint(connection.streams, options).description() == stored
    return same_set and family.gates(options) == mapping.gates
