"""Putting streams into a model that exists, and taking them out again."""

from .adapters import Adapter, register_adapter
from .pretrained import load_wrapped
from .wrap import is_wrapped, unwrap, wrap

__all__ = ["Adapter", "is_wrapped", "load_wrapped", "register_adapter", "unwrap", "wrap"]
