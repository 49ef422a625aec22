"""A training step of the example GPT with four streams, against its plain residual twin."""

from __future__ import annotations

import pytest
import torch

import hyperconn as hc
from gpt.model import GPT, Sizes


@pytest.mark.parametrize("mode", ["eager", "compiled"])
@pytest.mark.parametrize("constraint", ["sinkhorn", "spectral-sphere"])
def test_step(against, constraint, mode):
    against(step(4, constraint, mode), step(1, constraint, mode), 7, kind="gpt", mode=mode, name=constraint)


def step(streams: int, constraint: str, mode: str):
    """6 layers, C = 512, 4 × 256 tokens; loss, backward and AdamW."""
    sizes = Sizes(
        layers=6, width=512, heads=8, context=256, streams=streams, constraint=constraint,
        mapping=None, retraction=None, dropout=0.0,
    )  # fmt: skip
    model = GPT(sizes)
    optimizer = torch.optim.AdamW(hc.parameter_groups(model, 0.1), lr=1e-4)
    tokens = torch.randint(256, (4, 257))
    if mode == "compiled":  # layer by layer: one graph for all layers of a kind, and not one with all layers in it
        for connection in model.stack.connections:
            connection.compile(fullgraph=True)

    def run() -> None:
        optimizer.zero_grad()
        model.loss(tokens[:, :-1], tokens[:, 1:]).backward()
        optimizer.step()

    return run
