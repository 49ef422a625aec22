"""What every constraint is: a map from free coordinates into a set of n × n matrices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, final

import torch
from torch import Tensor

from ..numerics import compute_dtype, outside_autocast
from ..parameters import ConnectionParameters
from .tables import table_on_device

if TYPE_CHECKING:
    from typing_extensions import Self


class Constraint(ConnectionParameters, ABC):
    """A set of residual matrices and the map into it.

    A plug-in is one file: subclass, set the claims, give the four abstract members, register.
    A learned parameter of the set itself is registered in ``__init__`` and filled in
    ``reset_parameters``; a constant table comes from ``constant_tables``.

    Args:
        streams: number of streams n, at least 1.

    Raises:
        ValueError: the set does not exist for that n, or n < 1.
        TypeError: n is not an integer.
    """

    name: ClassVar[str] = "unregistered"
    aliases: ClassVar[tuple[str, ...]] = ()

    # Claims: data that tests, docs and reports read.
    nonnegative: ClassVar[bool]
    unit_row_sums: ClassVar[bool]
    unit_column_sums: ClassVar[bool]
    nonexpansive: ClassVar[bool]
    """``‖H‖₂ ≤ 1``."""
    closed_under_product: ClassVar[bool]
    exact: ClassVar[bool] = True
    """Every coordinate vector lands in the set up to rounding."""
    set_description: ClassVar[str]
    reference: ClassVar[str]
    default_mapping: ClassVar[str] = "flat"

    def __init__(self, streams: int):
        super().__init__()
        if isinstance(streams, bool) or not isinstance(streams, int):
            raise TypeError(f"{type(self).__name__}(streams={streams!r}): expected an integer number of streams.")
        reason = "expected at least 1 stream." if streams < 1 else self.unsupported(streams)
        if reason is not None:
            raise ValueError(f"{type(self).__name__}(streams={streams}): {reason}")
        self.streams = streams
        self._table_names = self._register_tables()

    @classmethod
    def unsupported(cls, streams: int) -> str | None:
        """Why the set does not exist for this number of streams, and what to use; None if it does."""
        return None

    @property
    @abstractmethod
    def coordinate_sizes(self) -> tuple[int, ...]:
        """Sizes of the coordinate groups; each group has its own learned scale in a mapping."""

    @property
    @final
    def num_coordinates(self) -> int:
        """k, the length of the last axis that :meth:`forward` takes."""
        return sum(self.coordinate_sizes)

    @abstractmethod
    def matrix(self, coordinates: Tensor) -> Tensor:
        """``(..., k) -> (..., n, n)``; called outside autocast, in ``float32`` or ``float64``."""

    @abstractmethod
    def identity_coordinates(self) -> Tensor:
        """``(k,)``: coordinates of the matrix nearest to I from which training can still move."""

    def paper_coordinates(self) -> Tensor:
        """``(k,)``: the published start, where it differs from :meth:`identity_coordinates`."""
        return self.identity_coordinates()

    @abstractmethod
    def violation(self, matrix: Tensor) -> Tensor:
        """``(..., n, n) -> (...)``: distance from the set, 0 inside (up to rounding)."""

    def constant_tables(self) -> dict[str, Callable[[], Tensor]]:
        """Builders of constant tensors by name; they become non-persistent buffers that follow the device."""
        return {}

    @final  # type: ignore[misc]
    def forward(self, coordinates: Tensor) -> Tensor:
        """``(..., k) -> (..., n, n)``, in ``float32`` (``float64`` for ``float64`` coordinates)."""
        if coordinates.shape[-1:] != (self.num_coordinates,) or not coordinates.is_floating_point():
            raise ValueError(
                f"{type(self).__name__}(streams={self.streams}): expected floating-point coordinates "
                f"(..., {self.num_coordinates}), got {coordinates.dtype} {tuple(coordinates.shape)}. "
                "Was the mapping built for another constraint or n?"
            )
        with outside_autocast(coordinates):
            return self.matrix(coordinates.to(compute_dtype(coordinates)))

    def options(self) -> dict[str, Any]:
        """Keyword arguments that built this constraint, as plain data, for its state dict."""
        return {}

    @final
    def description(self) -> dict[str, Any]:
        """Name (class name if unregistered) and options, as plain data."""
        name = type(self).__name__ if self.name == "unregistered" else self.name
        return {"name": name, **self.options()}

    def reset_parameters(self) -> None:
        """Fill learned parameters and constant tables with their start values, e.g. after ``to_empty``."""
        self._rebuild_tables()

    def extra_repr(self) -> str:
        return f"streams={self.streams}, coordinates={self.num_coordinates}"

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._rebuild_tables()
        return self

    def _register_tables(self) -> tuple[str, ...]:
        device = torch.get_default_device()
        for name, build in self.constant_tables().items():
            self.register_buffer(name, table_on_device(build, device), persistent=False)
        return tuple(self.constant_tables())

    def _rebuild_tables(self) -> None:
        """Tables follow the device but never a dtype: a cast copy would have lost digits for good."""
        builders = self.constant_tables()
        for name in self._table_names:
            self._buffers[name] = table_on_device(builders[name], getattr(self, name).device)
