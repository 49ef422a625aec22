"""The options of a wrap, and their form in a model's configuration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from torch import nn

from ..constraints import Constraint, make_constraint
from ..gates import Init
from ..mappings import Mapping
from ..retraction import Retraction
from .adapters import Adapter

CONFIG_KEY = "hyperconn"
LEVELS = ("sublayer", "block")


@dataclass
class WrapOptions:
    """The arguments of :func:`hyperconn.wrap` beside the model."""

    streams: int = 4
    constraint: str | Constraint = "sinkhorn"
    level: str = "sublayer"
    mapping: str | Mapping | None = None
    retraction: str | float | Retraction | None = None
    init: Init = "residual"
    collapse: str | nn.Module = "mean"
    blocks: str | Sequence[str] | None = None
    dim: int | None = None
    adapter: Adapter | None = None

    def to_config(self) -> dict[str, Any]:
        """Plain data; what has no plain form is stored as the name of its class, and refused when read."""
        return {field.name: _plain(getattr(self, field.name)) for field in fields(self)}

    @classmethod
    def from_config(cls, stored: dict[str, Any], **overrides: Any) -> WrapOptions:
        """Options from :meth:`to_config`; overrides replace what is stored.

        Raises:
            ValueError: an object was stored that only its owner can rebuild, and no override was given.
        """
        values = {**stored, **overrides}
        for name, value in values.items():
            if isinstance(value, dict) and "object" in value:
                raise ValueError(
                    f"load_wrapped: the model was wrapped with {name}={value['object']}(...), which is not stored. "
                    f"Give the same again: load_wrapped(path, {name}=...)."
                )
        if isinstance(values["constraint"], dict):
            description = dict(values["constraint"])
            values["constraint"] = make_constraint(description.pop("name"), values["streams"], **description)
        return cls(**values)


def _plain(value: Any) -> Any:
    if isinstance(value, Constraint) and value.name != "unregistered":
        return value.description()
    if value is None or isinstance(value, (str, int)):
        return value
    if isinstance(value, float):
        return "exponential" if value == float("inf") else value
    if isinstance(value, Sequence):
        return list(value)
    return {"object": type(value).__name__}
