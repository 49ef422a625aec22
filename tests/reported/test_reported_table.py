"""The page of reported behaviours is complete: every number once, each with a test or a reason."""

from __future__ import annotations

import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs" / "reported-behaviours.md"
ROWS = [
    [cell.strip() for cell in line.strip("|\n").split("|")] for line in PAGE.read_text().splitlines() if "|" in line
][2:]
NAMED = re.compile(r"`tests/[\w/]+\.py::test_\w+`")


def test_every_number_occurs_once_and_in_order():
    assert [row[0] for row in ROWS] == [str(number) for number in range(1, 72)]


def test_every_row_says_what_where_and_how_it_is_held():
    for number, reported, where, held in ROWS:
        assert reported and where, number
        assert NAMED.search(held) or held.startswith("No test: "), number
    assert [row[0] for row in ROWS if not NAMED.search(row[3])] == ["62"]
