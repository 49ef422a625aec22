"""Files of ``torch.save``: read as tensors and plain data only, mapped instead of copied."""

from __future__ import annotations

import warnings
import zipfile
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from .errors import CheckpointError
from .tensors import TensorsInMemory

KEYS = ("model", "state_dict", "model_state_dict", "module", "net", "network", "weights")
DEEPEST, MOST_DICTS = 4, 10_000


def read_archive(path: Path) -> TensorsInMemory:
    """The state dict in a file of ``torch.save``.

    Raises:
        CheckpointError: not such a file, a damaged one, one that holds more than tensors and plain data, or
            one without a state dict.
    """
    try:
        _refuse_compression(path)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            content = torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except CheckpointError:
        raise
    except Exception as error:  # zipfile, pickle and torch raise a dozen kinds for damaged and forged files
        raise CheckpointError(
            # Without the words of torch, which recommend to load the file all the same.
            f"not a checkpoint of tensors and plain data, or a damaged one ({type(error).__name__})"
        ) from error
    return TensorsInMemory(find_state_dict(content))


def find_state_dict(content: Any) -> dict[str, Any]:
    """The dictionary of tensors in whatever was saved: known keys first, then the one with most tensors.

    Raises:
        CheckpointError: there is none.
    """
    found = [(key, candidate) for key, candidate in _dictionaries(content) if _num_tensors(candidate)]
    if not found:
        raise CheckpointError(f"holds no state dict but {_kind(content)}")
    return max(found, key=lambda pair: (pair[0] in KEYS and _num_tensors(pair[1]) > 1, _num_tensors(pair[1])))[1]


def _refuse_compression(path: Path) -> None:
    """torch.save does not compress; an archive that unpacks to more than its size is a bomb."""
    if not zipfile.is_zipfile(path):
        raise CheckpointError("not a file of torch.save: no zip archive, or its end is missing")
    with zipfile.ZipFile(path) as archive:
        if sum(entry.file_size for entry in archive.infolist()) > path.stat().st_size:
            raise CheckpointError("not a file of torch.save: its archive is compressed")


def _dictionaries(content: Any) -> Iterator[tuple[str, dict[str, Any]]]:
    waiting: deque[tuple[str, Any, int]] = deque([("", content, 0)])
    seen: set[int] = set()
    while waiting and len(seen) < MOST_DICTS:
        key, value, depth = waiting.popleft()
        if not isinstance(value, dict) or id(value) in seen:
            continue
        seen.add(id(value))
        yield key, value
        if depth < DEEPEST:
            waiting += [(str(name), item, depth + 1) for name, item in dict.items(value) if isinstance(item, dict)]


def _num_tensors(candidate: dict[str, Any]) -> int:
    return sum(isinstance(name, str) and isinstance(value, Tensor) for name, value in dict.items(candidate))


def _kind(content: Any) -> str:
    if isinstance(content, dict):
        return f"a dictionary with the keys {', '.join(repr(key)[:40] for key in list(content)[:5])}"
    return f"an object of type {type(content).__name__}"
