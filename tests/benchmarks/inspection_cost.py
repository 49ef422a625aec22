"""What looking costs: a static inspection, one with inputs beside a plain forward, and the logger beside a step.

python tests/benchmarks/inspection_cost.py
"""

from __future__ import annotations

import statistics
import tempfile
import time
import tracemalloc
from collections.abc import Callable

import torch
from torch import nn

import hyperconn as hc


def main() -> None:
    print(f"torch {torch.__version__}, {torch.get_num_threads()} threads, float32")
    model = network(layers=48, width=1024)
    print(f"static, 48 connections, n = 4, C = 1024: {median(lambda: hc.inspect(model), 3):.2f} s")
    x = torch.randn(2, 256, 1024)
    with torch.no_grad():
        plain, looking = medians((lambda: model(x), lambda: hc.inspect(model, x)), 7)
    print(f"with inputs, the same with an MLP each, 2 x 256 tokens: {looking / plain - 1:+.1%} of a forward")
    peaks = [peak(lambda count=count: hc.inspect(model, batches=[x[:1]] * count)) for count in (2, 10)]
    print(f"peak of Python objects with 2 and 10 batches: {peaks[0]:,} and {peaks[1]:,} bytes")
    step = step_of(model, x)
    with tempfile.TemporaryDirectory() as folder, hc.MixingLogger(model, 1, folder) as logger:
        logger.step(0)  # opens its files
        taken, logging = medians((step, lambda: logger.step(1)), 5)
    print(f"logger every 50 steps: {logging / 50 / taken:.2%} of a training step")


def network(layers: int, width: int) -> hc.HyperStack:
    branches = [
        nn.Sequential(nn.LayerNorm(width), nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width))
        for _ in range(layers)
    ]
    return hc.HyperStack(branches, width, 4, constraint="shc")


def step_of(model: nn.Module, x: torch.Tensor) -> Callable[[], None]:
    optimizer = torch.optim.AdamW(hc.parameter_groups(model, 0.1), lr=1e-4)

    def step() -> None:
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def median(call: Callable[[], object], rounds: int) -> float:
    return medians((call,), rounds)[0]


def medians(calls: tuple[Callable[[], object], ...], rounds: int) -> list[float]:
    """In turn, after one round that is not counted."""
    taken: list[list[float]] = [[] for _ in calls]
    for _ in range(rounds + 1):
        for call, times in zip(calls, taken, strict=True):
            started = time.perf_counter()
            call()
            times.append(time.perf_counter() - started)
    return [statistics.median(times[1:]) for times in taken]


def peak(call: Callable[[], object]) -> int:
    tracemalloc.start()
    call()
    size = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return size


if __name__ == "__main__":
    main()
