"""Looking at what the streams learned."""

from .mixing import Watch, inspect, watch
from .quantities import MATRIX_QUANTITIES
from .report import ConnectionReport, Gates, MixingReport, NegativeEntry, PrefixReport
from .tally import Place, Summary

__all__ = [
    "MATRIX_QUANTITIES",
    "ConnectionReport",
    "Gates",
    "MixingReport",
    "NegativeEntry",
    "Place",
    "PrefixReport",
    "Summary",
    "Watch",
    "inspect",
    "watch",
]
