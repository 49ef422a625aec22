"""``torch.nn.TransformerEncoder`` packs padded batches into nested tensors, which have no place for streams."""

from __future__ import annotations

from typing import Any

from torch import nn

BEFORE = "_use_nested_tensor_before_wrap"


def forbid_nested(owner: Any) -> None:
    """Have an encoder keep the padded layout; other modules are left alone."""
    if isinstance(owner, nn.TransformerEncoder):
        setattr(owner, BEFORE, owner.use_nested_tensor)
        owner.use_nested_tensor = False


def allow_nested(owner: Any) -> None:
    """Undo :func:`forbid_nested`."""
    if hasattr(owner, BEFORE):
        owner.use_nested_tensor = getattr(owner, BEFORE)
        delattr(owner, BEFORE)
