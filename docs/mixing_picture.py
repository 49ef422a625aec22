"""Rewrite the picture of docs/inspection.md from a run of the example.

python examples/train_gpt.py --constraint shc --out runs/shc
PYTHONPATH=examples python docs/mixing_picture.py runs/shc
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch

import hyperconn as hc
from compare_runs import trained
from gpt.resume import CHECKPOINT


def main(run: str) -> None:
    text = torch.tensor(list(Path(__file__).read_bytes()[:512])).unflatten(0, (-1, 64))
    report = hc.inspect(trained(Path(run, CHECKPOINT)), text)
    report.plot(Path(__file__).parent / "images" / "mixing.png")


if __name__ == "__main__":
    main(*sys.argv[1:])
