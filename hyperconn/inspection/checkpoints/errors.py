"""What is wrong with a file, in one line."""

from __future__ import annotations


class CheckpointError(ValueError):
    """A file that is not a checkpoint, is damaged, or holds nothing to look at; one printable line."""

    def __init__(self, message: str):
        super().__init__(printable(message))


def printable(text: str) -> str:
    """One line without control characters, which would reach the terminal: names in a file are not trusted."""
    return "".join(
        character if character.isprintable() else character.encode("unicode_escape").decode()
        for character in " ".join(text.split())
    )


def one_line(error: BaseException, length: int = 200) -> str:
    """The first words of an error, without line breaks."""
    return printable(str(error))[:length] or type(error).__name__
