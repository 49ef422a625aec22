"""Reports as tables for a terminal."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from .table import render_table
from .tally import Summary

if TYPE_CHECKING:
    from .report import ConnectionReport, Gates, MixingReport, PrefixReport

MATRIX_COLUMNS = {
    "negative": "negative_share",
    "row err": "row_sum_error",
    "col err": "column_sum_error",
    "‖H‖₂": "spectral_norm",
    "σ₂": "second_singular_value",
    "gain →": "forward_gain",
    "gain ←": "backward_gain",
    "‖H−I‖": "distance_from_identity",
    "‖H−J‖": "distance_from_uniform",
}
DEPTH_COLUMNS = ("negative", "‖H‖₂", "σ₂", "gain →", "gain ←", "‖H−J‖")


def report_text(report: MixingReport) -> str:
    """Both tables and the flags."""
    parts = [render_table(*connection_table(report)), render_table(*depth_table(report))]
    flags = [f"! {flag}" for flag in report.flags()]
    return "\n".join([*parts, *(flags or ["no flags"])])


def connection_table(report: MixingReport) -> tuple[str, list[str], list[list[str]]]:
    """Title, columns and rows of the connections."""
    batches = f"{report.batches} batch" + ("es" if report.batches != 1 else "")
    kind = f"means over the tokens of {batches}" if report.per_token else "static"
    columns = ["connection", "constraint", "lowest", *MATRIX_COLUMNS, "pre", "post", "cosine"]
    return f"residual matrices ({kind})", columns, [_connection_row(c) for c in report.connections]


def depth_table(report: MixingReport) -> tuple[str, list[str], list[list[str]]]:
    """Title, columns and rows of the product through depth."""
    columns = ["product up to", "matrices", *(name.replace("H", "ΠH") for name in DEPTH_COLUMNS), "singular values"]
    return "product through depth (every prefix)", columns, [_prefix_row(prefix) for prefix in report.depth]


def number(value: float) -> str:
    """Three digits; what is not finite says so."""
    if not math.isfinite(value):
        return str(value)
    return f"{value:.3g}" if value == 0 or abs(value) >= 1e-3 else f"{value:.0e}"


def _connection_row(c: ConnectionReport) -> list[str]:
    quantities = [_mean(c.quantities[name]) for name in MATRIX_COLUMNS.values()]
    lowest = number(c.quantities["most_negative"].smallest)
    cosine = "" if c.similarity is None else _mean(c.similarity)
    return [c.name, c.constraint, lowest, *quantities, _range(c.pre), _range(c.post), cosine]


def _prefix_row(prefix: PrefixReport) -> list[str]:
    quantities = [_mean(prefix.quantities[MATRIX_COLUMNS[column]]) for column in DEPTH_COLUMNS]
    return [
        prefix.name,
        str(prefix.length),
        *quantities,
        " ".join(number(value) for value in prefix.singular_values.tolist()),
    ]


def _mean(summary: Summary) -> str:
    return number(summary.mean)


def _range(gates: Gates | None) -> str:
    if gates is None:
        return ""
    return f"{float(gates.smallest.min()):.2g}…{float(gates.largest.max()):.2g}"
