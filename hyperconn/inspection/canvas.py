"""Figures without global state, and files by suffix; matplotlib is imported here and only when drawing."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

SUFFIXES = (".png", ".svg", ".pdf")
COLOURS = ("#4053d3", "#ddb310", "#b51d14", "#00beff", "#fb49b0", "#00b25d", "#cacaca", "#8c564b")


def new_figure(width: float, height: float) -> Any:
    """An empty figure, sizes in inches.

    Raises:
        ImportError: matplotlib is not installed.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ImportError("drawing needs matplotlib: pip install 'hyperconn[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained")


def save_figure(figure: Any, path: str | Path) -> None:
    """Write PNG, SVG or PDF by suffix.

    Raises:
        ValueError: another suffix.
    """
    suffix = Path(path).suffix.lower()
    check_suffix(path)
    figure.savefig(path, format=suffix[1:], dpi=150)


def check_suffix(path: str | Path) -> None:
    """Before anything is drawn.

    Raises:
        ValueError: a suffix that is none of ``SUFFIXES``.
    """
    if Path(path).suffix.lower() not in SUFFIXES:
        raise ValueError(f"plot({str(path)!r}): expected a name that ends in {', '.join(SUFFIXES)}.")


def svg_of(figure: Any) -> bytes:
    """The figure as SVG."""
    content = io.BytesIO()
    figure.savefig(content, format="svg")
    return content.getvalue()
