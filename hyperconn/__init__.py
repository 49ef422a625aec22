"""Hyper-connections for PyTorch: n residual streams, the constraint on their mixing chosen by name."""

from . import constraints, functional, interop
from .connection import Carry, HyperConnection, Mappings
from .constraints import Constraint, list_constraints, make_constraint, register_constraint
from .inspection import MixingReport, inspect
from .mappings import Mapping
from .optimizers import parameter_groups
from .retraction import Retraction, SphericalRetraction
from .streams import Collapse, Expand, HyperStack
from .wrapping import is_wrapped, load_wrapped, register_adapter, unwrap, wrap

__version__ = "0.1.0"

__all__ = [
    "Carry",
    "Collapse",
    "Constraint",
    "Expand",
    "HyperConnection",
    "HyperStack",
    "Mapping",
    "Mappings",
    "MixingReport",
    "Retraction",
    "SphericalRetraction",
    "constraints",
    "functional",
    "inspect",
    "interop",
    "is_wrapped",
    "list_constraints",
    "load_wrapped",
    "make_constraint",
    "parameter_groups",
    "register_adapter",
    "register_constraint",
    "unwrap",
    "wrap",
]
