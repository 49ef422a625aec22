"""Write docs/performance.md and its picture from a run of the benchmarks: ``python tests/benchmarks/report.py RUN.json …``."""

from __future__ import annotations

import itertools
import json
import platform
import sys
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs"
SINKHORN, IDENTITY, BARE = "sinkhorn", "identity", 1.0
DEEPSEEK, MHC_V2 = "DeepseekV4HyperConnection", "hyper-connections mHCv2"
TOKENS = (256, 1024, 4096, 16384)
COLUMNS = [
    ("eager", "forward", "float32"),
    ("eager", "forward + backward", "float32"),
    ("compiled", "forward + backward", "float32"),
    ("eager", "forward", "bfloat16"),
    ("eager", "forward + backward", "bfloat16"),
    ("compiled", "forward + backward", "bfloat16"),
]


class Run:
    """The ratios of a run, in one file or several: each call's median over the median of its reference, timed in turn with it."""

    def __init__(self, paths: list[str]):
        documents = [json.loads(Path(path).read_text()) for path in paths]
        self.cases = [case["extra_info"] | {"ratio": ratio(case)} for run in documents for case in run["benchmarks"]]
        self.threads = self.cases[0]["threads"]
        self.memory = "stays with" if self.cases[0]["memory kept"] else "may leave"
        self.date = documents[0]["datetime"][:10]

    def all(self, **facts: Any) -> list[dict[str, Any]]:
        return [case for case in self.cases if facts.items() <= case.items()]

    def one(self, **facts: Any) -> dict[str, Any]:
        (case,) = self.all(**facts)
        return case


def ratio(case: dict[str, Any]) -> float:
    return case["stats"]["median"] / case["extra_info"]["reference"]


def site_table(run: Run) -> list[str]:
    names = dict.fromkeys(case["name"] for case in run.all(kind="site"))
    head = ["", *(f"{mode} {way}, {dtype}" for mode, way, dtype in COLUMNS), "kept"]
    rows = []
    for name in names:
        cells = []
        for mode, way, dtype in COLUMNS:
            found = run.all(kind="site", name=name, mode=mode, way=way, dtype=dtype)
            cells.append(f"{found[0]['ratio']:.1f}" if found else "–")
        kept = run.one(kind="site", name=name, mode="eager", way=COLUMNS[1][1], dtype="float32")["kept"]
        rows.append([f"`{name}`", *cells, f"{kept:.2f}"])
    return table(head, rows)


def aims(run: Run) -> list[str]:
    """What this run gives for what the library set out to reach."""
    both_ways = dict(zip(("mode", "way", "dtype"), COLUMNS[1], strict=True))
    passes = {case["name"]: case["ratio"] for case in run.all(**both_ways)}
    kept = {case["name"]: case["kept"] for case in run.all(**both_ways)}
    cost = {case["name"]: case["ratio"] for case in run.all(kind="beside sinkhorn")}
    ours = {name: value for name, value in cost.items() if name not in (DEEPSEEK, MHC_V2)}
    dearest = max(ours, key=ours.__getitem__)
    leanest_promise = max(ours, key=kept.__getitem__)
    rows = [
        (f"sinkhorn over `{DEEPSEEK}` and its merge", 1 / cost[DEEPSEEK], 0.40),
        (f"sinkhorn over `{MHC_V2}`", 1 / cost[MHC_V2], 0.22),
        *(
            (f"{name} over sinkhorn", cost[name], 1.05)
            for name in ("permutation", "spectral-sphere", "kronecker", "circulant", "quaternion")
        ),
        (f"the dearest constraint ({dearest}) over identity", cost[dearest] / cost[IDENTITY], 1.8),
        ("sinkhorn over a bare pass", passes[SINKHORN], 12),
        (f"the dearest constraint ({dearest}) over a bare pass", passes[dearest], 12),
        (f"kept for the backward, in streams ({leanest_promise} keeps most)", kept[leanest_promise], 1.35),
        ("kept with `recompute=True`", run.one(kind="recompute", policy="True")["kept"], 1.05),
        ("n = 8 over n = 4", width(run, 8, 512), 2.6),
        ("C = 1024 over C = 512, per channel", width(run, 4, 1024) / 2, 1.15),
        *(
            (
                f"{more:,} tokens over {fewer:,}, per token",
                length(run, more) / length(run, fewer) * fewer / more,
                1.15,
            )
            for fewer, more in itertools.pairwise(TOKENS)
        ),
        ("one stream over `x + F(x)`, F linear", run.one(kind="single stream")["ratio"], 1.05),
        *(
            (
                f"GPT step over its plain twin, {mode}, {name}",
                run.one(kind="gpt", mode=mode, name=name)["ratio"],
                limit,
            )
            for mode, limit in (("eager", 1.25), ("compiled", 1.15))
            for name in (SINKHORN, "spectral-sphere")
        ),
    ]
    return table(
        ["", "measured", "aim: at most", ""],
        [[what, f"{got:.2f}", f"{aim:g}", "" if got <= aim else "missed"] for what, got, aim in rows],
    )


def width(run: Run, n: int, dim: int) -> float:
    return run.one(kind="width", n=n, dim=dim)["ratio"]


def length(run: Run, tokens: int) -> float:
    return run.one(kind="length", tokens=tokens)["ratio"]


def size_tables(run: Run) -> list[str]:
    dims = (256, 512, 1024)
    widths = [[f"n = {n}", *(f"{width(run, n, dim):.2f}" for dim in dims)] for n in (2, 4, 8)]
    lengths = [["", *(f"{length(run, count):.2f}" for count in TOKENS)]]
    return [
        *table(["", *(f"C = {dim}" for dim in dims)], widths),
        "",
        *table(["tokens", *(f"{count:,}" for count in TOKENS)], lengths),
    ]


def recompute_table(run: Run) -> list[str]:
    rows = [
        [f"`{case['policy']}`", f"{case['ratio']:.2f}", f"{case['kept']:.2f}"] for case in run.all(kind="recompute")
    ]
    return table(["`recompute=`", "time over none", "kept"], rows)


def table(head: list[str], rows: list[list[str]]) -> list[str]:
    lines = [head, ["---"] * len(head), *rows]
    return [f"| {' | '.join(cells)} |" for cells in lines]


def page(run: Run) -> str:
    from importlib.metadata import version

    versions = ", ".join(f"{name} {version(name)}" for name in ("torch", "transformers", "hyper-connections"))
    where = f"{run.date}, {platform.machine()}, {processor()}, {run.threads} threads, Python {platform.python_version()}, {versions}"
    return "\n".join(
        [
            "# Performance",
            "",
            "Written by `make bench`; every figure is a ratio of two medians, the two calls timed in turn.",
            f"Machine: {where}. No GPU was at hand, and nothing is claimed for one.",
            f"Freed memory {run.memory} the process; where it may leave, a call now and then waits for fresh pages.",
            "",
            "![What a site costs, in bare passes over its streams](images/performance.png)",
            "",
            "## One site",
            "",
            "4 × 256 tokens, n = 4, C = 512, an empty branch. In units of `x + 1` over the same streams, the same way and in",
            "the same dtype; *kept* for the backward in tensors of the size of the streams (float32, eager).",
            "",
            *site_table(run),
            "",
            "## What was aimed for",
            "",
            *aims(run),
            "",
            "## How cost grows",
            "",
            "`sinkhorn`, forward and backward, float32, eager, over n = 4, C = 512 and 4 × 256 tokens.",
            "",
            *size_tables(run),
            "",
            "## Recomputation",
            "",
            "The same site with an empty branch, so that the time is that of computing the maps again.",
            "",
            *recompute_table(run),
            "",
        ]
    )


def processor() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []:
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor() or "unknown processor"


def picture(run: Run, path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    cases = sorted(
        run.all(**dict(zip(("mode", "way", "dtype"), COLUMNS[1], strict=True))), key=lambda case: case["ratio"]
    )
    figure, axes = pyplot.subplots(figsize=(8, 4.5), layout="constrained")
    colours = ["tab:orange" if case["name"] in (DEEPSEEK, MHC_V2) else "tab:blue" for case in cases]
    bars = axes.barh([case["name"] for case in cases], [case["ratio"] for case in cases], color=colours)
    axes.bar_label(bars, fmt="%.1f", padding=3)
    axes.margins(x=0.1)
    axes.axvline(BARE, color="black", linewidth=0.8)
    axes.set_xlabel("one site, forward + backward, float32, eager: passes over the streams (x + 1 = 1)")
    figure.savefig(path, dpi=110)


def main() -> None:
    run = Run(sys.argv[1:])
    picture(run, DOCS / "images" / "performance.png")
    (DOCS / "performance.md").write_text(page(run))
    print("\n".join(aims(run)))


if __name__ == "__main__":
    main()
