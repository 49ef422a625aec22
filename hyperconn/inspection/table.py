"""Tables for the terminal: rich if it is installed, aligned plain text otherwise."""

from __future__ import annotations

from collections.abc import Sequence


def render_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A titled table as text."""
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    lines = [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (columns, *rows)]
    return "\n".join([title, *(line.rstrip() for line in lines)])
