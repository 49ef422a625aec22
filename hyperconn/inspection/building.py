"""From tallies to reports."""

from __future__ import annotations

from typing import Any

from .collector import Collector, SiteTallies
from .depth import Prefix
from .quantities import MATRIX_QUANTITIES
from .report import ConnectionReport, Gates, MixingReport, PrefixReport
from .tally import Tally


def build_report(collector: Collector, per_token: bool) -> MixingReport:
    """The report on everything that a collector has seen in whole batches."""
    prefixes = collector.depth.prefixes
    order = dict.fromkeys(prefix.name for prefix in prefixes)
    connections = [_connection(collector.tallies[name]) for name in order]
    uncalled = [name for name in collector.tallies if name not in order]
    return MixingReport(connections, _depth(prefixes), per_token, collector.batches, uncalled)


def _depth(prefixes: list[Prefix]) -> list[PrefixReport]:
    lengths: dict[int, int] = {}
    reports = []
    for prefix in prefixes:
        lengths[prefix.chain] = lengths.get(prefix.chain, 0) + 1
        facts = _matrix_facts(prefix.tally)
        reports.append(PrefixReport(name=prefix.name, chain=prefix.chain, length=lengths[prefix.chain], **facts))
    return reports


def _connection(seen: SiteTallies) -> ConnectionReport:
    facts = _matrix_facts(seen.matrix)
    if seen.site.starts is not None:
        facts["quantities"]["distance_from_start"] = seen.matrix.scalar("distance_from_start")
    return ConnectionReport(
        name=seen.site.name,
        constraint=seen.site.constraint,
        fixed=seen.site.fixed,
        calls=seen.calls,
        pre=_gates(seen.gates, "pre"),
        post=_gates(seen.gates, "post"),
        gates_non_finite=seen.gates.tokens > 0 and seen.gates.scalar("non_finite").mean > 0,
        similarity=seen.similarity.scalar("similarity") if seen.similarity.tokens else None,
        spread=seen.spread.scalar("spread").largest if seen.spread.tokens else None,
        **facts,
    )


def _matrix_facts(tally: Tally) -> dict[str, Any]:
    broken = tally.scalar("non_finite")
    return {
        "matrix": tally.tensor("entries"),
        "smallest": tally.tensor("entries", "smallest"),
        "largest": tally.tensor("entries", "largest"),
        "negative_rate": tally.tensor("negative"),
        "singular_values": tally.tensor("singular_values"),
        "quantities": {name: tally.scalar(name) for name in MATRIX_QUANTITIES},
        "tokens": tally.tokens,
        "non_finite": round(broken.mean * tally.tokens),
        "first_non_finite": broken.where_largest if broken.largest else None,
    }


def _gates(tally: Tally, name: str) -> Gates | None:
    if not tally.tokens:
        return None
    return Gates(tally.tensor(name), tally.tensor(name, "smallest"), tally.tensor(name, "largest"))
