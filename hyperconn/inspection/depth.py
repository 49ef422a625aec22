"""The product of mixing matrices through depth: every prefix ``H_l … H_1``, per token."""

from __future__ import annotations

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
    Connections inside the branch of another one are chains of their own, a level deeper.
    """

    def __init__(self) -> None:
        self._prefixes: dict[tuple[int, str], Prefix] = {}
        self._begin()

    @property
    def prefixes(self) -> list[Prefix]:
        """In call order."""
        return [self._prefixes[key] for key in sorted(self._prefixes, key=lambda key: key[0])]

    def enter(self, name: str) -> None:
        """A connection has read: until it multiplies, whatever comes is inside its branch."""
        self._reading[name] = None

    def restart(self) -> None:
        """The next matrix of this level begins a chain."""
        self._running.pop(len(self._reading), None)

    def multiply(self, name: str, matrix: Tensor, batch: int) -> None:
        """Extend the chain by ``(..., n, n)`` in ``float64`` where the device has it."""
        self._reading.pop(name, None)
        level = len(self._reading)
        product, chain = self._extended(level, matrix)
        self._running[level] = product, chain
        prefix = self._prefixes.setdefault((self._position, name), Prefix(name, chain))
        by_token = product.reshape(-1, *product.shape[-2:])
        prefix.tally.add(measure_matrices(by_token), product.shape[:-2], batch)
        self._position += 1

    def end_batch(self) -> None:
        """Fold this batch into the tallies and forget its tokens."""
        for prefix in self._prefixes.values():
            prefix.tally.settle()
        self._begin()

    def _begin(self) -> None:
        self._running: dict[int, tuple[Tensor, int]] = {}
        self._reading: dict[str, None] = {}
        self._chains, self._position = 0, 0

    def _extended(self, level: int, matrix: Tensor) -> tuple[Tensor, int]:
        if level in self._running and _fit(self._running[level][0], matrix):
            before, chain = self._running[level]
            return matrix @ before, chain
        self._chains += 1
        return matrix, self._chains - 1


def _fit(before: Tensor, matrix: Tensor) -> bool:
    if before.shape[-1] != matrix.shape[-1] or before.device != matrix.device:
        return False
    leading = zip(reversed(before.shape[:-2]), reversed(matrix.shape[:-2]), strict=False)
    return all(a == b or 1 in (a, b) for a, b in leading)
