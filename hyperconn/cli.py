"""``hyperconn``: look into checkpoints from the command line, and list the constraints."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from .constraints import constraint_class, list_constraints
from .inspection.canvas import check_suffix
from .inspection.checkpoints import checkpoint_continuity, inspect_checkpoint
from .inspection.checkpoints.errors import printable
from .inspection.continuity import ContinuityReport
from .inspection.report import MixingReport
from .inspection.table import render_table

FAILED = 2  # what argparse itself uses for what the user can mend
CLAIMS = {
    "H ≥ 0": "nonnegative",
    "rows sum to 1": "unit_row_sums",
    "columns sum to 1": "unit_column_sums",
    "‖H‖₂ ≤ 1": "nonexpansive",
    "closed under product": "closed_under_product",
    "exact": "exact",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Exit status: 0, or 2 with one line on stderr for what the user can mend."""
    options = _parser().parse_args(arguments)
    try:
        options.run(options)
    except (ValueError, ImportError, OSError) as error:
        print(f"hyperconn: error: {_line(error)}", file=sys.stderr)
        return FAILED
    except BrokenPipeError:
        return FAILED
    return 0


def _inspect(options: argparse.Namespace) -> None:
    if options.plot:
        check_suffix(options.plot)
    report = inspect_checkpoint(options.checkpoint)
    print(report)
    _write(report, options)
    if options.html:
        report.html(options.html)


def _continuity(options: argparse.Namespace) -> None:
    if options.plot:
        check_suffix(options.plot)
    report = checkpoint_continuity(options.checkpoint)
    print(report)
    _write(report, options)


def _write(report: MixingReport | ContinuityReport, options: argparse.Namespace) -> None:
    if options.plot:
        report.plot(options.plot)
    if options.json:
        report.to_json(options.json)


def _constraints(options: argparse.Namespace) -> None:
    rows = []
    for name in list_constraints():
        cls = constraint_class(name)
        claims = ["yes" if getattr(cls, claim) else "no" for claim in CLAIMS.values()]
        rows.append([name, ", ".join(cls.aliases), *claims, cls.set_description, cls.reference])
    print(render_table("constraints", ["name", "alias", *CLAIMS, "set", "reference"], rows))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="hyperconn", description="Look at hyper-connections without writing code.")
    commands = parser.add_subparsers(required=True, metavar="COMMAND")
    inspect = commands.add_parser("inspect", help="tables and pictures of the residual matrices in a checkpoint")
    inspect.set_defaults(run=_inspect)
    continuity = commands.add_parser("continuity", help="singular directions of weights from layer to layer")
    continuity.set_defaults(run=_continuity)
    for command in (inspect, continuity):
        command.add_argument(
            "checkpoint", metavar="CHECKPOINT", help="a .pt or .safetensors file, or a folder of shards"
        )
        command.add_argument("--plot", metavar="FILE", help="write a picture (.png, .svg or .pdf)")
        command.add_argument("--json", metavar="FILE", help="write all numbers as JSON")
    inspect.add_argument("--html", metavar="FILE", help="write one self-contained page")
    commands.add_parser("constraints", help="the names and what their sets claim").set_defaults(run=_constraints)
    return parser


def _line(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return printable(f"{error.filename}: {error.strerror}")
    return printable(str(error))


if __name__ == "__main__":
    sys.exit(main())
