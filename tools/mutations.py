"""Plants classic faults one at a time, each in a copy of the tree, and checks that the tests notice.

python tools/mutations.py                  every fault; the exit status is 1 if one survives
python tools/mutations.py --only NAME      one of them, or all whose names contain the text
python tools/mutations.py --list
python tools/mutations.py --write          also puts the result into docs/testing.md
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple, TypeVar

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tools.fault_table import write_table  # noqa: E402
from tools.faults import FAULTS, Fault  # noqa: E402 - found from any working directory

LEFT_OUT = shutil.ignore_patterns(".*", "__pycache__", "runs", "build", "dist", "shared", "*.egg-info")
PASSED, FAILED = 0, 1  # exit statuses of pytest; others mean that the tests did not run properly
Item = TypeVar("Item")
Result = TypeVar("Result")
FAILURE = re.compile(r"^FAILED (\S+(?: \S+)*?)(?: - |$)", re.MULTILINE)


class Outcome(NamedTuple):
    """What the tests said of one fault; ``caught_by`` is the first test that failed, if one did."""

    fault: Fault
    caught_by: str | None
    problem: str
    seconds: float


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    faults = [fault for fault in FAULTS if options.only in fault.name]
    if not faults:
        print(f"mutations: no fault is called {options.only!r}; see --list.", file=sys.stderr)
        return 2
    if options.list:
        print("\n".join(f"{fault.name}: {fault.file}" for fault in faults))
        return 0
    complaints = list(_drifted(faults)) or _misled() or _not_green(faults, options)
    if complaints:
        print("\n".join(complaints), file=sys.stderr)
        return 2
    return 1 if _survivors(faults, options) else 0


def _survivors(faults: Sequence[Fault], options: argparse.Namespace) -> int:
    """Plant all faults, show and, if asked, write what became of them; how many no test noticed."""
    started = time.monotonic()
    outcomes = list(_shown(_each(partial(_outcome, limit=options.timeout), faults, options.jobs)))
    survived = sum(outcome.caught_by is None for outcome in outcomes)
    print(f"{len(outcomes)} faults, {survived} survived, {time.monotonic() - started:.0f} s")
    if options.write and not options.only:
        write_table(ROOT / "docs" / "testing.md", [(o.fault.name, o.fault.file, o.caught_by) for o in outcomes])
    return survived


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="mutations", description="Plant faults and check that the tests notice.")
    parser.add_argument("--list", action="store_true", help="show the faults and plant none")
    parser.add_argument("--only", default="", metavar="NAME", help="faults whose names contain this")
    parser.add_argument("--jobs", type=int, default=2, help="faults at a time (%(default)s)")
    parser.add_argument("--timeout", type=float, default=300, help="seconds for the tests of a fault (%(default)s)")
    parser.add_argument("--write", action="store_true", help="put the result into docs/testing.md")
    return parser.parse_args(arguments)


def _drifted(faults: Iterable[Fault]) -> Iterator[str]:
    """Complaints about faults that no longer fit the code."""
    for fault in faults:
        try:
            fault.planted((ROOT / fault.file).read_text(encoding="utf-8"))
        except (OSError, ValueError) as error:
            yield f"mutations: {error}"


def _not_green(faults: Iterable[Fault], options: argparse.Namespace) -> list[str]:
    """Complaints about the same tests without a fault: a red test catches everything."""
    tests = sorted(set(itertools.chain.from_iterable(fault.tests for fault in faults)))
    shares = [tests[start :: options.jobs] for start in range(min(options.jobs, len(tests)))]
    runs = list(_each(partial(_run, None, limit=3 * options.timeout), shares, options.jobs))
    return [f"mutations: not green without a fault:\n{output}" for status, output in runs if status != PASSED]


def _outcome(fault: Fault, limit: float) -> Outcome:
    started = time.monotonic()
    status, output = _run(fault, fault.tests, limit)
    failures = FAILURE.findall(output) if status == FAILED else []
    problem = "" if status in (PASSED, FAILED) else f"the tests did not run (status {status}):\n{output[-2000:]}"
    return Outcome(fault, failures[0] if failures else None, problem, time.monotonic() - started)


def _run(fault: Fault | None, tests: Sequence[str], limit: float) -> tuple[int | None, str]:
    """Exit status of the tests in a copy of the tree with the fault, None for too long; and their output."""
    with _copy() as tree:
        if fault is not None:
            fault.plant(tree)
        try:
            done = _python(tree, ["-m", "pytest", "-x", "-q", "--tb=line", "-p", "no:cacheprovider", *tests], limit)
        except subprocess.TimeoutExpired:
            return None, f"longer than {limit:.0f} s"
        return done.returncode, done.stdout + done.stderr


def _misled() -> list[str]:
    """A complaint if the tests would import another library than that of the copy."""
    with _copy() as tree:
        seen = _python(tree, ["-c", "import hyperconn; print(hyperconn.__file__)"], limit=120).stdout.strip()
        if Path(seen).resolve().is_relative_to(tree.resolve()):
            return []
        return [f"mutations: expected the tests to import hyperconn from {tree}, they import {seen or 'none'}."]


def _python(tree: Path, arguments: Sequence[str], limit: float) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(tree), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, cwd=tree, env=environment, text=True, capture_output=True, timeout=limit)


@contextlib.contextmanager
def _copy() -> Iterator[Path]:
    """The tree without its environment and build products; the checkout itself is never touched."""
    with tempfile.TemporaryDirectory(prefix="hyperconn-mutation-") as folder:
        yield Path(shutil.copytree(ROOT, Path(folder) / "tree", ignore=LEFT_OUT))


def _each(function: Callable[[Item], Result], items: Iterable[Item], jobs: int) -> Iterator[Result]:
    with ThreadPoolExecutor(jobs) as pool:
        yield from pool.map(function, items)


def _shown(outcomes: Iterable[Outcome]) -> Iterator[Outcome]:
    for outcome in outcomes:
        verdict = "SURVIVED" if outcome.caught_by is None else "caught  "
        print(f"{verdict} {outcome.seconds:4.0f} s  {outcome.fault.name}: {outcome.caught_by or outcome.problem}")
        sys.stdout.flush()
        yield outcome


if __name__ == "__main__":
    sys.exit(main())
