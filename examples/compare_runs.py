"""Show what the residual matrices of finished runs have learned: compare_runs.py runs/shc runs/mhc."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path

import torch

import hyperconn as hc
from gpt.checkpoint import check_model, load
from gpt.model import GPT
from gpt.options import parse, sizes
from gpt.refusal import Refusal
from gpt.resume import CHECKPOINT


def main(folders: Sequence[str]) -> int:
    if not folders:
        print("usage: compare_runs.py RUN [RUN ...], folders that train_gpt.py wrote", file=sys.stderr)
        return 2
    try:
        reports = {folder: hc.inspect(trained(Path(folder, CHECKPOINT))) for folder in folders}
    except Refusal as refusal:
        print(f"compare_runs.py: error: {refusal}", file=sys.stderr)
        return 2
    for folder, report in reports.items():
        print(f"\n{folder}: {report}")
    print()
    for folder, report in reports.items():
        print(f"{folder}: {in_a_sentence(report)}")
    return 0


def trained(path: Path) -> GPT:
    """The model of a checkpoint, rebuilt from the options it remembers."""
    checkpoint = load(path)
    made_with = sizes(parse([], checkpoint.options))
    check_model(checkpoint, made_with, made_with, path)
    model = GPT(made_with)
    model.load_state_dict(checkpoint.model)
    return model


def in_a_sentence(report: hc.MixingReport) -> str:
    entries = torch.cat([connection.matrix.flatten() for connection in report])
    negative = entries[entries < 0]
    if not len(negative):
        return f"none of the {len(entries)} entries is negative."
    return f"{len(negative)} of the {len(entries)} entries are negative, down to {negative.min():.3f}."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
