"""What an inspection found: one report per connection, one per prefix of the product, one for the model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from torch import Tensor

from . import export, tables
from .flags import Flag, find_flags
from .tally import Place, Summary


@dataclass(frozen=True)
class MatrixReport:
    """Mixing matrices over all tokens: ``(n, n)`` tensors entry by entry, and quantities of whole matrices."""

    matrix: Tensor
    """The mean over tokens; the learned matrix itself in a static report."""
    smallest: Tensor
    """The smallest value of each entry."""
    largest: Tensor
    negative_rate: Tensor
    """For each entry the share of tokens at which it is negative."""
    singular_values: Tensor
    """``(n,)``, falling, means over tokens."""
    quantities: dict[str, Summary]
    """The numbers of ``hyperconn.inspection.MATRIX_QUANTITIES``."""
    tokens: int
    non_finite: int
    """At how many tokens the matrix holds NaN or infinity."""
    first_non_finite: Place | None


class Gates(NamedTuple):
    """Pre or post weights over all tokens, ``(n,)`` each."""

    mean: Tensor
    smallest: Tensor
    largest: Tensor


@dataclass(frozen=True)
class ConnectionReport(MatrixReport):
    """One connection. Gates and streams are None where they are not known."""

    name: str
    constraint: str
    fixed: bool
    """The constraint's set holds a single matrix."""
    calls: int
    pre: Gates | None
    post: Gates | None
    gates_non_finite: bool
    similarity: Summary | None
    """Mean pairwise cosine of the streams that enter."""
    spread: float | None
    """Largest ``‖X_i − X_0‖ / ‖X_0‖`` over a sample of tokens; 0 for copies."""

    @property
    def streams(self) -> int:
        """n."""
        return self.matrix.shape[-1]


@dataclass(frozen=True)
class PrefixReport(MatrixReport):
    """The product of all matrices of a chain up to and with one connection."""

    name: str
    """The connection it ends with."""
    chain: int
    """Number of the chain; a chain starts at an expansion, or where n changes."""
    length: int
    """Number of factors."""


class NegativeEntry(NamedTuple):
    """A negative entry of H: at some token it carries ``value`` from a source into a destination stream."""

    layer: str
    destination: int
    source: int
    value: float
    rate: float
    """Share of tokens at which it is negative; 1 in a static report."""


@dataclass(frozen=True)
class MixingReport:
    """The mixing of a whole model, its connections in call order; ``print(report)`` shows tables."""

    connections: list[ConnectionReport]
    depth: list[PrefixReport]
    per_token: bool
    batches: int
    uncalled: list[str]
    """Connections that no input reached."""

    def __iter__(self) -> Iterator[ConnectionReport]:
        return iter(self.connections)

    def __len__(self) -> int:
        return len(self.connections)

    def __getitem__(self, name: str) -> ConnectionReport:
        for connection in self.connections:
            if connection.name == name:
                return connection
        raise KeyError(f"no connection {name!r}; known: {', '.join(c.name for c in self.connections)}")

    def __str__(self) -> str:
        return tables.report_text(self)

    def flags(self, gain_bound: float | None = None) -> list[Flag]:
        """What deserves attention, in words.

        Args:
            gain_bound: largest harmless absolute row or column sum; None takes ``2√n``, twice what a
                matrix with ``‖H‖₂ ≤ 1`` can reach.
        """
        return find_flags(self, gain_bound)

    def negative_entries(self) -> list[NegativeEntry]:
        """All entries that are negative at any token, the most negative value of each, in layer order."""
        return [
            NegativeEntry(c.name, i, j, float(c.smallest[i, j]), float(c.negative_rate[i, j]))
            for c in self.connections
            for i in range(c.streams)
            for j in range(c.streams)
            if c.negative_rate[i, j] > 0
        ]

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data; non-finite numbers stay what they are."""
        return export.report_dict(self)

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON; non-finite numbers become the strings "nan", "inf", "-inf"."""
        export.write_json(self.to_dict(), path)

    def to_csv(self, path: str | Path) -> None:
        """Write one row per prefix of the product, with the connection it ends with."""
        export.write_csv(export.report_rows(self), path)

    def plot(self, path: str | Path) -> None:
        """Draw matrices, depth product, singular values, gates and similarity, as PNG, SVG or PDF by suffix.

        Raises:
            ImportError: matplotlib is not installed; it comes with ``hyperconn[plot]``.
            ValueError: another suffix.
        """
        from .plots import draw_report

        draw_report(self, path)

    def html(self, path: str | Path) -> None:
        """Write one self-contained page with tables and pictures.

        Raises:
            ImportError: matplotlib is not installed; it comes with ``hyperconn[plot]``.
        """
        from .html import write_page

        write_page(self, path)
