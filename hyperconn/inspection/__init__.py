"""Looking at what the streams learned."""

from .continuity import ContinuityReport, ProjectionContinuity, continuity
from .mixing import Watch, inspect, watch
from .projections import Projection
from .quantities import MATRIX_QUANTITIES
from .report import ConnectionReport, Gates, MixingReport, NegativeEntry, PrefixReport
from .tally import Place, Summary

__all__ = [
    "MATRIX_QUANTITIES",
    "ConnectionReport",
    "ContinuityReport",
    "Gates",
    "MixingReport",
    "NegativeEntry",
    "Place",
    "PrefixReport",
    "Projection",
    "ProjectionContinuity",
    "Summary",
    "Watch",
    "continuity",
    "inspect",
    "watch",
]
