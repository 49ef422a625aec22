"""torch.distributed.checkpoint between two processes and one."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
import torch.distributed.checkpoint as dcp
from check_sharding import shard_connections
from models import batch, model_of
from torch import nn
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict import get_model_state_dict, set_model_state_dict

OPTIONS = {"constraint": "spectral-sphere", "retraction": "projection", "collapse": "learned"}
OTHER = {**OPTIONS, "constraint": "sinkhorn"}
BY_ONE, BY_TWO = "saved-by-one", "saved-by-two"


def save(model: nn.Module, path: Path, **how) -> None:
    dcp.save(get_model_state_dict(model), checkpoint_id=str(path), **how)


def load(model: nn.Module, path: Path, **how) -> None:
    state = get_model_state_dict(model)
    dcp.load(state, checkpoint_id=str(path), **how)
    set_model_state_dict(model, state)


def blank(**options) -> nn.Module:
    """A model whose numbers are anything but those of the checkpoint."""
    model = model_of(**options)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.fill_(0.5)
    return model


def check_two_processes_save_what_one_loads(rank: int, folder: Path) -> None:
    save(shard_connections(model_of(**OPTIONS)), folder / BY_TWO)


def check_two_processes_load_what_one_saved(rank: int, folder: Path) -> None:
    model = shard_connections(blank(**OPTIONS))
    load(model, folder / BY_ONE)
    torch.testing.assert_close(model(batch()), model_of(**OPTIONS)(batch()), rtol=0, atol=1e-12)


def check_two_processes_refuse_another_constraint(rank: int, folder: Path) -> None:
    # Descriptions of different lengths are refused before they can be read and compared.
    with pytest.raises(CheckpointException, match="_extra_state"):
        load(shard_connections(blank(**OTHER)), folder / BY_ONE)


def check_two_processes_refuse_another_order_of_retraction(rank: int, folder: Path) -> None:
    with pytest.raises(ValueError, match=r"retraction .*'p': 1.0.*'p': 2.0"):
        load(shard_connections(blank(**{**OPTIONS, "retraction": "cayley"})), folder / BY_ONE)
