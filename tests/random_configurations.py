"""Random sites in bulk: ``python tests/random_configurations.py --count 10000 --seed 1`` (or ``make random``)."""

from __future__ import annotations

import argparse
import random
import sys
import time
import warnings

import torch
from configurations import draw
from site_laws import check


def sweep(count: int, seed: int) -> list[str]:
    """Draw and check that many configurations; what failed, with its configuration."""
    generator = random.Random(seed)
    failures = []
    for _ in range(count):
        configuration = draw(generator)
        try:
            check(configuration)
        except Exception as error:
            failures.append(f"{configuration}: {type(error).__name__}: {str(error).splitlines()[:1]}")
    return failures


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=10_000)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(1)
    warnings.simplefilter("error")
    start = time.perf_counter()
    failures = sweep(options.count, options.seed)
    seconds = time.perf_counter() - start
    print(*failures[:20], sep="\n")
    print(f"seed {options.seed}: {options.count:,} configurations, {len(failures)} failures, {seconds:.0f} s")
    return bool(failures)


if __name__ == "__main__":
    sys.exit(main())
