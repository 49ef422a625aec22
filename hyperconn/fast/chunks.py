"""Some tokens at a time on the CPU: what one kernel leaves, the next finds in the cache, and casts stay small."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

# Numbers of the streams in one chunk: 4 MiB in float32.
CHUNK = 2**20


def chunks(streams: Tensor) -> Iterator[slice]:
    """Ranges of tokens, in order, of streams ``(tokens, n, C)``; elsewhere than on the CPU all at once."""
    tokens = len(streams)
    size = max(1, CHUNK // max(1, streams[:1].numel())) if streams.device.type == "cpu" else max(1, tokens)
    for start in range(0, max(1, tokens), size):
        yield slice(start, start + size)
