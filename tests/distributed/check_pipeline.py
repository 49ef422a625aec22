"""Two pipeline stages that hand the raw streams on."""

from __future__ import annotations

from pathlib import Path

import torch
from models import DIM, assert_same, batch, full_batch_gradients, gradients, model_of
from torch import Tensor, nn
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

MICROBATCHES = 2
CUT = 3  # embed, expand and the first connection | the second connection, collapse and head


def check_pipeline_stages_carry_raw_streams(rank: int, folder: Path) -> None:
    for options in ({"constraint": "shc"}, {"constraint": "mhc", "retraction": 1.0}, {"constraint": "hc"}):
        layers = flat(model_of(**options))
        x, target = batch(), torch.zeros(len(batch()), 3, DIM, dtype=torch.float64)
        expected = full_batch_gradients(layers, x)
        stage = PipelineStage(layers[:CUT] if rank == 0 else layers[CUT:], rank, 2, torch.device("cpu"))
        schedule = ScheduleGPipe(stage, n_microbatches=MICROBATCHES, loss_fn=loss)
        output = schedule.step(x) if rank == 0 else schedule.step(target=target)
        if rank == 1:
            torch.testing.assert_close(output, layers(x), rtol=0, atol=1e-12)
        assert_same(own(gradients(layers), rank), own(expected, rank), 1e-11)


def flat(model: nn.Sequential) -> nn.Sequential:
    embed, stack, head = model
    return nn.Sequential(embed, stack.expand, *stack.connections, stack.collapse, head)


def loss(output: Tensor, target: Tensor) -> Tensor:
    """The loss of the other checks, written for a schedule that hands over a target."""
    return ((output - target) * torch.arange(1.0, DIM + 1)).square().mean()


def own(by_name: dict[str, Tensor], rank: int) -> dict[str, Tensor]:
    return {name: value for name, value in by_name.items() if (int(name.split(".")[0]) >= CUT) == bool(rank)}
