"""A CSV file that a resumed run goes on with."""

from __future__ import annotations

import csv
import os
from collections.abc import Mapping, Sequence
from pathlib import Path


class TrainingLog:
    """Rows with a step; nothing is written before the first row.

    An earlier file with the same columns is continued: its rows from the first new step on are
    dropped, because a resumed run goes through them again. Any other file is replaced.

    Args:
        path: the file.
        columns: names; the first is ``"step"``.
    """

    def __init__(self, path: Path, columns: Sequence[str]):
        self.path, self.columns = path, list(columns)
        self._started = False

    def write(self, rows: Sequence[Mapping[str, object]]) -> None:
        """Append rows of one step."""
        if not self._started:
            self._start(rows)
        with self.path.open("a", newline="") as file:
            csv.DictWriter(file, self.columns, restval="").writerows(rows)

    def _start(self, rows: Sequence[Mapping[str, object]]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True)
        earlier = self._earlier(int(str(rows[0]["step"])))
        partial = self.path.with_name(self.path.name + ".partial")
        with partial.open("w", newline="") as file:
            writer = csv.DictWriter(file, self.columns, restval="")
            writer.writeheader()
            writer.writerows(earlier)
        os.replace(partial, self.path)
        self._started = True

    def _earlier(self, step: int) -> list[dict[str, str]]:
        if not self.path.exists():
            return []
        with self.path.open(newline="") as file:
            reader = csv.DictReader(file)
            if reader.fieldnames != self.columns:
                return []
            return [row for row in reader if row["step"].isdecimal() and int(row["step"]) < step]
