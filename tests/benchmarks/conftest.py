"""Time a call in turn with its reference, so that what else the machine does falls on both."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable

import pytest
import torch


@pytest.fixture
def against(benchmark) -> Callable[..., None]:
    """``against(call, reference, rounds)``: the benchmark is the call's; the reference's median stands beside it."""

    def measure(
        call: Callable[[], object], reference: Callable[[], object], rounds: int = 15, **facts: object
    ) -> None:
        taken: list[float] = []

        def time_reference() -> None:
            started = time.perf_counter()
            reference()
            taken.append(time.perf_counter() - started)

        benchmark.pedantic(call, setup=time_reference, rounds=rounds, warmup_rounds=2)
        benchmark.extra_info |= facts | {
            "reference": statistics.median(taken[2:]),
            "threads": torch.get_num_threads(),
        }

    return measure


@pytest.fixture(autouse=True)
def fresh_state():
    torch.set_num_threads(os.cpu_count() or 1)  # the suite runs on one
    torch.manual_seed(0)
    torch._dynamo.reset()
