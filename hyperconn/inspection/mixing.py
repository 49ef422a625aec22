"""``inspect``: the learned matrices of a model, or those of every token of its inputs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from torch import Tensor, nn

from ..streams import Expand
from .building import build_report
from .collector import Collector
from .listening import listening
from .preserving import eagerly, preserving
from .report import MixingReport
from .sites import Call, Site, connections_of, static_site, static_sites


def inspect(model: nn.Module, *inputs: Any, batches: Iterable[Any] | None = None, **kwargs: Any) -> MixingReport:
    """Report what the residual matrices of a model look like.

    Without inputs the learned static matrices are reported. With inputs the model runs on them, in
    evaluation mode and without gradients, and the matrices of all tokens are, one batch after the
    other; modes, hooks, buffers and random states are afterwards what they were.

    Args:
        model: any module that contains hyper-connections.
        inputs: positional arguments of one run of the model.
        batches: several runs: each element is a tensor, a tuple or list of positional arguments, or a
            dictionary of keyword arguments. Elements are taken one by one; a generator will do.
        kwargs: keyword arguments of every run.

    Returns:
        MixingReport: one entry per connection and one per prefix of the product through depth, in call
        order; without inputs in the order of the modules.

    Raises:
        TypeError: the model is not a module, or both inputs and batches are given.
        ValueError: the model has no hyper-connection, or batches is empty.
    """
    connections_of("inspect", model)
    if inputs and batches is not None:
        raise TypeError("inspect: expected inputs of one run or batches=, got both. Put the inputs into batches.")
    if batches is None and not (inputs or kwargs):
        return static_report(static_sites(model))
    with preserving(model), watch(model) as watched:
        for arguments, keywords in [(inputs, {})] if batches is None else map(_arguments, batches):
            model(*arguments, **keywords, **kwargs)
    return watched.report()


def static_report(sites: Iterable[Site]) -> MixingReport:
    """The report on matrices known without running anything."""
    sites = list(sites)
    collector = Collector(sites)
    for site in sites:
        if site.begins_product:
            collector.depth.restart()
        collector.add(site.name, Call(site.pre, site.post, site.matrix, None))
    collector.end_batch()
    return build_report(collector, per_token=False)


class Watch:
    """What :func:`watch` has seen so far."""

    def __init__(self, collector: Collector):
        self._collector = collector
        self._inside = 0

    def report(self) -> MixingReport:
        """The report on all runs so far.

        Raises:
            ValueError: nothing has run yet.
        """
        if not self._collector.batches:
            raise ValueError("watch: expected at least one run of the model, got none. Call it inside the block.")
        return build_report(self._collector, per_token=True)

    def _on_call(self, name: str, call: Call) -> None:
        if self._inside:  # a recomputation during backward is not another token
            self._collector.add(name, call)

    def _enter(self, *_: Any) -> None:
        self._inside += 1

    def _leave(self, *_: Any) -> None:
        self._inside -= 1
        self._collector.end_batch()

    def _expanded(self, *_: Any) -> None:
        self._collector.depth.restart()


@contextlib.contextmanager
def watch(model: nn.Module) -> Iterator[Watch]:
    """Measure every run of a model inside the block, as you run it: each call of the model is one batch.

    Outputs and gradients are bit-identical to those without it. Modes are yours: dropout in training mode
    stays on. A compiled model runs eagerly inside the block.

    Args:
        model: any module that contains hyper-connections.

    Yields:
        Watch: its ``report()`` can be asked for at any time.

    Raises:
        ValueError: the model has no hyper-connection.
    """
    connections = connections_of("watch", model)
    watched = Watch(Collector(static_site(name, connection) for name, connection in connections.items()))
    with contextlib.ExitStack() as stack:
        stack.enter_context(eagerly())
        stack.enter_context(listening(connections, watched._on_call))
        stack.enter_context(model.register_forward_pre_hook(watched._enter))
        stack.enter_context(model.register_forward_hook(watched._leave, always_call=True))
        for module in model.modules():
            if isinstance(module, Expand):
                stack.enter_context(module.register_forward_hook(watched._expanded))
        yield watched


def _arguments(batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
    if isinstance(batch, Tensor):
        return (batch,), {}
    if isinstance(batch, Mapping):
        return (), dict(batch)
    if isinstance(batch, (tuple, list)):
        return tuple(batch), {}
    return (batch,), {}
