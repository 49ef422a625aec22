"""Try the package with other interpreters and other versions of torch, each in an environment of its own.

    python tools/compatibility.py            # every pair; writes docs/compatibility.md
    python tools/compatibility.py --only 3.10:2.6.0 --only 3.11:2.14.1

What cannot be had on this machine (an interpreter, a build of torch) is written down as such.
"""

from __future__ import annotations

import argparse
import datetime
import glob
import json
import os
import platform
import re
import shutil
import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE, RESULTS = ROOT / "docs" / "compatibility.md", ROOT / "docs" / "compatibility.json"
PAIRS = (
    "3.10:2.6.0",
    "3.10:2.13.0",
    "3.11:2.6.0",
    "3.11:2.13.0",
    "3.11:2.14.1",
    "3.12:2.13.0",
    "3.13:2.13.0",
    "3.14:2.13.0",
)
PACKAGES = ("pytest", "hypothesis", "numpy", "rich", "matplotlib", "safetensors", "hyper-connections")
TESTS = (
    "test_compile", "test_connection", "test_constraint_laws", "test_constraints_core", "test_constraints_field",
    "test_fast", "test_mappings", "test_parts", "test_precision", "test_recompute", "test_retraction", "test_state",
    "test_streams", "inspection/test_checkpoints", "inspection/test_inspect_quantities",
    "inspection/test_inspect_output", "inspection/test_continuity",
)  # fmt: skip
INSTALL_SECONDS, TEST_SECONDS = 1500, 1500
HEAD = """# Compatibility

Written by `make compat`: the core of the test suite (constraints, mappings, gradients, retractions, parts,
inspection, checkpoints), with deprecation warnings as errors, each pair in an environment of its own. The whole
suite runs on Python 3.11 and torch 2.13.0.

| Python | torch | result | on |
|---|---|---|---|
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", action="append", metavar="PYTHON:TORCH", help="a pair; may be given several times")
    parser.add_argument("--environments", type=Path, default=ROOT / ".venv" / "compatibility")
    options = parser.parse_args()
    results = json.loads(RESULTS.read_text()) if RESULTS.exists() else {}
    for pair in options.only or PAIRS:
        python, torch = pair.split(":")
        result = attempt(python, torch, options.environments / pair.replace(":", "-"))
        print(f"Python {python}, torch {torch}: {result}", flush=True)
        results[pair] = {"result": result, "on": f"{datetime.date.today()}, {platform.machine()}"}
        RESULTS.write_text(json.dumps(results, indent=1) + "\n")
        PAGE.write_text(page(results))


def attempt(python: str, torch: str, environment: Path) -> str:
    """What happened, in words for the table."""
    interpreter = find(python)
    if interpreter is None:
        return "not tried: no such interpreter on this machine"
    try:
        install(interpreter, torch, environment)
    except (subprocess.CalledProcessError, subprocess.TimeoutExpired) as error:
        shutil.rmtree(environment, ignore_errors=True)
        return f"not tried: {reason(error)}"
    return test(environment)


def find(python: str) -> str | None:
    """An interpreter by its version: on the path, or among those of pyenv."""
    candidates = [
        shutil.which(f"python{python}"),
        *glob.glob(os.path.expanduser(f"~/.pyenv/versions/{python}.*/bin/python")),
    ]
    for candidate in filter(None, candidates):
        asked = subprocess.run(
            [candidate, "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], capture_output=True, text=True
        )
        if asked.stdout.strip() == python:
            return candidate
    return None


def install(interpreter: str, torch: str, environment: Path) -> None:
    subprocess.run(
        [interpreter, "-m", "venv", "--clear", str(environment)], check=True, capture_output=True, timeout=120
    )
    pip = [str(environment / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    for arguments in ([f"torch=={torch}"], ["-e", str(ROOT), *PACKAGES, f"torch=={torch}"]):
        subprocess.run([*pip, *arguments], check=True, capture_output=True, text=True, timeout=INSTALL_SECONDS)


def reason(error: Exception) -> str:
    if isinstance(error, subprocess.TimeoutExpired):
        return f"the installation took more than {error.timeout:.0f} s"
    lines = [line for line in (error.stderr or "").splitlines() if line.startswith("ERROR")]
    return f"pip says {lines[0].removeprefix('ERROR: ')[:120]}" if lines else "the installation failed"


def test(environment: Path) -> str:
    files = [f"tests/{name}.py" for name in TESTS]
    command = [
        str(environment / "bin" / "python"),
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "--tb=line",
        *files,
    ]
    try:
        ran = subprocess.run(
            command,
            cwd=ROOT,
            capture_output=True,
            text=True,
            timeout=TEST_SECONDS,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
    except subprocess.TimeoutExpired:
        return f"no result after {TEST_SECONDS} s"
    summary = re.findall(
        r"^(?:=+ )?((?:\d+ (?:failed|passed|skipped|errors?|deselected)(?:, )?)+)", ran.stdout, re.MULTILINE
    )
    (environment / "log.txt").write_text(ran.stdout + ran.stderr)
    return summary[-1].strip() if summary else f"no test ran (exit status {ran.returncode})"


def page(results: dict[str, dict[str, str]]) -> str:
    rows = []
    for pair in sorted(results, key=lambda pair: [int(part) for part in re.split(r"[.:]", pair)]):
        python, torch = pair.split(":")
        rows.append(f"| {python} | {torch} | {results[pair]['result']} | {results[pair]['on']} |")
    return HEAD + "\n".join(rows) + "\n"


if __name__ == "__main__":
    main()
