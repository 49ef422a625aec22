"""One process, or the processes that torchrun started: who I am, my share of a batch, averages over all."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule, fully_shard
from torch.nn.parallel import DistributedDataParallel

import hyperconn as hc

from .refusal import Refusal
from .text import Batch


class World(NamedTuple):
    """This process among all."""

    rank: int
    size: int
    device: torch.device

    @property
    def first(self) -> bool:
        """The process that speaks and writes."""
        return self.rank == 0

    def share(self, batch: Batch) -> Batch:
        """Every process draws the same batch and takes its own part, so that their number changes no data."""
        tokens, targets = (part.chunk(self.size)[self.rank].to(self.device) for part in batch)
        return tokens, targets

    def mean(self, *values: float | Tensor) -> list[float]:
        """Averages over the processes, the same on all of them."""
        averages = torch.stack([torch.as_tensor(value, dtype=torch.float32, device=self.device) for value in values])
        if self.size > 1:
            dist.all_reduce(averages)
            averages /= self.size
        return averages.tolist()


@contextmanager
def joined(device_name: str, fsdp: bool, batch_size: int) -> Iterator[World]:
    """The world of this run, left again at the end."""
    size, rank = int(os.environ.get("WORLD_SIZE", 1)), int(os.environ.get("RANK", 0))
    if batch_size % size:
        raise Refusal(f"--batch-size {batch_size}: expected a multiple of the {size} processes.")
    device = _device(device_name)
    if size > 1 or fsdp:
        _start_group(device, size)
    try:
        yield World(rank, size, device)
    finally:
        if dist.is_initialized():
            dist.destroy_process_group()


def spread(model: nn.Module, world: World, fsdp: bool) -> nn.Module:
    """What to call for training: the model itself, sharded in place, or wrapped for averaged gradients."""
    if fsdp:
        # Each connection is gathered and freed on its own; the root holds what is left.
        for module in model.modules():
            if isinstance(module, hc.HyperConnection):
                fully_shard(module)
        fully_shard(model)
    return DistributedDataParallel(model) if world.size > 1 and not fsdp else model


def gather(model: nn.Module) -> nn.Module:
    """The model with whole parameters in place, for looking at them; every process has to call this."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.unshard()
    return model


def _device(name: str) -> torch.device:
    if name == "auto":
        name = "cuda" if torch.cuda.is_available() else "cpu"
    try:
        device = torch.device(name)
        if device.type == "cuda" and device.index is None:
            device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
        torch.empty(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).splitlines()[0].rstrip(".")
        raise Refusal(f"--device {name}: cannot be used on this machine: {reason}. Try --device cpu.") from error
    return device


def _start_group(device: torch.device, size: int) -> None:
    backend = "nccl" if device.type == "cuda" else "gloo"
    if device.type == "cuda":
        torch.cuda.set_device(device)
    if size > 1:
        dist.init_process_group(backend)
    else:
        dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1)
