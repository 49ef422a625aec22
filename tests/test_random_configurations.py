"""A sample of the sweep that ``make random`` runs ten thousand times."""

from __future__ import annotations

from random_configurations import sweep

COUNT, SEED = 300, 20260


def test_random_configurations_keep_their_promises(record_property):
    failures = sweep(COUNT, SEED)
    print(f"seed {SEED}: {COUNT} random configurations, {len(failures)} failures")
    record_property("random configurations", f"seed {SEED}, count {COUNT}")
    assert not failures, "\n".join([f"seed {SEED}, {len(failures)} of {COUNT} failed:", *failures[:10]])
