"""Finding the list of residual blocks of a model, and the width of its stream."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Sequence
from typing import Any

from torch import nn

BlockList = nn.ModuleList | nn.Sequential


def find_blocks(model: nn.Module, names: str | Sequence[str] | None) -> dict[str, BlockList]:
    """The lists of blocks by name: those named, or the longest list of one repeated block type.

    Args:
        model: the model.
        names: dotted name of a ``ModuleList`` or ``Sequential``, or several; None to look for it.

    Raises:
        ValueError: there is no such list, or several of the same length.
    """
    if names is not None:
        chosen = [names] if isinstance(names, str) else list(names)
        return {name: _named(model, name) for name in chosen}
    candidates = dict(_outermost_lists(model))
    if not candidates:
        raise ValueError(
            f"wrap: {type(model).__name__} has no ModuleList of one repeated block type. Name the list of its "
            "residual blocks with blocks='path.to.list'."
        )
    longest = max(map(len, candidates.values()))
    found = {name: blocks for name, blocks in candidates.items() if len(blocks) == longest}
    if len(found) > 1:
        raise ValueError(
            f"wrap: {type(model).__name__} has {len(found)} lists of {longest} blocks: "
            f"{', '.join(map(repr, found))}. Name one with blocks=, or several with blocks=[...]."
        )
    return found


def width_of(model: nn.Module, name: str, block: nn.Module) -> int:
    """The width C of the stream: from the configuration of the model, or a norm of the block.

    Raises:
        ValueError: neither tells.
    """
    for owner in _owners(model, name):
        width = _configured_width(getattr(owner, "config", None))
        if width is not None:
            return width
    for child in block.children():
        weight = getattr(child, "weight", None)
        if "Norm" in type(child).__name__ and weight is not None and weight.dim() == 1:
            return len(weight)
    raise ValueError(
        f"wrap: the width of {type(block).__name__} is not to be seen from a configuration or its norms; give it "
        "with dim=."
    )


def input_name(block: nn.Module) -> str:
    """The name of the first argument of a block's forward."""
    return next(iter(inspect.signature(block.forward).parameters), "hidden_states")


def owner_of(model: nn.Module, name: str) -> nn.Module:
    """The module that holds the list of this name."""
    return model.get_submodule(name.rpartition(".")[0])


def _named(model: nn.Module, name: str) -> BlockList:
    try:
        found = model.get_submodule(name)
    except AttributeError as error:
        raise ValueError(f"wrap: {type(model).__name__} has no submodule {name!r}.") from error
    if not isinstance(found, (nn.ModuleList, nn.Sequential)) or not len(found):
        raise ValueError(f"wrap: expected {name!r} to be a ModuleList of blocks, got {type(found).__name__}.")
    return found


def _outermost_lists(model: nn.Module, prefix: str = "") -> Iterator[tuple[str, BlockList]]:
    """Lists of at least two modules with children, all of one type; not the lists inside such a list."""
    if isinstance(model, (nn.ModuleList, nn.Sequential)) and _is_repeated(model):
        yield prefix, model
        return
    for name, child in model.named_children():
        yield from _outermost_lists(child, f"{prefix}.{name}" if prefix else name)


def _is_repeated(blocks: BlockList) -> bool:
    one_type = len({type(block) for block in blocks}) == 1
    return len(blocks) >= 2 and one_type and any(True for _ in blocks[0].children())


def _owners(model: nn.Module, name: str) -> Iterator[nn.Module]:
    parts = name.split(".")
    for end in range(len(parts), -1, -1):
        yield model.get_submodule(".".join(parts[:end]))


def _configured_width(config: Any) -> int | None:
    widths = (getattr(config, key, None) for key in ("hidden_size", "d_model", "n_embd"))
    return next((width for width in widths if isinstance(width, int)), None)
