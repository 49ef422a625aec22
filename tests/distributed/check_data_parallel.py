"""DistributedDataParallel, which complains of a parameter without gradient unless told to search for them."""

from __future__ import annotations

import functools
from pathlib import Path

import torch
from models import (
    BF16,
    ROUNDING,
    VARIANTS,
    assert_recomputation_changes_nothing,
    assert_same,
    batch,
    full_batch_gradients,
    gradients,
    loss_of,
    model_of,
    part,
)
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

import hyperconn as hc


def check_ddp_gradients_are_those_of_the_full_batch(rank: int, folder: Path) -> None:
    x = batch()
    for options in VARIANTS:
        model = model_of(**options)
        expected = full_batch_gradients(model, x)
        parallel = DistributedDataParallel(model)
        for _ in range(2):  # the second pass is the one that finds a parameter unused in the first
            parallel.zero_grad()
            loss_of(parallel, part(x, rank)).backward()
        assert_same(gradients(parallel), expected, ROUNDING)


def check_ddp_under_autocast(rank: int, folder: Path) -> None:
    x = batch(torch.float32)
    for options in VARIANTS:
        model = model_of(dtype=torch.float32, **options)
        with torch.autocast("cpu", dtype=torch.bfloat16):
            expected = full_batch_gradients(model, x)
            parallel = DistributedDataParallel(model)
            loss = loss_of(parallel, part(x, rank))
        loss.backward()
        assert_same(gradients(parallel), expected, BF16)


def check_ddp_with_checkpointing_and_dropout(rank: int, folder: Path) -> None:
    for reentrant in (False, True):
        plain, checkpointed = (DistributedDataParallel(model_of(dropout=0.3, constraint="shc")) for _ in range(2))
        recompute_connections(checkpointed, reentrant)
        assert_recomputation_changes_nothing(plain, checkpointed, rank)


def check_ddp_with_recompute_and_dropout(rank: int, folder: Path) -> None:
    for policy in (True, hc.recompute.keep_nothing):
        plain, recomputing = (
            DistributedDataParallel(model_of(dropout=0.3, constraint="shc", recompute=recompute))
            for recompute in (False, policy)
        )
        assert_recomputation_changes_nothing(plain, recomputing, rank)


def recompute_connections(model: nn.Module, reentrant: bool) -> None:
    for module in model.modules():
        if isinstance(module, hc.HyperConnection):
            module.forward = functools.partial(checkpoint, module.forward, use_reentrant=reentrant)
