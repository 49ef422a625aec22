"""The table of planted faults fits the code; ``make mutations`` plants them."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tools import fault_table, mutations
from tools.faults import FAULTS, Fault

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_every_fault_still_fits_one_place_and_stays_python(fault):
    planted = fault.planted((ROOT / fault.file).read_text(encoding="utf-8"))
    compile(planted, fault.file, "exec")


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.name)
def test_the_tests_of_every_fault_exist(fault):
    assert fault.tests
    for test in fault.tests:
        file, *_, function = test.split("::")
        assert f"def {function}(" in (ROOT / file).read_text(encoding="utf-8"), test


def test_names_are_unique():
    assert len({fault.name for fault in FAULTS}) == len(FAULTS)


@pytest.mark.parametrize("source", ["", "a b a"])
def test_a_fault_that_does_not_fit_exactly_once_is_refused(source):
    with pytest.raises(ValueError, match=r"drifted: expected 'a' once in x\.py, found it [02] times"):
        Fault("drifted", "x.py", "a", "b", ("t",)).planted(source)


def test_the_page_shows_every_fault():
    page = (ROOT / "docs" / "testing.md").read_text(encoding="utf-8")
    table = page.partition(fault_table.BEGIN)[2].partition(fault_table.END)[0]
    assert re.findall(r"^\| (.+?) \| `(.+?)` \|", table, re.MULTILINE) == [
        (fault.name, fault.file) for fault in FAULTS
    ]


def test_the_first_failing_test_is_read_from_what_pytest_prints():
    printed = "FAILED tests/a.py::test_b[x y-1] - ValueError: no - really\nFAILED tests/c.py::test_d\n"
    assert mutations.FAILURE.findall(printed) == ["tests/a.py::test_b[x y-1]", "tests/c.py::test_d"]
