"""Calls of connections, measured as they happen; nothing of a token is kept."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from ..numerics import compute_dtype, outside_autocast
from .depth import DepthProduct
from .quantities import (
    distance_from_start,
    measure_gates,
    measure_matrices,
    sampled,
    stream_similarity,
    stream_spread,
)
from .sites import Call, Site
from .tally import Tally


class SiteTallies:
    """What was seen of one connection so far."""

    def __init__(self, site: Site):
        self.site, self.calls = site, 0
        self.matrix, self.gates, self.similarity, self.spread = Tally(), Tally(), Tally(), Tally()

    def add(self, call: Call, matrix: Tensor, batch: int) -> None:
        """Measure one call; ``matrix`` is its H in the dtype of the measurements."""
        self.calls += 1
        groups = measure_matrices(_by_token(matrix, 2))
        if self.site.starts is not None:
            groups["distance_from_start"] = distance_from_start(groups["entries"], self.site.starts.to(matrix))
        self.matrix.add(groups, matrix.shape[:-2], batch)
        if call.pre is not None and call.post is not None:
            pre, post = torch.broadcast_tensors(call.pre, call.post)
            gates = measure_gates(_by_token(pre.to(matrix.dtype), 1), _by_token(post.to(matrix.dtype), 1))
            self.gates.add(gates, pre.shape[:-1], batch)
        if call.streams is not None and call.streams.shape[-2] > 1:
            self._add_streams(call.streams, batch)

    def settle(self) -> None:
        for tally in (self.matrix, self.gates, self.similarity, self.spread):
            tally.settle()

    def _add_streams(self, streams: Tensor, batch: int) -> None:
        leading, flat = streams.shape[:-2], _by_token(streams, 2)
        wide = compute_dtype(streams)
        self.similarity.add({"similarity": stream_similarity(flat.to(wide))}, leading, batch)
        sample = sampled(flat)
        self.spread.add({"spread": stream_spread(sample.to(wide))}, sample.shape[:1], batch)


class Collector:
    """Takes calls in, batch after batch."""

    def __init__(self, sites: Iterable[Site]):
        self.tallies = {site.name: SiteTallies(site) for site in sites}
        self.depth = DepthProduct()
        self.batches = 0

    @torch.no_grad()
    def add(self, name: str, call: Call) -> None:
        """One application of a connection, in call order."""
        with outside_autocast(call.res):
            matrix = call.res.detach().to(_measured_in(call.res))
            self.tallies[name].add(call, matrix, self.batches)
            self.depth.multiply(name, matrix, self.batches)

    def end_batch(self) -> None:
        """Fold the measurements of this batch, and forget its products."""
        for tallies in self.tallies.values():
            tallies.settle()
        self.depth.end_batch()
        self.batches += 1


def _by_token(tensor: Tensor, trailing: int) -> Tensor:
    """``(..., *trailing) -> (T, *trailing)``."""
    return tensor.detach().reshape(-1, *tensor.shape[tensor.dim() - trailing :])


def _measured_in(tensor: Tensor) -> torch.dtype:
    """Products of many matrices need the digits: ``float64`` wherever the device has it."""
    return torch.float32 if tensor.device.type == "mps" else torch.float64
