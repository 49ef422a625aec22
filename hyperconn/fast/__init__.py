"""The functions of ``functional.py`` with hand-written gradients: same values, fewer passes over the streams.

A site is bound by memory traffic, so what counts is how often something of the size of the streams is
read or written. Each function saves only its arguments, and hands the streams on to the next one:
then their gradient is one buffer to which every backward adds its term in place, instead of three
that autograd has to fill and to sum.
"""

from .mix import mix, write
from .project import project
from .read import read

__all__ = ["mix", "project", "read", "write"]
