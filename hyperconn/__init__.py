"""Hyper-connections for PyTorch: n residual streams, the constraint on their mixing chosen by name."""

from . import constraints, functional, interop, recompute
from .connection import Carry, HyperConnection, Mappings
from .constraints import Constraint, list_constraints, make_constraint, register_constraint
from .inspection import (
    ContinuityReport,
    MixingLogger,
    MixingReport,
    collapsed_view,
    continuity,
    inspect,
)
from .mappings import Mapping
from .optimizers import parameter_groups
from .parts import (
    ChannelFirst,
    ChannelLast,
    EachStream,
    ExtraReads,
    FractionalConnection,
    Read,
    ResizingConnection,
    SinglePassStack,
    StreamEmbedding,
    Then,
)
from .retraction import Retraction, SphericalRetraction
from .streams import Collapse, Expand, HyperStack
from .switch import disable, enable
from .wrapping import is_wrapped, load_wrapped, register_adapter, unwrap, wrap

__version__ = "0.1.0"

__all__ = [
    "Carry",
    "ChannelFirst",
    "ChannelLast",
    "Collapse",
    "Constraint",
    "ContinuityReport",
    "EachStream",
    "Expand",
    "ExtraReads",
    "FractionalConnection",
    "HyperConnection",
    "HyperStack",
    "Mapping",
    "Mappings",
    "MixingLogger",
    "MixingReport",
    "Read",
    "ResizingConnection",
    "Retraction",
    "SinglePassStack",
    "SphericalRetraction",
    "StreamEmbedding",
    "Then",
    "collapsed_view",
    "constraints",
    "continuity",
    "disable",
    "enable",
    "functional",
    "inspect",
    "interop",
    "is_wrapped",
    "list_constraints",
    "load_wrapped",
    "make_constraint",
    "parameter_groups",
    "recompute",
    "register_adapter",
    "register_constraint",
    "unwrap",
    "wrap",
]
