"""Tables for the terminal: rich if it is installed, aligned plain text otherwise."""

from __future__ import annotations

import io
from collections.abc import Sequence

WIDTH = 400  # wide enough never to cut a column; a table only takes what it needs


def render_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """A titled table as text."""
    try:
        from rich import box
        from rich.console import Console
        from rich.table import Table
    except ImportError:
        return plain_table(title, columns, rows)
    table = Table(title=title, title_justify="left", box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0))
    for index, column in enumerate(columns):
        table.add_column(column, justify="left" if index == 0 else "right", no_wrap=True)
    for row in rows:
        table.add_row(*row)
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, markup=False, highlight=False)
    console.print(table)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())  # type: ignore[attr-defined]


def plain_table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The same without rich."""
    widths = [max(len(cell) for cell in column) for column in zip(columns, *rows, strict=True)]
    lines = [" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) for row in (columns, *rows)]
    return "\n".join([title, *(line.rstrip() for line in lines)])
