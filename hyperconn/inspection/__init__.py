"""Looking at what the streams learned."""

from .collapsed_view import Layer, collapsed_view
from .continuity import ContinuityReport, ProjectionContinuity, continuity
from .logger import MixingLogger
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
    "Layer",
    "MixingLogger",
    "MixingReport",
    "NegativeEntry",
    "Place",
    "PrefixReport",
    "Projection",
    "ProjectionContinuity",
    "Summary",
    "Watch",
    "collapsed_view",
    "continuity",
    "inspect",
    "watch",
]
