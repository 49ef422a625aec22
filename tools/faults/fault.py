"""One classic mistake: where it goes in, and the tests that must notice."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Fault(NamedTuple):
    """``old`` becomes ``new`` in ``file``; at least one of ``tests`` (pytest node ids) has to fail."""

    name: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    def plant(self, root: Path) -> None:
        """Put it into the tree at ``root``.

        Raises:
            ValueError: the old text does not occur exactly once, so that the table no longer fits the code.
        """
        path = root / self.file
        path.write_text(self.planted(path.read_text(encoding="utf-8")), encoding="utf-8")

    def planted(self, source: str) -> str:
        """The source with the fault in it."""
        found = source.count(self.old)
        if found != 1 or self.old == self.new:
            raise ValueError(f"{self.name}: expected {self.old!r} once in {self.file}, found it {found} times.")
        return source.replace(self.old, self.new)
