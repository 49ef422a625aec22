"""A grid of matrices as heat maps: red is negative, blue positive, white zero."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from .canvas import new_figure

if TYPE_CHECKING:
    from torch import Tensor

    from .report import MatrixReport

CELL = 1.5  # inches
COLUMNS = 8
WRITTEN_STREAMS = 4  # up to this n the numbers fit into the cells


def grid_size(count: int) -> tuple[int, int]:
    """Rows and columns for so many matrices."""
    columns = min(count, COLUMNS)
    return math.ceil(count / columns), columns


def heat_map_figure(titles: Sequence[str], matrices: Sequence[MatrixReport]) -> Any:
    """A figure of its own."""
    rows, columns = grid_size(len(matrices))
    figure = new_figure(max(4.0, CELL * columns + 1), CELL * 1.2 * rows + 0.5)
    draw_heat_maps(figure, titles, matrices)
    return figure


def draw_heat_maps(figure: Any, titles: Sequence[str], matrices: Sequence[MatrixReport]) -> None:
    """One heat map per matrix, all on one scale; a corner mark shows an entry that is negative at some token."""
    rows, columns = grid_size(len(matrices))
    grid = figure.subplots(rows, columns, squeeze=False)
    limit = colour_limit([found.matrix for found in matrices])
    image = None
    for axes, title, found in zip(grid.flat, titles, matrices, strict=False):
        image = draw_matrix(axes, found, limit)
        axes.set_title(title, fontsize=7)
    for axes in grid.flat[len(matrices) :]:
        axes.set_axis_off()
    grid[0, 0].set_ylabel("into stream", fontsize=6)
    grid[0, 0].set_xlabel("from stream", fontsize=6)
    bar = figure.colorbar(image, ax=grid, shrink=0.8, aspect=30)
    bar.ax.tick_params(labelsize=6)


def colour_limit(matrices: Sequence[Tensor]) -> float:
    """The largest finite magnitude, so that zero is the middle of the palette."""
    magnitudes = [matrix[matrix.isfinite()].abs() for matrix in matrices]
    return max((float(values.max()) for values in magnitudes if values.numel()), default=1.0) or 1.0


def draw_matrix(axes: Any, found: MatrixReport, limit: float) -> Any:
    """One heat map; entries that are not finite are black."""
    import matplotlib

    palette = matplotlib.colormaps["RdBu"].with_extremes(bad="black")
    n = found.matrix.shape[-1]
    image = axes.imshow(found.matrix.numpy(), cmap=palette, vmin=-limit, vmax=limit)
    axes.set_xticks(range(n), range(n), fontsize=5)
    axes.set_yticks(range(n), range(n), fontsize=5)
    for i in range(n):
        for j in range(n):
            _mark(axes, found, i, j, limit)
    return image


def _mark(axes: Any, found: MatrixReport, i: int, j: int, limit: float) -> None:
    value = float(found.matrix[i, j])
    if found.matrix.shape[-1] <= WRITTEN_STREAMS:
        dark = not math.isfinite(value) or abs(value) > 0.6 * limit
        text = f"{value:.2f}".replace("-0.00", "0.00") if math.isfinite(value) else str(value)
        axes.text(j, i, text, ha="center", va="center", fontsize=5, color="white" if dark else "black")
    if found.negative_rate[i, j] > 0:
        axes.plot(j + 0.36, i - 0.36, marker=".", color="#b51d14", markersize=3, markeredgewidth=0)
