"""Weights of models in the wild: sites and heads of ``transformers``, to and from connections.

Conventions are kept to the bit: where ε is added, the order of normalisations, ``H = combᵀ``.
Nothing here imports ``transformers``; modules are known by the names of their classes.
"""

from .checkpoints import from_checkpoint, to_checkpoint
from .deepseek_sinkhorn import DeepSeekSinkhorn
from .families import FAMILIES
from .heads import from_head, to_head
from .replace import replace_sites, restore_sites
from .sites import from_site, to_site

__all__ = [
    "FAMILIES",
    "DeepSeekSinkhorn",
    "from_checkpoint",
    "from_head",
    "from_site",
    "replace_sites",
    "restore_sites",
    "to_checkpoint",
    "to_head",
    "to_site",
]
