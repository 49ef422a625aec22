"""Checkpoints without the code of their model: files are not trusted, only tensors are read."""

from .errors import CheckpointError
from .files import open_checkpoint
from .reading import checkpoint_continuity, inspect_checkpoint

__all__ = ["CheckpointError", "checkpoint_continuity", "inspect_checkpoint", "open_checkpoint"]
