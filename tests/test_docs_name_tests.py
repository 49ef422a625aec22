"""A promise in the docs that names a test names one that exists."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
NAMED = re.compile(r"`(tests/[\w/]+\.py)::([\w:]+)`")


def defined(source: str) -> set[str]:
    """Names of the tests in a file; those of a class as ``Class::test``."""
    found = set()
    for node in ast.parse(source).body:
        if isinstance(node, ast.FunctionDef):
            found.add(node.name)
        elif isinstance(node, ast.ClassDef):
            found |= {f"{node.name}::{part.name}" for part in node.body if isinstance(part, ast.FunctionDef)}
    return found


def missing(text: str) -> list[str]:
    return [
        f"{path}::{name}"
        for path, name in NAMED.findall(text)
        if not (ROOT / path).is_file() or name not in defined((ROOT / path).read_text())
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_named_test_exists(page):
    assert missing(page.read_text()) == []


def test_every_mention_of_a_test_is_one_that_is_looked_up():
    text = (ROOT / "docs" / "trust.md").read_text()
    assert len(NAMED.findall(text)) == text.count("::") > 20


def test_a_test_that_does_not_exist_is_noticed():
    here = "tests/test_docs_name_tests.py"
    assert missing(f"`{here}::test_nothing`, `tests/none.py::test_x`, `{here}::test_every_named_test_exists`") == [
        f"{here}::test_nothing",
        "tests/none.py::test_x",
    ]
