"""Reports as plain data, JSON and CSV."""

from __future__ import annotations

import csv
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from .tally import Place, Summary

if TYPE_CHECKING:
    from .report import ConnectionReport, MatrixReport, MixingReport, PrefixReport


def report_dict(report: MixingReport) -> dict[str, Any]:
    """Everything in a report."""
    return {
        "per_token": report.per_token,
        "batches": report.batches,
        "connections": [_connection(c) for c in report.connections],
        "depth": [_prefix(prefix) for prefix in report.depth],
        "uncalled": list(report.uncalled),
        "negative_entries": [entry._asdict() for entry in report.negative_entries()],
        "flags": [{**flag._asdict(), "connections": list(flag.connections)} for flag in report.flags()],
    }


def report_rows(report: MixingReport) -> list[dict[str, Any]]:
    """One flat row per prefix: the connection's quantities and, as ``product.…``, the prefix's."""
    return [
        {"connection": prefix.name, "constraint": report[prefix.name].constraint, "chain": prefix.chain}
        | _flat("", report[prefix.name])
        | _flat_streams(report[prefix.name])
        | _flat("product.", prefix)
        for prefix in report.depth
    ]


def write_json(content: Any, path: str | Path) -> None:
    """Standard JSON, in which non-finite numbers have no place: they become strings."""
    Path(path).write_text(json.dumps(_without_nan(content), indent=1, allow_nan=False) + "\n")


def write_csv(rows: Sequence[Mapping[str, Any]], path: str | Path) -> None:
    """A header and the rows; columns are all keys in order of appearance."""
    columns = dict.fromkeys(key for row in rows for key in row)
    with Path(path).open("w", newline="") as file:
        writer = csv.DictWriter(file, list(columns), restval="")
        writer.writeheader()
        writer.writerows(rows)


def plain(value: Any) -> Any:
    """Tensors to lists, places and summaries to dictionaries."""
    if isinstance(value, Tensor):
        return value.tolist()
    if isinstance(value, Place):
        return {"batch": value.batch, "token": list(value.token)}
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return {name: plain(item) for name, item in value._asdict().items()}
    if isinstance(value, dict):
        return {name: plain(item) for name, item in value.items()}
    return value


def _connection(c: ConnectionReport) -> dict[str, Any]:
    return {"streams": c.streams, **{name: plain(value) for name, value in vars(c).items()}}


def _prefix(prefix: PrefixReport) -> dict[str, Any]:
    return {name: plain(value) for name, value in vars(prefix).items()}


def _flat(prefix: str, found: MatrixReport) -> dict[str, Any]:
    cells: dict[str, Any] = {f"{prefix}non_finite": found.non_finite}
    for name, summary in found.quantities.items():
        cells |= {f"{prefix}{name}": summary.mean} | _extremes(f"{prefix}{name}", summary)
    values = found.singular_values.tolist()
    return cells | {f"{prefix}singular_value_{index}": value for index, value in enumerate(values, 1)}


def _flat_streams(c: ConnectionReport) -> dict[str, Any]:
    cells: dict[str, Any] = {}
    for kind, gates in (("pre", c.pre), ("post", c.post)):
        if gates is not None:
            cells |= {f"{kind}_{stream}": value for stream, value in enumerate(gates.mean.tolist())}
    if c.similarity is not None:
        cells |= {"stream_similarity": c.similarity.mean} | _extremes("stream_similarity", c.similarity)
    return cells


def _extremes(name: str, summary: Summary) -> dict[str, float]:
    return {f"{name}.smallest": summary.smallest, f"{name}.largest": summary.largest}


def _without_nan(value: Any) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, dict):
        return {str(name): _without_nan(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_nan(item) for item in value]
    return value
