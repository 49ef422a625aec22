"""A byte-level GPT whose blocks are connected by n streams instead of one residual stream."""

from __future__ import annotations

from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hyperconn as hc

BYTES = 256


class Sizes(NamedTuple):
    """Everything that decides the shape of the model's tensors or what they mean."""

    layers: int
    width: int
    heads: int
    context: int
    streams: int
    constraint: str
    mapping: str | None
    retraction: str | float | None
    dropout: float


class GPT(nn.Module):
    """Bytes in, logits of the next byte out: ``(B, T) -> (B, T, 256)``."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        if sizes.width % sizes.heads:
            raise ValueError(f"GPT: expected a width that {sizes.heads} heads divide evenly, got {sizes.width}.")
        self.byte_embedding = nn.Embedding(BYTES, sizes.width)
        self.position_embedding = nn.Embedding(sizes.context, sizes.width)
        # Attention and MLP are connected one by one: each reads the streams, and each writes to them.
        self.stack = hc.HyperStack(
            [sublayer(sizes) for _ in range(sizes.layers) for sublayer in (Attention, MLP)],
            sizes.width,
            sizes.streams,
            constraint=sizes.constraint,
            mapping=sizes.mapping,
            retraction=sizes.retraction,
        )
        self.norm = nn.RMSNorm(sizes.width)
        self.head = nn.Linear(sizes.width, BYTES, bias=False)
        self._start(sizes.layers)

    def forward(self, tokens: Tensor) -> Tensor:
        positions = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.byte_embedding(tokens) + self.position_embedding(positions)  # (B, T, C)
        x = self.stack(x)  # (B, T, C), n streams inside
        return self.head(self.norm(x))  # (B, T, 256)

    def loss(self, tokens: Tensor, targets: Tensor) -> Tensor:
        return F.cross_entropy(self(tokens).flatten(0, 1), targets.flatten())

    def _start(self, layers: int) -> None:
        """GPT-2's start: what a sublayer writes shrinks with depth, so that their sum does not grow."""
        for name, parameter in self.named_parameters():
            if name.endswith(("embedding.weight", "head.weight", "into.weight")):
                nn.init.normal_(parameter, std=0.02)
            elif name.endswith("out.weight"):
                nn.init.normal_(parameter, std=0.02 / (2 * layers) ** 0.5)


class Attention(nn.Module):
    """Causal attention with its own pre-norm: ``(B, T, C) -> (B, T, C)``."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.heads, self.dropout = sizes.heads, sizes.dropout
        self.norm = nn.RMSNorm(sizes.width)
        self.into = nn.Linear(sizes.width, 3 * sizes.width, bias=False)
        self.out = nn.Linear(sizes.width, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.into(self.norm(x)).unflatten(-1, (3, self.heads, -1)).unbind(-3)  # (B, T, h, C/h) each
        y = F.scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), is_causal=True
        )  # (B, h, T, C/h)
        return F.dropout(self.out(y.transpose(1, 2).flatten(-2)), self.dropout, self.training)


class MLP(nn.Module):
    """Four times wider inside, with its own pre-norm: ``(B, T, C) -> (B, T, C)``."""

    def __init__(self, sizes: Sizes):
        super().__init__()
        self.dropout = sizes.dropout
        self.norm = nn.RMSNorm(sizes.width)
        self.into = nn.Linear(sizes.width, 4 * sizes.width, bias=False)
        self.out = nn.Linear(4 * sizes.width, sizes.width, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        y = F.gelu(self.into(self.norm(x)))  # (B, T, 4C)
        return F.dropout(self.out(y), self.dropout, self.training)
