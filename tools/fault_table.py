"""The result of a run of the mutations, as a table in the documentation."""

from __future__ import annotations

import datetime
import importlib.metadata
import platform
from collections.abc import Sequence
from pathlib import Path

BEGIN, END = "<!-- faults: begin (written by tools/mutations.py --write) -->", "<!-- faults: end -->"


def write_table(page: Path, results: Sequence[tuple[str, str, str | None]]) -> None:
    """Replace what stands between the two markers of a page.

    Args:
        page: a Markdown file with both markers.
        results: name of a fault, its file, and the first test that failed, None if all passed.
    """
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{_table(results)}\n{END}{after}", encoding="utf-8")


def _table(results: Sequence[tuple[str, str, str | None]]) -> str:
    caught = sum(test is not None for _, _, test in results)
    torch = importlib.metadata.version("torch")
    day = datetime.datetime.now(datetime.timezone.utc).date().isoformat()
    rows = [f"| {name} | `{file}` | {_cell(test)} |" for name, file, test in results]
    return "\n".join(
        [
            f"{caught} of {len(results)} caught on {day}, Python {platform.python_version()}, torch {torch}.",
            "",
            "| fault | file | first test that fails |",
            "|---|---|---|",
            *rows,
        ]
    )


def _cell(test: str | None) -> str:
    return "**none**" if test is None else f"`{test.split('[')[0]}`"
