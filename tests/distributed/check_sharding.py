"""FSDP2: every connection a unit of its own, in full and in mixed precision."""

from __future__ import annotations

from pathlib import Path

import torch
from check_data_parallel import recompute_connections
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
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard

import hyperconn as hc

HALF = MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32)


def connections(model: nn.Module) -> list[hc.HyperConnection]:
    return [module for module in model.modules() if isinstance(module, hc.HyperConnection)]


def shard_connections(model: nn.Module) -> nn.Module:
    for connection in connections(model):
        fully_shard(connection)
    return fully_shard(model)


def shard_branches_in_half(model: nn.Module) -> nn.Module:
    """Branches compute in bf16; what a connection owns is a unit of its own and keeps float32."""
    for connection in connections(model):
        fully_shard(connection.branch, mp_policy=HALF)
        fully_shard(connection)
    return fully_shard(model)


def check_fsdp_gradients_are_those_of_the_full_batch(rank: int, folder: Path) -> None:
    x = batch()
    for options in VARIANTS:
        model = model_of(**options)
        expected = full_batch_gradients(model, x)
        shard_connections(model)
        loss_of(model, part(x, rank)).backward()
        assert_same(gradients(model), expected, ROUNDING)


def check_fsdp_in_mixed_precision_keeps_connections_in_float32(rank: int, folder: Path) -> None:
    x = batch(torch.float32)
    for options in VARIANTS:
        model = model_of(dtype=torch.float32, **options)
        expected = full_batch_gradients(model, x)
        shard_branches_in_half(model)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
        seen = record_matrices(model)
        loss_of(model, part(x, rank)).backward()
        assert_same(gradients(model), expected, BF16)
        optimizer.step()
        assert {p.dtype for p in model.parameters()} == {torch.float32}
        assert all(matrix.dtype == torch.float32 and violation <= 1e-2 for matrix, violation in seen)


def check_fsdp_with_everything_in_bf16_stays_in_the_sets(rank: int, folder: Path) -> None:
    for options in VARIANTS:
        model = model_of(dtype=torch.float32, **options)
        for connection in connections(model):
            fully_shard(connection, mp_policy=HALF)
        fully_shard(model, mp_policy=HALF)
        seen = record_matrices(model)
        loss_of(model, part(batch(torch.float32), rank)).backward()
        assert all(matrix.dtype == torch.float32 and violation <= 1e-2 for matrix, violation in seen)
        assert all(p.grad.to_local().isfinite().all() for p in model.parameters())


def check_fsdp_with_checkpointing_and_dropout(rank: int, folder: Path) -> None:
    for reentrant in (False, True):
        plain, checkpointed = (shard_connections(model_of(dropout=0.3, constraint="mhc")) for _ in range(2))
        recompute_connections(checkpointed, reentrant)
        assert_recomputation_changes_nothing(plain, checkpointed, rank)


def check_fsdp_with_recompute_and_dropout(rank: int, folder: Path) -> None:
    for policy in (True, hc.recompute.keep_nothing):
        for shard in (shard_connections, shard_branches):
            plain, recomputing = (
                shard(model_of(dropout=0.3, constraint="mhc", recompute=recompute)) for recompute in (False, policy)
            )
            assert_recomputation_changes_nothing(plain, recomputing, rank)


def shard_branches(model: nn.Module) -> nn.Module:
    """Units inside the region that is computed again."""
    for connection in connections(model):
        fully_shard(connection.branch)
    return fully_shard(model)


def record_matrices(model: nn.Module) -> list[tuple[torch.Tensor, float]]:
    """Every matrix a constraint makes, and how far it is from its set."""
    seen = []
    for connection in connections(model):
        connection.constraint.register_forward_hook(
            lambda constraint, args, matrix: seen.append((matrix, constraint.violation(matrix.detach()).max().item()))
        )
    return seen
