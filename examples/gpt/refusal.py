"""What the user can mend: printed as one line, never as a traceback."""

from __future__ import annotations


class Refusal(Exception):
    """Says who, what was expected, what came, and what to try."""
