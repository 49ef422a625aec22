"""What changes with depth, as curves: each function draws one set of axes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch

from .canvas import COLOURS

if TYPE_CHECKING:
    from .report import ConnectionReport, MixingReport

NAMED_TICKS = 16
LOG_FLOOR = 1e-17


def draw_depth_product(axes: Any, report: MixingReport) -> None:
    """Singular values and gains of every prefix of the product, on a log axis."""
    for rank in range(_most_streams(report)):
        values = [_at(prefix.singular_values, rank) for prefix in report.depth]
        label = f"σ{rank + 1}" if rank in (0, 1) else None
        axes.plot(_floored(values), color=COLOURS[0], alpha=1.0 if rank < 2 else 0.35, label=label,
                  linestyle="--" if rank == 1 else "-")  # fmt: skip
    for name, colour in (("forward_gain", COLOURS[2]), ("backward_gain", COLOURS[1])):
        values = [prefix.quantities[name].mean for prefix in report.depth]
        axes.plot(_floored(values), color=colour, label=name.replace("_", " "))
    axes.set_yscale("log")
    _dress(axes, "product through depth", [prefix.name for prefix in report.depth])
    _keep_one_visible(axes)


def draw_singular_values(axes: Any, report: MixingReport) -> None:
    """All singular values of each matrix."""
    for rank in range(_most_streams(report)):
        values = [_at(c.singular_values, rank) for c in report]
        axes.plot(values, ".-", color=COLOURS[rank % len(COLOURS)], label=f"σ{rank + 1}")
    axes.set_ylim(bottom=0)
    _dress(axes, "singular values of each H", [c.name for c in report])


def draw_pre(axes: Any, report: MixingReport) -> None:
    """With which weight each branch reads each stream; bands are extremes over tokens."""
    _draw_gates(axes, report, "pre", "pre: how each stream is read")


def draw_post(axes: Any, report: MixingReport) -> None:
    """With which weight each branch writes to each stream."""
    _draw_gates(axes, report, "post", "post: how each stream is written")


def draw_similarity(axes: Any, report: MixingReport) -> None:
    """Mean pairwise cosine of the streams that enter each connection, with its extremes over tokens."""
    seen = [c.similarity for c in report]
    if all(summary is None for summary in seen):
        axes.text(0.5, 0.5, "needs inputs:\nhc.inspect(model, x)", ha="center", va="center", transform=axes.transAxes)
    else:
        values = [[float("nan")] * 3 if s is None else [s.mean, s.smallest, s.largest] for s in seen]
        mean, smallest, largest = zip(*values, strict=True)
        axes.fill_between(range(len(mean)), smallest, largest, color=COLOURS[0], alpha=0.2, linewidth=0)
        axes.plot(mean, ".-", color=COLOURS[0])
        axes.set_ylim(min(-0.05, *smallest) if smallest else -0.05, 1.05)
    _dress(axes, "similarity of the streams", [c.name for c in report], legend=False)


CURVES: tuple[Callable[[Any, MixingReport], None], ...] = (
    draw_depth_product,
    draw_singular_values,
    draw_similarity,
    draw_pre,
    draw_post,
)


def _draw_gates(axes: Any, report: MixingReport, which: str, title: str) -> None:
    for stream in range(_most_streams(report)):
        rows = [_gate_at(c, which, stream) for c in report]
        mean, smallest, largest = zip(*rows, strict=True)
        colour = COLOURS[stream % len(COLOURS)]
        axes.fill_between(range(len(mean)), smallest, largest, color=colour, alpha=0.15, linewidth=0)
        axes.plot(mean, ".-", color=colour, label=f"stream {stream}")
    _dress(axes, title, [c.name for c in report])


def _gate_at(c: ConnectionReport, which: str, stream: int) -> tuple[float, float, float]:
    gates = getattr(c, which)
    if gates is None:
        return (float("nan"),) * 3
    return tuple(_at(values, stream) for values in gates)  # type: ignore[return-value]


def _at(values: torch.Tensor, index: int) -> float:
    return float(values[index]) if index < len(values) else float("nan")


def _floored(values: Sequence[float]) -> list[float]:
    """A log axis has no zero."""
    return [max(value, LOG_FLOOR) if value == value else value for value in values]


def _keep_one_visible(axes: Any) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(min(low, 0.5), max(high, 2.0))


def _most_streams(report: MixingReport) -> int:
    return max((c.streams for c in report), default=0)


def _dress(axes: Any, title: str, names: Sequence[str], legend: bool = True) -> None:
    axes.set_title(title, fontsize=9)
    axes.grid(alpha=0.3)
    axes.tick_params(which="both", labelsize=7)
    if len(names) <= NAMED_TICKS:
        axes.set_xticks(range(len(names)), names, rotation=60, ha="right", fontsize=6)
    else:
        axes.set_xlabel("connection, in call order", fontsize=7)
    if legend:
        axes.legend(fontsize=6, loc="best")
