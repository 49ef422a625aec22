"""What two processes compute together equals what one computes alone."""

from __future__ import annotations

import pytest
import torch
from check_checkpoints import BY_ONE, BY_TWO, OPTIONS, OTHER, blank, load, save
from models import batch, model_of
from pair import all_checks, run_pair
from torch.distributed.checkpoint.api import CheckpointException

pytestmark = [
    pytest.mark.distributed,
    pytest.mark.xdist_group("pair"),
    pytest.mark.filterwarnings("ignore:torch.distributed is disabled, unavailable or uninitialized"),
]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("pair")


@pytest.fixture(scope="module")
def said(folder):
    if not torch.distributed.is_gloo_available():
        pytest.skip("this torch has no gloo, so that no second process can be reached")
    save(model_of(**OPTIONS), folder / BY_ONE, no_dist=True)
    return run_pair(folder)


@pytest.mark.parametrize("name", all_checks())
def test_two_processes(said, name):
    assert not said[name], said[name]


def test_one_process_loads_what_two_saved(said, folder):
    model = blank(**OPTIONS)
    load(model, folder / BY_TWO, no_dist=True)
    assert torch.equal(model(batch()), model_of(**OPTIONS)(batch()))


def test_one_process_refuses_the_checkpoint_of_another_constraint(said, folder):
    with pytest.raises(CheckpointException, match="_extra_state"):
        load(blank(**OTHER), folder / BY_TWO, no_dist=True)
