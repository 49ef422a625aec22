"""Recognising a block by what its forward does, not by what it is called."""

from __future__ import annotations

import importlib
import inspect
import sys
from types import CodeType
from typing import Any

from torch import nn


def has_children(block: nn.Module, *names: str) -> bool:
    """Whether the block has all these submodules."""
    return all(isinstance(getattr(block, name, None), nn.Module) for name in names)


def same_forward(block: nn.Module, *references: str) -> bool:
    """Whether the forward of a block is, instruction by instruction, that of a reference class.

    Names prove little: two decoder layers with the same submodules may scale a residual or run their
    sublayers side by side. A copy of the reference's forward under any name is recognised.

    Args:
        block: the block in question.
        references: ``"package.module:Class"``; a package that is not loaded knows no block.
    """
    own = _code(type(block))
    known = [_code(cls) for cls in map(_load, references) if cls is not None]
    return own is not None and own in known


def other_arguments(block: nn.Module, *names: str) -> str | None:
    """Why a block is refused whose forward does not begin with these arguments; None if it does."""
    found = tuple(inspect.signature(type(block).forward).parameters)[1 : len(names) + 1]
    if found == names:
        return None
    return (
        f"its forward begins with {found}, expected {names}. Another version of its package? Use level='block', or "
        "an adapter of your own."
    )


def _load(reference: str) -> Any:
    module, _, name = reference.partition(":")
    if module.partition(".")[0] not in sys.modules:
        return None
    try:
        return getattr(importlib.import_module(module), name, None)
    except ImportError:
        return None


def _code(cls: Any) -> tuple[Any, ...] | None:
    function = inspect.unwrap(cls.forward)
    code: CodeType | None = getattr(function, "__code__", None)
    if code is None:
        return None
    constants = tuple(constant for constant in code.co_consts if constant != function.__doc__)
    return code.co_code, code.co_names, code.co_varnames, constants
