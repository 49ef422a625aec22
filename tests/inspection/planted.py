"""Connections whose matrices are given by hand."""

from __future__ import annotations

import torch
from torch import Tensor, nn

import hyperconn as hc


class Planted(hc.Mapping):
    """Gives the logits it was made with, ``(..., 2n + k)``, whatever the streams are."""

    def __init__(self, dim: int, matrices: Tensor):
        n = matrices.shape[-1]
        super().__init__(dim, n, (n * n,), torch.zeros(2 * n + n * n), hc.mappings.LinearGates())
        gates = torch.ones(*matrices.shape[:-2], 2 * n)
        self.planted = torch.cat([gates, matrices.flatten(-2)], -1)

    def logits(self, streams: Tensor) -> Tensor:
        return self.planted


class Zero(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return torch.zeros_like(x)


def static_model(matrices: list[Tensor], dim: int = 8) -> nn.Sequential:
    """One unconstrained static connection per matrix, which needs no inputs."""
    sites = []
    for matrix in matrices:
        n = matrix.shape[-1]
        site = hc.HyperConnection(dim, n, Zero(), constraint="unconstrained", mapping="static")
        with torch.no_grad():
            site.mapping.bias[2 * n :] = matrix.flatten()
        sites.append(site)
    return nn.Sequential(*sites)


def per_token_model(matrices: list[Tensor], dim: int = 8) -> nn.Sequential:
    """One connection for each ``(tokens, n, n)``."""
    return nn.Sequential(
        *(
            hc.HyperConnection(
                dim, matrix.shape[-1], Zero(), constraint="unconstrained", mapping=Planted(dim, matrix)
            )
            for matrix in matrices
        )
    )


def cyclic_shift(n: int) -> Tensor:
    """Stream j goes into stream j + 1."""
    return torch.roll(torch.eye(n), 1, 0)


def doubly_stochastic(count: int, n: int = 4) -> Tensor:
    """Random ones from logits of unit deviation."""
    return hc.make_constraint("sinkhorn", n)(torch.randn(count, n * n))


def small_stack(constraint: str = "shc", layers: int = 4, dim: int = 16, **options) -> hc.HyperStack:
    """A stack away from its start, with dropout."""
    branches = [nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim), nn.Dropout(0.3)) for _ in range(layers)]
    stack = hc.HyperStack(branches, dim, 4, constraint=constraint, **options)
    with torch.no_grad():
        for parameter in stack.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return stack
