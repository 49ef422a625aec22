"""The sets a residual matrix may live in, one file each; every file registers its names."""

from .base import Constraint
from .circulant import Circulant
from .identity import Identity
from .kronecker import Kronecker
from .orthogonal import Orthogonal
from .orthostochastic import Orthostochastic
from .permutation import Permutation
from .quaternion import Quaternion
from .registry import as_constraint, constraint_class, list_constraints, make_constraint, register_constraint
from .sinkhorn import Sinkhorn
from .spectral_sphere import SpectralSphere
from .transport import Transport
from .unconstrained import Unconstrained

__all__ = [
    "Circulant",
    "Constraint",
    "Identity",
    "Kronecker",
    "Orthogonal",
    "Orthostochastic",
    "Permutation",
    "Quaternion",
    "Sinkhorn",
    "SpectralSphere",
    "Transport",
    "Unconstrained",
    "as_constraint",
    "constraint_class",
    "list_constraints",
    "make_constraint",
    "register_constraint",
]
