"""Parameters of a connection: kept in float32, and known to optimizers as what they are."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar

import torch
from torch import Tensor, nn

if TYPE_CHECKING:
    from typing_extensions import Self

NARROW_DTYPES = (torch.bfloat16, torch.float16)


class ConnectionParameters(nn.Module):
    """A module whose parameters and buffers stay ``float32`` or wider, and are marked for optimizers.

    ``module.bfloat16()``, ``.half()`` and ``.to(dtype)`` change everything else: mappings and
    matrices built from rounded logits leave their set, so these few numbers keep their bits.
    Every parameter carries ``is_connection = True`` and ``no_weight_decay``: decay alone pulls
    static logits, scales and steps away from their start.
    """

    decayed_parameters: ClassVar[tuple[str, ...]] = ()

    def register_parameter(self, name: str, param: nn.Parameter | None) -> None:
        super().register_parameter(name, param)
        self._mark(name, param)

    def _mark(self, name: str, param: nn.Parameter | None) -> None:
        if param is not None:
            param.is_connection = True  # type: ignore[attr-defined]
            param.no_weight_decay = name not in self.decayed_parameters  # type: ignore[attr-defined]

    def _mark_all(self) -> None:
        for name, param in self._parameters.items():
            self._mark(name, param)

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._mark_all()  # copying a parameter drops its attributes

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        def keep(tensor: Tensor) -> Tensor:
            moved = fn(tensor)
            narrowed = moved.dtype in NARROW_DTYPES and tensor.dtype not in NARROW_DTYPES
            return tensor.to(moved.device) if narrowed else moved

        super()._apply(keep, recurse)
        self._mark_all()
        return self
