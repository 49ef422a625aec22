"""Every Python block of the README and the docs runs; the README's table is the classes' own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import hyperconn as hc

ROOT = Path(__file__).parent.parent
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
BLOCK = re.compile(r"^```python\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_blocks_run_one_after_another(page, tmp_path, monkeypatch, registry_restored):
    monkeypatch.chdir(tmp_path)
    namespace = {"__name__": "docs"}
    for block in BLOCK.findall(page.read_text()):
        exec(compile(block, str(page), "exec"), namespace)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\((?!https?://|#)([^)#\s]+)", page.read_text()):
        assert (page.parent / target).exists(), target


def test_the_readme_example_has_a_dozen_lines():
    assert len(BLOCK.findall((ROOT / "README.md").read_text())[0].strip().splitlines()) <= 14


def readme_row(name: str) -> str:
    cls = hc.constraints.constraint_class(name)
    claims = (
        not cls.nonnegative and name != "identity",
        cls.unit_row_sums,
        cls.unit_column_sums,
        cls.nonexpansive,
    )
    cells = [f"`{name}`", ", ".join(f"`{alias}`" for alias in cls.aliases), cls.set_description]
    return "| " + " | ".join([*cells, *("yes" if claim else "no" for claim in claims), cls.reference]) + " |"


def test_the_readme_table_is_what_the_classes_claim():
    rows = [line for line in (ROOT / "README.md").read_text().splitlines() if line.startswith("| `")]
    assert rows == [readme_row(name) for name in sorted(hc.list_constraints())]
