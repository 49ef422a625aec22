"""The sets a residual matrix may live in, one file each; every file registers its names."""

from .base import Constraint
from .identity import Identity
from .permutation import Permutation
from .registry import as_constraint, constraint_class, list_constraints, make_constraint, register_constraint
from .sinkhorn import Sinkhorn
from .spectral_sphere import SpectralSphere
from .unconstrained import Unconstrained

__all__ = [
    "Constraint",
    "Identity",
    "Permutation",
    "Sinkhorn",
    "SpectralSphere",
    "Unconstrained",
    "as_constraint",
    "constraint_class",
    "list_constraints",
    "make_constraint",
    "register_constraint",
]
