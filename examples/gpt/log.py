"""One CSV row per step, flushed at once; a resumed run drops the rows after its checkpoint."""

from __future__ import annotations

import csv
import io
from pathlib import Path

from .checkpoint import write_whole
from .refusal import Refusal

COLUMNS = ("step", "training_loss", "validation_loss", "learning_rate", "tokens_per_second")


class Log:
    """Appends to a file that starts with the given earlier rows."""

    def __init__(self, path: Path, earlier: list[list[str]]):
        content = io.StringIO(newline="")
        csv.writer(content, lineterminator="\n").writerows([COLUMNS, *earlier])
        write_whole(path, content.getvalue().encode())
        self.path = path

    def row(self, *values: object) -> None:
        """Floats are written with all their digits: equal rows mean bit-equal losses."""
        try:
            with self.path.open("a", newline="") as file:
                csv.writer(file, lineterminator="\n").writerow(values)
        except OSError as error:
            raise Refusal(f"{self.path}: cannot be written: {error.strerror}.") from error


def earlier_rows(path: Path, last_step: int) -> list[list[str]]:
    """Rows up to ``last_step``; a kill may have left more, and the last one torn."""
    try:
        with path.open(newline="", errors="replace") as file:
            rows = [row for row in csv.reader(file) if len(row) == len(COLUMNS) and row[0].isdecimal()]
    except (OSError, csv.Error):
        return []
    return [row for row in rows if int(row[0]) <= last_step]
