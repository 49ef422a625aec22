"""Tensors of a checkpoint by name, read one at a time and checked before they are used."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from .errors import CheckpointError, printable

WRAPPERS = re.compile(r"(?<![^.])(_orig_mod|_fsdp_wrapped_module|_checkpoint_wrapped_module)\.")


class Tensors(Mapping[str, Tensor], ABC):
    """A state dict whose tensors may still be in a file."""

    @abstractmethod
    def shape(self, name: str) -> tuple[int, ...]:
        """The shape, without reading the tensor."""


class TensorsInMemory(Tensors):
    """A state dict that was loaded (mapped from the file, rather); what is no tensor with a name is left out."""

    def __init__(self, state: dict[str, Any]):
        # A file can put attributes on what it holds, which would stand in for methods: call those of the class.
        self._state = {
            name: Tensor.detach(value)
            for name, value in dict.items(state)
            if isinstance(name, str) and isinstance(value, Tensor)
        }

    def __getitem__(self, name: str) -> Tensor:
        return checked(name, self._state[name])

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._state[name].shape)


class Joined(Tensors):
    """Several shards as one, in natural order: layer 2 before layer 10."""

    def __init__(self, shards: Iterable[Tensors]):
        owners = {name: shard for shard in shards for name in shard}
        self._shard_of = {name: owners[name] for name in sorted(owners, key=natural)}

    def __getitem__(self, name: str) -> Tensor:
        return self._shard_of[name][name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._shard_of)

    def __len__(self) -> int:
        return len(self._shard_of)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._shard_of[name].shape(name)


class Renamed(Tensors):
    """Without what torch.compile, DDP and FSDP put into names, and without control characters."""

    def __init__(self, tensors: Tensors):
        self._tensors = tensors
        renamed = {printable(plain_name(name)): name for name in tensors}
        self._names = renamed if len(renamed) == len(tensors) else {printable(name): name for name in tensors}

    def __getitem__(self, name: str) -> Tensor:
        return self._tensors[self._names[name]]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        return self._tensors.shape(self._names[name])


def plain_name(name: str) -> str:
    """``module._orig_mod.layers.0.weight`` to ``layers.0.weight``."""
    return WRAPPERS.sub("", name).removeprefix("module.")


def natural(name: str) -> list[tuple[int, int, str]]:
    """Sorting key: numbers by value."""
    parts = re.split(r"(\d{1,18})", name)
    return [(0, int(part), "") if index % 2 else (1, 0, part) for index, part in enumerate(parts)]


def checked(name: str, tensor: Tensor) -> Tensor:
    """A plain real tensor that the file really holds.

    Raises:
        CheckpointError: no values (meta), sparse, complex, or more elements than bytes.
    """
    if tensor.is_meta or tensor.layout != torch.strided or tensor.is_complex() or tensor.is_quantized:
        raise CheckpointError(
            f"{name}: expected a dense real tensor, got {tensor.dtype}, {tensor.layout}, {tensor.device}"
        )
    if tensor.numel() * tensor.element_size() > tensor.untyped_storage().nbytes():
        raise CheckpointError(f"{name}: claims {tensor.numel()} elements, more than the file holds")
    return tensor.detach()
