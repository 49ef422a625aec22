"""Put streams into a model in place, and take them out again."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import nn

from ..connection import HyperConnection
from ..constraints import Constraint, as_constraint
from ..gates import Init
from ..mappings import Mapping
from ..retraction import Retraction, as_retraction
from ..streams import Collapse, Expand
from .adapters import Adapter, WholeBlock, adapter_for
from .blocks import BlockList, find_blocks, input_name, owner_of, width_of
from .nested import allow_nested, forbid_nested
from .options import CONFIG_KEY, LEVELS, WrapOptions
from .path import StreamPath
from .wrapped_block import CHILD, Origin, WrappedBlock, wrapped_class

Model = TypeVar("Model", bound=nn.Module)


def wrap(
    model: Model,
    streams: int = 4,
    *,
    constraint: str | Constraint = "sinkhorn",
    level: str = "sublayer",
    mapping: str | Mapping | None = None,
    retraction: str | float | Retraction | None = None,
    init: Init = "residual",
    collapse: str | nn.Module = "mean",
    blocks: str | Sequence[str] | None = None,
    dim: int | None = None,
    adapter: Adapter | None = None,
) -> Model:
    """Turn a transformer into one with n residual streams, in place.

    The blocks stay where they are, with the same parameter names, and gain a child
    ``hyper_connections``, in ``float32`` whatever the dtype of the model. With ``init="residual"`` and
    no retraction the model computes the same function as before, up to rounding.

    Args:
        model: any module with a list of residual blocks whose first argument is ``(..., C)``.
        streams: number of streams n.
        constraint, mapping, retraction, init: as in :class:`HyperConnection`; instances are copied.
        level: ``"sublayer"`` connects attention and MLP separately and needs an adapter for the family;
            ``"block"`` connects ``F(x) = block(x) − x`` and works for any residual block.
        collapse: ``"mean"``, ``"sum"``, ``"learned"``, or a module ``(..., n, C) -> (..., C)``.
        blocks: dotted name of the list of blocks, or several; None takes the longest list of one
            repeated block type.
        dim: width C; None takes it from the model's configuration or norms.
        adapter: an adapter of your own for ``level="sublayer"``, instead of a registered one.

    Returns:
        The same model.

    Raises:
        ValueError: already wrapped, no list of blocks, a family without adapter, or unknown options.
    """
    options = WrapOptions(streams, constraint, level, mapping, retraction, init, collapse, blocks, dim, adapter)
    if is_wrapped(model):
        raise ValueError(f"wrap: {type(model).__name__} is wrapped already. Call unwrap(model) first.")
    if level not in LEVELS:
        raise ValueError(f"wrap: unknown level {level!r}; known: {', '.join(map(repr, LEVELS))}.")
    lists = find_blocks(model, blocks)
    plans = [plan for name, found in lists.items() for plan in _plans(model, name, found, options)]
    for block, path, chosen in plans:
        block.__class__ = wrapped_class(Origin(type(block), chosen, input_name(block)))
        block.add_module(CHILD, path.train(block.training))
    for name in lists:
        forbid_nested(owner_of(model, name))
    if hasattr(model, "config"):
        setattr(model.config, CONFIG_KEY, options.to_config())
    return model


def unwrap(model: Model) -> Model:
    """Take the streams out again, in place; what the model's own weights have learned stays.

    Args:
        model: a model that :func:`wrap` was called on.

    Raises:
        ValueError: it is not wrapped.
    """
    if not is_wrapped(model):
        raise ValueError(f"unwrap: {type(model).__name__} is not wrapped.")
    for block in list(_wrapped_blocks(model)):
        delattr(block, CHILD)
        block.__class__ = block._hyperconn.original
    for module in model.modules():
        allow_nested(module)
        if hasattr(getattr(module, "config", None), CONFIG_KEY):
            delattr(module.config, CONFIG_KEY)
    return model


def is_wrapped(model: nn.Module) -> bool:
    """Whether :func:`wrap` has put streams into this model or a part of it."""
    return next(_wrapped_blocks(model), None) is not None


def _wrapped_blocks(model: nn.Module) -> Iterator[Any]:
    return (module for module in model.modules() if isinstance(module, WrappedBlock))


def _plans(
    model: nn.Module, name: str, blocks: BlockList, options: WrapOptions
) -> list[tuple[Any, StreamPath, Adapter]]:
    """For every block its path and its adapter; nothing is changed yet."""
    if len(set(blocks)) < len(blocks):
        raise ValueError(f"wrap: expected {len(blocks)} separate blocks in {name!r}, got {len(set(blocks))}, shared.")
    chosen = [_adapter(block, options) for block in blocks]
    sizes = [len(one.sublayers(block)) for one, block in zip(chosen, blocks, strict=True)]
    ends = list(itertools.accumulate(sizes))
    width = options.dim or width_of(model, name, blocks[0])
    paths = [_path(options, width, range(end - size, end), ends[-1]) for size, end in zip(sizes, ends, strict=True)]
    return [(block, path.to(_device(block)), one) for block, path, one in zip(blocks, paths, chosen, strict=True)]


def _adapter(block: nn.Module, options: WrapOptions) -> Adapter:
    if "forward" in vars(block):
        raise ValueError(
            f"wrap: the forward of this {type(block).__name__} was replaced on the object itself (by device_map= "
            "or a quantiser, say), so that the streams would not reach it. Wrap the model before that."
        )
    if options.level == "block":
        return WHOLE_BLOCK
    return adapter_for(block) if options.adapter is None else options.adapter


WHOLE_BLOCK = WholeBlock()


def _path(options: WrapOptions, width: int, indices: range, total: int) -> StreamPath:
    retraction = as_retraction(options.retraction)
    connections = [_connection(options, width, index, total) for index in indices]
    expand = Expand(options.streams, retraction=copy.deepcopy(retraction)) if indices.start == 0 else None
    collapse = _collapse(options, width) if indices.stop == total else None
    return StreamPath(connections, expand, collapse)


def _connection(options: WrapOptions, width: int, index: int, total: int) -> HyperConnection:
    retraction = as_retraction(options.retraction)
    return HyperConnection(
        width,
        options.streams,
        constraint=copy.deepcopy(as_constraint(options.constraint, options.streams)),
        mapping=copy.deepcopy(options.mapping),
        retraction=None if retraction is None else retraction.for_depth(total),
        layer_index=index,
        init=options.init,
    )


def _collapse(options: WrapOptions, width: int) -> nn.Module:
    if isinstance(options.collapse, nn.Module):
        return copy.deepcopy(options.collapse)
    return Collapse(options.collapse, dim=width, streams=options.streams)


def _device(block: nn.Module) -> torch.device:
    return next((parameter.device for parameter in block.parameters()), torch.device("cpu"))
