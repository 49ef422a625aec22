"""Safetensors files; the package is imported here and only when such a file is opened."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from torch import Tensor

from .errors import CheckpointError, one_line
from .tensors import Tensors, checked, natural


class SafetensorsFile(Tensors):
    """Tensors of one file, read when they are asked for, in natural order.

    Raises:
        CheckpointError: damaged, or the package safetensors is not installed.
    """

    def __init__(self, path: Path):
        try:
            from safetensors import SafetensorError, safe_open
        except ImportError as error:
            raise CheckpointError("reading it needs safetensors: pip install 'hyperconn[safetensors]'") from error
        try:
            self._file = safe_open(path, framework="pt", device="cpu")
            self._names = sorted(self._file.keys(), key=natural)
        except (SafetensorError, ValueError, RuntimeError) as error:
            raise CheckpointError(f"not a safetensors file, or a damaged one ({one_line(error, 90)})") from error

    def __getitem__(self, name: str) -> Tensor:
        return checked(name, self._file.get_tensor(name))

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def shape(self, name: str) -> tuple[int, ...]:
        return tuple(self._file.get_slice(name).get_shape())
