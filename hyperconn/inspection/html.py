"""A report as one page that needs nothing else: no network, no scripts."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .canvas import svg_of
from .tables import connection_table, depth_table, number

if TYPE_CHECKING:
    from .report import MixingReport

STYLE = """
body { font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 1200px; padding: 0 1rem; color: #222; }
h1 { font-size: 1.5rem } h2 { font-size: 1.15rem; margin-top: 2.2rem }
.scroll { overflow-x: auto } table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 13px }
th, td { padding: .2rem .6rem; text-align: right; border-bottom: 1px solid #ddd; white-space: nowrap }
th { border-bottom: 2px solid #888 } td:first-child, th:first-child { text-align: left }
tbody tr:hover { background: #f2f5ff } img { max-width: 100%; height: auto }
.flag { background: #fff3e0; border-left: 4px solid #e65100; padding: .4rem .8rem; margin: .4rem 0 }
.quiet { color: #666 } .bad { color: #b51d14; font-weight: 600 }
"""


def write_page(report: MixingReport, path: str | Path) -> None:
    """Write the page of a report."""
    Path(path).write_text(page(report), encoding="utf-8")


def page(report: MixingReport) -> str:
    """The page as text."""
    from .plots import curves_figure, heading, matrices_figure, products_figure

    title = f"Mixing of {len(report)} connections"
    parts = [
        f"<h1>{title}</h1>",
        _summary(report),
        _flags(report),
        f"<h2>{escape(heading(report))}</h2>",
        _picture(matrices_figure(report), "heat map of the residual matrix of every connection"),
        "<h2>With depth</h2>",
        _picture(curves_figure(report), "depth product, singular values, similarity, pre and post against depth"),
        "<h2>Products through depth</h2>",
        _picture(products_figure(report), "heat map of every prefix of the product"),
        _table(*connection_table(report)),
        _table(*depth_table(report)),
        _negative_entries(report),
    ]
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<link rel="icon" href="data:,"><style>{STYLE}</style></head><body>\n'
        + "\n".join(parts)
        + "\n</body></html>\n"
    )


def _summary(report: MixingReport) -> str:
    negative = report.negative_entries()
    entries = sum(c.streams**2 for c in report)
    kind = f"{report.batches} batches, per token" if report.per_token else "the learned static matrices"
    lowest = f", down to {number(min(entry.value for entry in negative))}" if negative else ""
    return (
        f"<p>{kind}; {len(negative)} of {entries} entries are negative{lowest}. "
        '<span class="quiet">H[i, j] carries stream j into stream i.</span></p>'
    )


def _flags(report: MixingReport) -> str:
    flags = report.flags()
    if not flags:
        return '<p class="quiet">No flags.</p>'
    return "\n".join(f'<p class="flag"><b>{escape(flag.kind)}</b>: {escape(flag.text)}</p>' for flag in flags)


def _picture(figure: Any, description: str) -> str:
    content = base64.b64encode(svg_of(figure)).decode()
    return f'<img alt="{escape(description)}" src="data:image/svg+xml;base64,{content}">'


def _table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = "\n".join("<tr>" + "".join(_cell(cell) for cell in row) + "</tr>" for row in rows)
    return (
        f'<h2>{escape(title)}</h2>\n<div class="scroll"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>\n{body}\n</tbody></table></div>"
    )


def _cell(text: str) -> str:
    bad = ' class="bad"' if text in ("nan", "inf", "-inf") or text.startswith("-") else ""
    return f"<td{bad}>{escape(text)}</td>"


def _negative_entries(report: MixingReport) -> str:
    entries = report.negative_entries()
    if not entries:
        return "<h2>Negative entries</h2><p>None.</p>"
    columns = ["connection", "into stream", "from stream", "most negative value", "share of tokens"]
    rows = [[e.layer, str(e.destination), str(e.source), number(e.value), f"{e.rate:.3g}"] for e in entries]
    return f"<details><summary>Negative entries: {len(rows)}</summary>{_table('', columns, rows)}</details>"
