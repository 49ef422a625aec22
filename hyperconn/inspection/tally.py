"""Mean, extremes and their places over all tokens of all batches, without keeping the tokens."""

from __future__ import annotations

import math
from typing import NamedTuple

import torch
from torch import Tensor


class Place(NamedTuple):
    """A token: which batch, and its index on the leading axes ``(...)`` of the streams ``(..., n, C)``."""

    batch: int
    token: tuple[int, ...]

    def __str__(self) -> str:
        return f"batch {self.batch}, token {self.token}"


class Summary(NamedTuple):
    """One quantity over all tokens; a NaN anywhere makes all three numbers NaN and is where the extremes point."""

    mean: float
    smallest: float
    largest: float
    where_smallest: Place
    where_largest: Place


class _Packed(NamedTuple):
    numbers: Tensor  # (5, Q): sum, smallest, its index, largest, its index
    tokens: int
    leading: torch.Size
    batch: int


class Tally:
    """Summaries of groups of values; every call of :meth:`add` brings the same groups.

    Values stay on their device, packed into five numbers each, until the batch is over: one
    transfer per batch, and memory that does not depend on the number of tokens or batches.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self._shapes: dict[str, torch.Size] = {}
        self._pending: list[_Packed] = []
        self._sums: list[float] = []
        self._summaries: list[Summary] = []

    def add(self, groups: dict[str, Tensor], leading: torch.Size, batch: int) -> None:
        """Take in ``(T, ...)`` values of each group, for the tokens of the leading axes."""
        count = next(iter(groups.values())).shape[0]
        if count == 0:
            return
        self._shapes = {name: values.shape[1:] for name, values in groups.items()}
        rows = torch.cat([values.reshape(count, -1) for values in groups.values()], 1).mT.contiguous()
        smallest, largest = rows.min(1), rows.max(1)
        packed = [rows.sum(1), smallest.values, smallest.indices, largest.values, largest.indices]
        numbers = torch.stack([row.to(rows.dtype) for row in packed])
        self._pending.append(_Packed(numbers, count, leading, batch))

    def settle(self) -> None:
        """Fold what was added into the summaries."""
        for packed in self._pending:
            self._fold(packed)
        self._pending.clear()

    def scalar(self, name: str) -> Summary:
        """The summary of a group with one value per token."""
        (summary,) = self.group(name)
        return summary

    def group(self, name: str) -> list[Summary]:
        """The summaries of a group, its axes flattened."""
        rows = self._rows(name)
        both = zip(self._summaries[rows], self._sums[rows], strict=True)
        return [summary._replace(mean=total / self.tokens) for summary, total in both]

    def tensor(self, name: str, field: str = "mean") -> Tensor:
        """One field of the summaries of a group, in the group's shape, ``float64``."""
        values = [getattr(summary, field) for summary in self.group(name)]
        return torch.tensor(values, dtype=torch.float64, device="cpu").reshape(self._shapes[name])

    def _rows(self, name: str) -> slice:
        names = list(self._shapes)
        start = sum(self._shapes[other].numel() for other in names[: names.index(name)])
        return slice(start, start + self._shapes[name].numel())

    def _fold(self, packed: _Packed) -> None:
        sums, *extremes = packed.numbers.tolist()
        self.tokens += packed.tokens
        new = [_summary(packed, *numbers) for numbers in zip(*extremes, strict=True)]
        if not self._summaries:
            self._sums, self._summaries = sums, new
            return
        self._sums = [total + more for total, more in zip(self._sums, sums, strict=True)]
        self._summaries = [_merged(old, more) for old, more in zip(self._summaries, new, strict=True)]


def _summary(packed: _Packed, smallest: float, at_smallest: float, largest: float, at_largest: float) -> Summary:
    return Summary(math.nan, smallest, largest, _place(packed, at_smallest), _place(packed, at_largest))


def _place(packed: _Packed, index: float) -> Place:
    token, rest = [], int(index)
    for size in reversed(packed.leading):
        token.append(rest % size)
        rest //= size
    return Place(packed.batch, tuple(reversed(token)))


def _merged(old: Summary, new: Summary) -> Summary:
    """The first place wins among equals, and NaN wins over any number."""
    lower = new.smallest < old.smallest or (math.isnan(new.smallest) and not math.isnan(old.smallest))
    higher = new.largest > old.largest or (math.isnan(new.largest) and not math.isnan(old.largest))
    down, up = (new if lower else old), (new if higher else old)
    return Summary(math.nan, down.smallest, up.largest, down.where_smallest, up.where_largest)
