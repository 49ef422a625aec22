"""The picture of a continuity report."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .canvas import COLOURS, check_suffix, new_figure, save_figure

if TYPE_CHECKING:
    from .continuity import ContinuityReport

CELL = 1.7  # inches


def draw_continuity(report: ContinuityReport, path: str | Path) -> None:
    """Adjacent layers as curves, every pair of layers as heat maps."""
    check_suffix(path)
    width = max(9.0, CELL * len(report) + 1.5)
    figure = new_figure(width, 3.6 + 2 * CELL * 1.25)
    top, bottom = figure.subfigures(2, 1, height_ratios=[3.6, 2 * CELL * 1.25])
    draw_adjacent(top, report)
    draw_all_pairs(bottom, report)
    save_figure(figure, path)


def draw_adjacent(figure: Any, report: ContinuityReport) -> None:
    """C_v and C_u against depth; a dotted line is what random directions give."""
    for axes, side in zip(figure.subplots(1, 2, sharey=True), "vu", strict=True):
        for index, projection in enumerate(report):
            colour = COLOURS[index % len(COLOURS)]
            axes.plot(getattr(projection, f"c_{side}"), ".-", color=colour, label=projection.name)
            axes.axhline(getattr(projection, f"baseline_{side}"), color=colour, linestyle=":", linewidth=0.8)
        space = "input" if side == "v" else "output"
        axes.set_title(f"C_{side}: leading {space} direction of adjacent layers", fontsize=9)
        axes.set_xlabel("pair of layers", fontsize=8)
        axes.set_ylim(0, 1.02)
        axes.grid(alpha=0.3)
    axes.legend(fontsize=7)


def draw_all_pairs(figure: Any, report: ContinuityReport) -> None:
    """Layer × layer, input directions above, output directions below."""
    grid = figure.subplots(2, len(report), squeeze=False)
    image = None
    for column, projection in enumerate(report):
        for row, side in enumerate("vu"):
            axes = grid[row, column]
            image = axes.imshow(getattr(projection, f"matrix_{side}").numpy(), vmin=0, vmax=1, cmap="viridis")
            axes.set_title(f"{projection.name}: {side}₁", fontsize=8)
            axes.tick_params(labelsize=6)
    grid[0, 0].set_ylabel("layer", fontsize=7)
    grid[1, 0].set_ylabel("layer", fontsize=7)
    figure.colorbar(image, ax=grid, shrink=0.8).ax.tick_params(labelsize=7)
