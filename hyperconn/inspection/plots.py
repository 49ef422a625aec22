"""The picture of a report: all matrices, and what changes with depth."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from .canvas import check_suffix, new_figure, save_figure
from .curves import CURVES
from .heatmaps import CELL, draw_heat_maps, grid_size, heat_map_figure

if TYPE_CHECKING:
    from .report import MixingReport


def draw_report(report: MixingReport, path: str | Path) -> None:
    """Everything on one sheet."""
    check_suffix(path)
    heights = [CELL * 1.2 * grid_size(len(report))[0] + 0.5, 6.5]
    figure = new_figure(14, sum(heights))
    top, bottom = figure.subfigures(2, 1, height_ratios=heights)
    top.suptitle(heading(report), fontsize=10)
    draw_heat_maps(top, connection_titles(report), report.connections)
    _draw_curves(bottom, report)
    save_figure(figure, path)


def matrices_figure(report: MixingReport) -> Any:
    """The matrices of the connections."""
    return heat_map_figure(connection_titles(report), report.connections)


def products_figure(report: MixingReport) -> Any:
    """Every prefix of the product."""
    titles = [f"{prefix.length} up to {prefix.name}" for prefix in report.depth]
    return heat_map_figure(titles, report.depth)


def curves_figure(report: MixingReport) -> Any:
    """All curves."""
    figure = new_figure(14, 6.5)
    _draw_curves(figure, report)
    return figure


def heading(report: MixingReport) -> str:
    """What the heat maps show."""
    kind = (
        "means over tokens; a red dot: negative at some token" if report.per_token else "static; a red dot: negative"
    )
    return f"residual matrices H[into, from] ({kind})"


def connection_titles(report: MixingReport) -> list[str]:
    """Names over the heat maps."""
    return [c.name or "(the model itself)" for c in report]


def _draw_curves(figure: Any, report: MixingReport) -> None:
    grid = figure.subplots(2, 3)
    for axes, draw in zip(grid.flat, CURVES, strict=False):
        draw(axes, report)
    for axes in grid.flat[len(CURVES) :]:
        axes.set_axis_off()
