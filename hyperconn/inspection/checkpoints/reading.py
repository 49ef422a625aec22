"""Reports from a checkpoint alone."""

from __future__ import annotations

from pathlib import Path

from ..continuity import ContinuityReport, continuity_of
from ..mixing import static_report
from ..report import MixingReport
from ..sites import Site
from .errors import CheckpointError
from .files import open_checkpoint, read_config
from .own import own_sites
from .published import published_sites

LARGEST_MATRIX = 1 << 28  # elements


def inspect_checkpoint(path: str | Path) -> MixingReport:
    """Report the learned static matrices of a checkpoint, without the code of its model.

    Args:
        path: a state dict of ``torch.save``, alone or in a training checkpoint, a ``.safetensors`` file, or a
            folder of shards; of this library, or of DeepSeek-V4 and its relatives.

    Raises:
        CheckpointError: it cannot be read, or has no hyper-connections; one line.
    """
    tensors = open_checkpoint(path)
    try:
        sites: list[Site] = [*own_sites(tensors), *published_sites(tensors, read_config(path))]
    except CheckpointError as error:
        raise CheckpointError(f"{path}: {error}") from error
    if not sites:
        raise CheckpointError(
            f"{path}: no hyper-connections among its {len(tensors)} tensors; expected the state dict of a model "
            "of hyperconn, or DeepSeek-V4's hc_attn_base and the like"
        )
    return static_report(sites)


def checkpoint_continuity(path: str | Path, top_k: int = 8) -> ContinuityReport:
    """Report the continuity of the weights of a checkpoint, reading one weight at a time.

    Raises:
        CheckpointError: it cannot be read, or no projection occurs in two layers; one line.
    """
    tensors = open_checkpoint(path)
    shapes = {name: tensors.shape(name) for name in tensors}
    sizes = {
        name: shape for name, shape in shapes.items() if len(shape) != 2 or shape[0] * shape[1] <= LARGEST_MATRIX
    }
    try:
        return continuity_of(sizes, tensors.__getitem__, top_k=top_k)
    except ValueError as error:
        raise CheckpointError(f"{path}: {error}") from error
