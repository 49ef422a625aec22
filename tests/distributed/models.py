"""The small model of these checks, its data, and the gradients one process computes on the full batch."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor

import hyperconn as hc

DIM, BATCH = 8, 4
ROUNDING, BF16 = 1e-11, 4e-2
VARIANTS = [
    *({"constraint": name} for name in hc.list_constraints()),
    {"constraint": "sinkhorn", "mapping": "static", "collapse": "learned"},
    {"constraint": "spectral-sphere", "retraction": "cayley", "collapse": "sum"},
    {"constraint": "unconstrained", "retraction": 1.5, "streams": 1},
]


def branch(dropout: float = 0.0) -> nn.Module:
    return nn.Sequential(nn.LayerNorm(DIM), nn.Linear(DIM, DIM), nn.GELU(), nn.Dropout(dropout), nn.Linear(DIM, DIM))


def model_of(*, dtype: torch.dtype = torch.float64, dropout: float = 0.0, **options) -> nn.Sequential:
    """The same numbers on every rank, away from the start, so that every parameter matters."""
    torch.manual_seed(7)
    stack = hc.HyperStack([branch(dropout), branch(dropout)], DIM, **options)
    model = nn.Sequential(nn.Linear(DIM, DIM), stack, nn.Linear(DIM, DIM)).to(dtype)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return model


def batch(dtype: torch.dtype = torch.float64) -> Tensor:
    return torch.randn(BATCH, 3, DIM, dtype=dtype, generator=torch.Generator().manual_seed(11))


def part(x: Tensor, rank: int) -> Tensor:
    return x.chunk(2)[rank]


def loss_of(model: nn.Module, x: Tensor) -> Tensor:
    return (model(x) * torch.arange(1.0, DIM + 1)).square().mean()


def gradients(model: nn.Module) -> dict[str, Tensor]:
    """Whole gradients by the names of the bare model."""
    return {name.removeprefix("module."): whole(p.grad) for name, p in model.named_parameters()}


def whole(tensor: Tensor) -> Tensor:
    return tensor.full_tensor() if isinstance(tensor, DTensor) else tensor


def full_batch_gradients(model: nn.Module, x: Tensor) -> dict[str, Tensor]:
    alone = copy.deepcopy(model)
    loss_of(alone, x).backward()
    return gradients(alone)


def assert_recomputation_changes_nothing(plain: nn.Module, recomputing: nn.Module, rank: int) -> None:
    """The gradients of one step with dropout, from the same random numbers."""
    for model in (plain, recomputing):
        torch.manual_seed(rank)
        loss_of(model, part(batch(), rank)).backward()
    assert_same(gradients(recomputing), gradients(plain), ROUNDING)


def assert_same(got: dict[str, Tensor], expected: dict[str, Tensor], tolerance: float) -> None:
    """Errors relative to the gradient, or to a tenth of a typical one where terms cancel."""
    assert got.keys() == expected.keys()
    typical = torch.stack([gradient.norm() for gradient in expected.values()]).square().mean().sqrt()
    for name, gradient in got.items():
        scale = torch.maximum(expected[name].norm(), typical / 10)
        error = (gradient - expected[name]).norm() / scale
        assert error <= tolerance, f"{name}: relative error {error:.1e}"
