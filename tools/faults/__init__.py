"""The table of faults, by the part of the library they go into."""

from .constraints import CONSTRAINTS
from .fault import Fault
from .formulas import FORMULAS
from .looking import LOOKING
from .modules import MODULES
from .starts import STARTS
from .surroundings import SURROUNDINGS

__all__ = ["FAULTS", "Fault"]

FAULTS: tuple[Fault, ...] = (*FORMULAS, *STARTS, *CONSTRAINTS, *MODULES, *LOOKING, *SURROUNDINGS)
