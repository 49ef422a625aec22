"""The connections of a model, and what one of them applies at one call."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ..connection import HyperConnection
from ..constraints import Constraint
from ..streams import Expand


@dataclass(frozen=True)
class Site:
    """What is known of a connection without running it.

    ``pre`` and ``post`` ``(n,)`` and ``matrix`` ``(n, n)`` are the learned static ones; a gate that
    cannot be rebuilt from a checkpoint is None. ``starts`` ``(S, n, n)`` are the matrices its set
    starts from, None if they are not known. ``fixed`` says that the set holds a single matrix.
    """

    name: str
    constraint: str
    matrix: Tensor
    pre: Tensor | None = None
    post: Tensor | None = None
    starts: Tensor | None = None
    fixed: bool = False
    begins_product: bool = False


class Call(NamedTuple):
    """One application: ``pre (..., n)``, ``post (..., n)``, ``res (..., n, n)``, ``streams (..., n, C)``."""

    pre: Tensor | None
    post: Tensor | None
    res: Tensor
    streams: Tensor | None


def plain_gates(pre: Tensor | None, post: Tensor | None, res: Tensor) -> tuple[Tensor | None, Tensor | None]:
    """Pre and post if they are one weight per stream; a connection with several reads per branch has more."""
    if pre is None or post is None or post.dim() >= res.dim() or not pre.shape[-1] == post.shape[-1] == res.shape[-1]:
        return None, None
    return pre, post


def connections_of(who: str, model: nn.Module) -> dict[str, HyperConnection]:
    """All connections by name.

    Raises:
        TypeError: not a module.
        ValueError: there is none.
    """
    if not isinstance(model, nn.Module):
        raise TypeError(f"{who}: expected a torch.nn.Module, got {type(model).__name__}.")
    connections = {name: module for name, module in model.named_modules() if isinstance(module, HyperConnection)}
    if not connections:
        raise ValueError(
            f"{who}: {type(model).__name__} contains no HyperConnection. Build it from hyperconn.HyperConnection "
            "or HyperStack."
        )
    return connections


@torch.no_grad()
def static_sites(model: nn.Module) -> Iterator[Site]:
    """The connections in the order of the modules; a product starts anew after every :class:`Expand`."""
    beginnings = chain_beginnings(model)
    for name, module in model.named_modules():
        if isinstance(module, HyperConnection):
            yield static_site(name, module, name in beginnings)


def chain_beginnings(model: nn.Module) -> frozenset[str]:
    """Names of the connections that come first, or first after an :class:`Expand`, in the order of the modules."""
    begins, found = True, []
    for name, module in model.named_modules():
        if isinstance(module, Expand):
            begins = True
        elif isinstance(module, HyperConnection):
            found += [name] if begins else []
            begins = False
    return frozenset(found)


@torch.no_grad()
def static_site(name: str, connection: HyperConnection, begins_product: bool = False) -> Site:
    """What a connection has learned, its dynamic part at zero."""
    pre, post, res = connection.static_mappings()
    if res.is_meta:
        raise ValueError(f"inspect: {name} is on the meta device and has no values yet. Load or initialise it first.")
    constraint = connection.constraint
    fixed = connection.streams == 1 or constraint.num_coordinates == 0
    starts = None if fixed else starting_matrices(constraint)
    gates = plain_gates(pre, post, res)
    return Site(name, constraint.description()["name"], res, *gates, starts, fixed, begins_product)


@torch.no_grad()
def starting_matrices(constraint: Constraint) -> Tensor:
    """``(S, n, n)``: the constraint's own start and the published one."""
    device = next((tensor.device for tensor in constraint.parameters()), torch.device("cpu"))
    coordinates = torch.stack([constraint.identity_coordinates(), constraint.paper_coordinates()])
    return constraint(coordinates.to(device, torch.float32))
