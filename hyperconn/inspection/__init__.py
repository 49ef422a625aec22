"""Looking at what the streams learned."""

from .mixing import ConnectionReport, MixingReport, inspect

__all__ = ["ConnectionReport", "MixingReport", "inspect"]
