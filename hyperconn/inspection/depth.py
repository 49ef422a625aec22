"""The product of mixing matrices through depth: every prefix ``H_l … H_1``, per token."""

from __future__ import annotations

import torch
from torch import Tensor

from .quantities import measure_matrices
from .tally import Tally


class Prefix:
    """One prefix of a product: where it ends, which chain it belongs to, and its tally over tokens."""

    def __init__(self, name: str, chain: int):
        self.name, self.chain, self.tally = name, chain, Tally()


class DepthProduct:
    """Running products, kept for the tokens of the present batch only.

    A chain starts at an expansion, and where the matrices stop fitting: another n, other tokens.
    """

    def __init__(self) -> None:
        self._prefixes: dict[tuple[int, str], Prefix] = {}
        self._begin()

    @property
    def prefixes(self) -> list[Prefix]:
        """In call order."""
        return [self._prefixes[key] for key in sorted(self._prefixes, key=lambda key: key[0])]

    def restart(self) -> None:
        """The next matrix begins a chain."""
        self._running = None

    def multiply(self, name: str, matrix: Tensor, batch: int) -> None:
        """Extend the chain by ``(..., n, n)`` in ``float64`` where the device has it."""
        product = self._times(matrix)
        if product is None:
            product, self._chain = matrix, self._chain + 1
        self._running = product
        prefix = self._prefixes.setdefault((self._position, name), Prefix(name, self._chain))
        by_token = product.reshape(-1, *product.shape[-2:])
        prefix.tally.add(measure_matrices(by_token), product.shape[:-2], batch)
        self._position += 1

    def end_batch(self) -> None:
        """Fold this batch into the tallies and forget its tokens."""
        for prefix in self._prefixes.values():
            prefix.tally.settle()
        self._begin()

    def _begin(self) -> None:
        self._running: Tensor | None = None
        self._chain, self._position = -1, 0

    def _times(self, matrix: Tensor) -> Tensor | None:
        before = self._running
        if before is None or before.shape[-1] != matrix.shape[-1] or before.device != matrix.device:
            return None
        try:
            torch.broadcast_shapes(before.shape, matrix.shape)
        except RuntimeError:
            return None
        return matrix @ before
