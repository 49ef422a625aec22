"""Hyper-connections for PyTorch: n residual streams, the constraint on their mixing chosen by name."""

from . import constraints, functional
from .connection import Carry, HyperConnection, Mappings
from .constraints import Constraint, list_constraints, make_constraint, register_constraint
from .inspection import ContinuityReport, MixingReport, continuity, inspect
from .mappings import Mapping
from .optimizers import parameter_groups
from .retraction import Retraction, SphericalRetraction
from .streams import Collapse, Expand, HyperStack

__version__ = "0.1.0"

__all__ = [
    "Carry",
    "Collapse",
    "Constraint",
    "ContinuityReport",
    "Expand",
    "HyperConnection",
    "HyperStack",
    "Mapping",
    "Mappings",
    "MixingReport",
    "Retraction",
    "SphericalRetraction",
    "constraints",
    "continuity",
    "functional",
    "inspect",
    "list_constraints",
    "make_constraint",
    "parameter_groups",
    "register_constraint",
]
