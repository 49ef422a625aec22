"""The docs of the constraints: one page each, and a table that is what the classes are."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest

import hyperconn as hc

DOCS = Path(__file__).parent.parent / "docs"
TABLE = runpy.run_path(str(DOCS / "constraints_table.py"), run_name="table")


def test_everything_in_the_table_but_the_measured_figures_is_what_the_classes_are():
    text = (DOCS / "constraints.md").read_text()
    costs, machine = TABLE["stated"](text)
    assert set(costs) == set(hc.list_constraints())
    assert TABLE["page"](costs, machine) == text


def test_the_measured_figures_are_ratios_to_identity():
    costs, machine = TABLE["stated"]((DOCS / "constraints.md").read_text())
    assert costs["identity"] == "1.00"
    assert all(0.1 < float(cost) < 20 for cost in costs.values())
    assert "torch" in machine


def test_the_script_measures_every_constraint(monkeypatch):
    monkeypatch.setitem(TABLE["measured_costs"].__globals__, "TOKENS", (2, 3))
    monkeypatch.setitem(TABLE["measured_costs"].__globals__, "ROUNDS", 1)
    costs = TABLE["measured_costs"]()
    assert set(costs) == set(hc.list_constraints())
    assert costs["identity"] == "1.00"


@pytest.mark.parametrize("name", hc.list_constraints())
def test_every_constraint_has_a_short_page_with_its_names_and_source(name):
    cls = hc.constraints.constraint_class(name)
    text = (DOCS / "constraints" / f"{name}.md").read_text()
    assert text.startswith(f"# `{name}`, alias " + ", ".join(f"`{alias}`" for alias in cls.aliases) + "\n")
    assert 10 <= len(text.splitlines()) <= 45
    for number in re.findall(r"\d{4}\.\d{5}", cls.reference):
        assert number in text
    for heading in ("**When**", "**Start**", "**Caveat**"):
        assert heading in text


def test_there_is_no_page_of_a_constraint_that_is_gone():
    assert {path.stem for path in (DOCS / "constraints").glob("*.md")} == set(hc.list_constraints())
