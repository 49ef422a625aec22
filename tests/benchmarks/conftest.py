"""Time a call in turn with its reference, so that what else the machine does falls on both."""

from __future__ import annotations

import ctypes
import os
import statistics
import time
from collections.abc import Callable

import pytest
import torch

M_TRIM_THRESHOLD, M_MMAP_MAX = -1, -4  # of glibc's malloc.h


@pytest.fixture(autouse=True, scope="session")
def memory_kept() -> bool:
    """Whether freed memory stays with the process, as it does with the allocator of a GPU.

    Else a call has fresh pages mapped now and then, which can cost more than all that is measured, and falls
    the more often on those that allocate more.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and bool(mallopt(M_TRIM_THRESHOLD, 2**31 - 1) and mallopt(M_MMAP_MAX, 0))


@pytest.fixture
def against(benchmark, memory_kept) -> Callable[..., None]:
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
            "memory kept": memory_kept,
        }

    return measure


@pytest.fixture(autouse=True)
def fresh_state():
    torch.set_num_threads(os.cpu_count() or 1)  # the suite runs on one
    torch.manual_seed(0)
    torch._dynamo.reset()
