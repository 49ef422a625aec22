"""Gates: logits of the pre and post mappings to the weights with which streams are read and written."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor

Init = Literal["residual", "paper"]
HOME_SHARE = 0.7  # of what a branch reads at the start comes from its home stream


class Gates(ABC):
    """Two elementwise functions and the logits they start from."""

    @abstractmethod
    def pre(self, logits: Tensor) -> Tensor:
        """``(..., n) -> (..., n)``: the weights with which the branch reads the streams."""

    @abstractmethod
    def post(self, logits: Tensor) -> Tensor:
        """``(..., n) -> (..., n)``: the weights with which its output is written to the streams."""

    def description(self) -> dict[str, Any]:
        """The kind of gates and their numbers, as plain data."""
        return {"kind": type(self).__name__, **vars(self)}

    @abstractmethod
    def start(self, streams: int, home: int, init: Init) -> tuple[Tensor, Tensor]:
        """Start values of the pre and post logits, ``(n,)`` each, for at least two streams."""


@dataclass(frozen=True)
class LinearGates(Gates):
    """The logits themselves: the original hyper-connections (Zhu et al., 2024, arXiv 2409.19606)."""

    def pre(self, logits: Tensor) -> Tensor:
        return logits

    def post(self, logits: Tensor) -> Tensor:
        return logits

    def start(self, streams: int, home: int, init: Init) -> tuple[Tensor, Tensor]:
        return _at_home(streams, home, 1.0, 0.0), torch.ones(streams)


@dataclass(frozen=True)
class SigmoidGates(Gates):
    """``pre = sigmoid + ε`` in (0, 1), ``post = magnitude · sigmoid + ε`` in (0, 2) (mHC, arXiv 2512.24880).

    ``init="residual"`` starts with ``Σ pre = 1``, .7 of it at home, and ``post = 1``;
    ``init="paper"`` with the logits +1 at home and −1 elsewhere of the mHC-lite repository.
    """

    pre_epsilon: float = 0.0
    post_epsilon: float = 0.0
    magnitude: float = 2.0

    def pre(self, logits: Tensor) -> Tensor:
        return _plus(logits.sigmoid(), self.pre_epsilon)

    def post(self, logits: Tensor) -> Tensor:
        return _plus(self.magnitude * logits.sigmoid(), self.post_epsilon)

    def start(self, streams: int, home: int, init: Init) -> tuple[Tensor, Tensor]:
        if init == "paper":
            logits = _at_home(streams, home, 1.0, -1.0)
            return logits, logits.clone()
        others = (1 - HOME_SHARE) / (streams - 1)
        pre = _at_home(streams, home, _logit(HOME_SHARE - self.pre_epsilon), _logit(others - self.pre_epsilon))
        return pre, torch.full((streams,), _logit((1 - self.post_epsilon) / self.magnitude))


def _at_home(streams: int, home: int, at_home: float, elsewhere: float) -> Tensor:
    values = torch.full((streams,), elsewhere)
    values[home] = at_home
    return values


def _logit(share: float) -> float:
    return math.log(share / (1 - share))


def _plus(gate: Tensor, epsilon: float) -> Tensor:
    return gate + epsilon if epsilon else gate
