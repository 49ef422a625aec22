"""Ctrl-C and a polite kill end a run between two steps, where everything fits together."""

from __future__ import annotations

import signal
from types import FrameType

PATIENCE = 3  # torchrun repeats the signal to its processes; only somebody impatient sends it three times


class Interruption:
    """A context in which signals are counted instead of raised."""

    def __init__(self) -> None:
        self.count = 0

    def __enter__(self) -> Interruption:
        self._earlier = {number: signal.signal(number, self._note) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._earlier.items():
            signal.signal(number, handler)

    def _note(self, number: int, frame: FrameType | None) -> None:
        self.count += 1
        if self.count >= PATIENCE:
            raise KeyboardInterrupt
