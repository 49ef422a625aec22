"""What a person sees while training: a bar in a terminal with rich, plain lines elsewhere."""

from __future__ import annotations

import importlib.util
import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

SECONDS_BETWEEN_LINES = 5.0


class Progress(Protocol):
    def advance(self, step: int, loss: float, tokens_per_second: float) -> None: ...

    def say(self, line: str) -> None: ...


def say(text: object) -> None:
    """To standard output, or to nobody once its reader has gone: ``| head`` must not end a training run."""
    try:
        print(text, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


class Silent:
    """For all processes but the first."""

    def advance(self, step: int, loss: float, tokens_per_second: float) -> None:
        pass

    def say(self, line: str) -> None:
        pass


class Lines:
    """A line now and then."""

    def __init__(self, steps: int):
        self.steps, self.last = steps, 0.0

    def advance(self, step: int, loss: float, tokens_per_second: float) -> None:
        now = time.monotonic()
        if step == self.steps or now - self.last >= SECONDS_BETWEEN_LINES:
            self.last = now
            self.say(f"step {step}/{self.steps}  loss {loss:.3f}  {tokens_per_second:,.0f} tokens/s")

    def say(self, line: str) -> None:
        say(line)


class Bar:
    """A bar of rich, with lines above it."""

    def __init__(self, bar, steps: int, done: int):
        self.bar = bar
        self.task = bar.add_task("", total=steps, completed=done, loss=float("nan"), speed=0.0)

    def advance(self, step: int, loss: float, tokens_per_second: float) -> None:
        self.bar.update(self.task, completed=step, loss=loss, speed=tokens_per_second)

    def say(self, line: str) -> None:
        self.bar.console.print(line, markup=False, highlight=False)


@contextmanager
def progress(steps: int, done: int, silent: bool) -> Iterator[Progress]:
    """The progress of steps ``done + 1`` to ``steps``."""
    if silent or not (sys.stdout.isatty() and importlib.util.find_spec("rich")):
        yield Silent() if silent else Lines(steps)
        return
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as RichBar

    speed = TextColumn("loss {task.fields[loss]:.3f}  {task.fields[speed]:,.0f} tokens/s")
    with RichBar(BarColumn(), MofNCompleteColumn(), speed, TimeRemainingColumn()) as bar:
        yield Bar(bar, steps, done)
