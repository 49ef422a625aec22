"""Write docs/constraints.md from the classes, with the cost of a site measured on this machine.

python docs/constraints_table.py
"""

from __future__ import annotations

import platform
import re
import statistics
import time
from pathlib import Path

import torch
from torch import nn

import hyperconn as hc

PAGE = Path(__file__).parent / "constraints.md"
DIM, STREAMS, TOKENS, ROUNDS = 512, 4, (4, 256), 25
HEAD = """# Constraints

Generated from the classes by `docs/constraints_table.py`; n = 4 streams of C = 512 channels.

| name | alias | set of H | coordinates | parameters per site | exact | negative entries | cost per site |
|---|---|---|---|---|---|---|---|
"""
FOOT = """
*Exact*: every coordinate vector lands in the set up to rounding. *Parameters per site*: of one `HyperConnection` with
the constraint's own mapping. *Cost per site*: forward and backward of one float32 site with an empty branch on
{tokens} tokens, in units of `identity`; median of {rounds} rounds, processor time. Measured on: {machine}.
"""


def main() -> None:
    torch.set_num_threads(1)  # processor time of one thread does not see what else the machine does
    PAGE.write_text(page(measured_costs(), machine()))


def page(costs: dict[str, str], on: str) -> str:
    """The whole page; everything but the costs and the machine comes from the classes."""
    rows = [row(name, costs[name]) for name in sorted(hc.list_constraints())]
    tokens = " × ".join(str(size) for size in TOKENS)
    return HEAD + "\n".join(rows) + "\n" + FOOT.format(tokens=tokens, rounds=ROUNDS, machine=on)


def row(name: str, cost: str) -> str:
    cls = hc.constraints.constraint_class(name)
    site = hc.HyperConnection(DIM, STREAMS, constraint=name)
    cells = [
        f"[`{name}`](constraints/{name}.md)",
        ", ".join(f"`{alias}`" for alias in cls.aliases),
        cls.set_description,
        str(site.constraint.num_coordinates),
        f"{sum(parameter.numel() for parameter in site.parameters()):,}",
        "yes" if cls.exact else "one axis",
        "no" if cls.nonnegative else "yes",
        cost,
    ]
    return f"| {' | '.join(cells)} |"


def measured_costs() -> dict[str, str]:
    """Processor seconds of a site per constraint over those of ``identity``, in rounds that visit every one."""
    sites = {name: hc.HyperConnection(DIM, STREAMS, nn.Identity(), constraint=name) for name in hc.list_constraints()}
    streams = torch.randn(*TOKENS, STREAMS, DIM, requires_grad=True)
    cotangent = torch.randn_like(streams)
    times: dict[str, list[float]] = {name: [] for name in sites}
    for _ in range(ROUNDS + 2):
        for name, site in sites.items():
            started = time.process_time()
            torch.autograd.backward(site(streams), cotangent)
            times[name].append(time.process_time() - started)
    median = {name: statistics.median(seconds[2:]) for name, seconds in times.items()}
    return {name: f"{seconds / median['identity']:.2f}" for name, seconds in median.items()}


def machine() -> str:
    """In general words: the figures are ratios."""
    return f"one thread of a CPU ({platform.machine()}), torch {torch.__version__}"


def stated(text: str) -> tuple[dict[str, str], str]:
    """The measured part of a page: costs by name, and the machine."""
    costs = {found[1]: found[2] for found in re.finditer(r"^\| \[`(.+?)`\].*\| (\S+) \|$", text, re.MULTILINE)}
    return costs, re.search(r"Measured on: (.*)\.$", text, re.MULTILINE)[1]


if __name__ == "__main__":
    main()
