"""What is wrong with a file, in one line."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or holds nothing to look at."""


def one_line(error: BaseException, length: int = 200) -> str:
    """The first words of an error, without line breaks."""
    return " ".join(str(error).split())[:length] or type(error).__name__
