"""What deserves attention in a report, in words."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from .report import ConnectionReport, MixingReport, PrefixReport

IDENTICAL_SPREAD = 1e-5  # relative; copies differ by the rounding of H at most
FROZEN_DISTANCE = 1e-4  # ‖H − H_start‖_F; a matrix that learns moves by .002 to .3
IDENTITY_DISTANCE = 0.05  # ‖H − I‖_F; the default starts lie at .01 to .02
HOMOGENISED = 0.01  # second singular value of the product: what is left of a difference between streams
LISTED = 4


class Flag(NamedTuple):
    """``kind`` is one of the words below; ``connections`` are the names it is about."""

    kind: str
    text: str
    connections: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.kind}: {self.text}"


def find_flags(report: MixingReport, gain_bound: float | None = None) -> list[Flag]:
    """All flags of a report, the gravest first."""
    sources = (
        _non_finite(report),
        _gains(report, gain_bound),
        _homogenising(report),
        _identical(report),
        _frozen(report),
        _identity(report),
        _uncalled(report),
    )
    return [flag for flags in sources for flag in flags]


def _non_finite(report: MixingReport) -> Iterator[Flag]:
    for c in report.connections:
        if c.non_finite:
            where = (
                f" at {c.non_finite} of {c.tokens} tokens, first at {c.first_non_finite}" if report.per_token else ""
            )
            yield Flag("non-finite values", f"NaN or infinity in H of {_shown(c.name)}{where}", (c.name,))
        if c.gates_non_finite:
            yield Flag("non-finite values", f"NaN or infinity in pre or post of {_shown(c.name)}", (c.name,))
        if c.similarity is not None and not math.isfinite(c.similarity.mean):
            yield Flag("non-finite values", f"the streams that enter {_shown(c.name)} are not finite", (c.name,))


def _gains(report: MixingReport, bound: float | None) -> Iterator[Flag]:
    for c in report.connections:
        if _gain(c) > _bound(c, bound):
            yield Flag("gain above bound", f"{_gains_in_words(c)} at {_shown(c.name)}", (c.name,))
    for chain in _chains(report):
        worst = max(chain, key=_gain)
        if _gain(worst) > _bound(worst, bound):
            text = f"{_gains_in_words(worst)} in the product of the first {worst.length} matrices, up to {worst.name}"
            yield Flag("gain above bound", text, tuple(prefix.name for prefix in chain))


def _homogenising(report: MixingReport) -> Iterator[Flag]:
    for chain in _chains(report):
        last = chain[-1]
        value = last.quantities["second_singular_value"].mean
        if last.matrix.shape[-1] > 1 and value < HOMOGENISED:
            text = (
                f"after {last.length} matrices the second singular value of the product is {value:.2g}: "
                "differences between the streams are forgotten, up to " + _shown(last.name)
            )
            yield Flag("homogenising product", text, tuple(prefix.name for prefix in chain))


def _identical(report: MixingReport) -> Iterator[Flag]:
    seen = [c for c in report.connections if c.spread is not None]
    same = [c for c in seen if c.spread is not None and c.spread < IDENTICAL_SPREAD]
    # The first connection after an expansion always meets copies.
    beginnings = {chain[0].name for chain in _chains(report)}
    if same and not all(c.name in beginnings for c in same if len(seen) > len(beginnings)):
        yield _many("streams identical", "the streams are copies of each other where they enter", same, len(seen))


def _frozen(report: MixingReport) -> Iterator[Flag]:
    able = [c for c in report.connections if "distance_from_start" in c.quantities]
    still = [c for c in able if c.quantities["distance_from_start"].largest < FROZEN_DISTANCE]
    if still:
        part = "H" if report.per_token else "the static part of H"
        yield _many("matrices frozen", f"{part} is still at its start in", still, len(able))


def _identity(report: MixingReport) -> Iterator[Flag]:
    able = [c for c in report.connections if not c.fixed]
    near = [c for c in able if c.quantities["distance_from_identity"].largest < IDENTITY_DISTANCE]
    if near:
        yield _many("identity degeneration", f"‖H − I‖_F is below {IDENTITY_DISTANCE} in", near, len(able))


def _uncalled(report: MixingReport) -> Iterator[Flag]:
    if report.uncalled:
        text = f"no input reached {_listed(report.uncalled)}"
        yield Flag("not called", text, tuple(report.uncalled))


def _many(kind: str, text: str, found: list[ConnectionReport], of: int) -> Flag:
    names = [c.name for c in found]
    return Flag(kind, f"{text} {len(names)} of {of} connections: {_listed(names)}", tuple(names))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - LISTED} more" if len(names) > LISTED else ""
    return ", ".join(_shown(name) for name in names[:LISTED]) + more


def _shown(name: str) -> str:
    return name or "(the model itself)"


def _chains(report: MixingReport) -> list[list[PrefixReport]]:
    chains: dict[int, list[PrefixReport]] = {}
    for prefix in report.depth:
        chains.setdefault(prefix.chain, []).append(prefix)
    return list(chains.values())


def _gain(found: ConnectionReport | PrefixReport) -> float:
    gains = [found.quantities[name].largest for name in ("forward_gain", "backward_gain")]
    return max((gain for gain in gains if not math.isnan(gain)), default=0.0)


def _bound(found: ConnectionReport | PrefixReport, bound: float | None) -> float:
    return 2 * math.sqrt(found.matrix.shape[-1]) if bound is None else bound


def _gains_in_words(found: ConnectionReport | PrefixReport) -> str:
    forward, backward = (found.quantities[name].largest for name in ("forward_gain", "backward_gain"))
    return f"{forward:.4g} forward, {backward:.4g} backward"
