"""Train a byte-level GPT with n residual streams, then read what their mixing matrices have learned.

    python examples/train_gpt.py --constraint shc
    python examples/train_gpt.py --constraint shc --resume --steps 600
    torchrun --nproc-per-node 2 examples/train_gpt.py --constraint shc [--fsdp]

Everything random is a function of (--seed, step), and so is the learning rate: a run of 300 steps that is
resumed to 600 goes through the same losses as a run of 600, bit for bit.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

import hyperconn as hc
from gpt.checkpoint import Checkpoint, restore, save, taken
from gpt.interruption import Interruption
from gpt.log import Log, earlier_rows
from gpt.model import GPT
from gpt.options import remembered, sizes
from gpt.processes import World, gather, joined, spread
from gpt.progress import Progress, progress, say
from gpt.refusal import Refusal
from gpt.resume import CHECKPOINT, read_options
from gpt.text import Batch, Text, bigram_loss, held_out_batches, read_text, step_seed, training_batch

INTERRUPTED = 130  # what a shell reports for Ctrl-C


def main(argv: Sequence[str]) -> int:
    """Exit status: 0 at the end of the run, 2 for what the user can mend, 130 for Ctrl-C."""
    try:
        options, checkpoint = read_options(argv)
        text = read_text(options.data, int(1e6 * options.megabytes), options.context)
        with joined(options.device, options.fsdp, options.batch_size) as world, Interruption() as interruption:
            return Run(options, text, world, checkpoint).to_the_end(interruption)
    except Refusal as refusal:
        return give_up(f"error: {refusal}", status=2)
    except KeyboardInterrupt:
        return give_up("stopped at once; the last checkpoint is as it was.", status=INTERRUPTED)


class Run:
    """A model, its optimizer and its text, at some step."""

    def __init__(self, options: argparse.Namespace, text: Text, world: World, checkpoint: Checkpoint | None):
        self.options, self.text, self.world = options, text, world
        self.held_out = held_out_batches(text, options.eval_batches, options.batch_size, options.context)
        self.model = build(options).to(world.device)
        self.network = spread(self.model, world, options.fsdp)
        # The library knows which of its parameters weight decay would pull away from their start.
        groups = hc.parameter_groups(self.model, options.weight_decay)
        self.optimizer = torch.optim.AdamW(groups, lr=options.lr, betas=(0.9, 0.95))
        self.step, self.validation_loss = 0, math.nan
        if checkpoint is not None:
            restore(checkpoint, self.model, self.optimizer, options.resume)
            self.step = checkpoint.step
        self.log = open_log(options, self.step) if world.first else None
        # Sharded matrices cannot be looked at on the way; the report at the end gathers them.
        every = options.log_matrices if world.first and not options.fsdp else 0
        self.matrices = hc.MixingLogger(self.model, every, options.out)

    def to_the_end(self, interruption: Interruption) -> int:
        with progress(self.options.steps, self.step, silent=not self.world.first) as shown:
            shown.say(self.opening())
            self.train(interruption, shown)
            finished = self.step == self.options.steps
            shown.say(self.closing() if finished else self.interrupted())
        self.matrices.close()
        if not finished:
            return INTERRUPTED
        report = hc.inspect(gather(self.model))
        if self.world.first:
            say(report)
        return 0

    def train(self, interruption: Interruption, shown: Progress) -> None:
        """Steps until the last one, or until somebody sends a signal to any of the processes."""
        options, stop = self.options, False
        while self.step < options.steps and not stop:
            self.step += 1
            started = time.perf_counter()
            loss = self.take_step()
            loss, wishes = self.world.mean(loss, interruption.count)
            speed = options.batch_size * options.context / (time.perf_counter() - started)
            stop = wishes > 0
            if not math.isfinite(loss):
                raise Refusal(f"the loss is {loss} at step {self.step}. Try a smaller --lr.")
            self.note(loss, speed, shown)
            if self.due(options.save_every) or stop:
                self.save()

    def take_step(self) -> Tensor:
        """One optimizer step; its loss before the step, on this process's share of the batch."""
        options = self.options
        batch = training_batch(self.text, self.step, options.seed, options.batch_size, options.context)
        torch.manual_seed(step_seed(options.seed, self.step) + self.world.rank)  # for dropout
        loss = loss_of(self.network, self.world.share(batch))
        loss.backward()
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), 1.0)
        for group in self.optimizer.param_groups:
            group["lr"] = self.learning_rate()
        self.optimizer.step()
        self.optimizer.zero_grad()
        return loss.detach()

    def learning_rate(self) -> float:
        """Linear warm-up, then the inverse square root: no need to know the last step."""
        return self.options.lr * min(self.step / self.options.warmup, math.sqrt(self.options.warmup / self.step))

    @torch.no_grad()
    def evaluate(self) -> float:
        self.network.eval()
        losses = [loss_of(self.network, self.world.share(batch)) for batch in self.held_out]
        self.network.train()
        return self.world.mean(torch.stack(losses).mean())[0]

    def note(self, loss: float, speed: float, shown: Progress) -> None:
        """A row of the log, the progress bar and, when it is time, the validation loss."""
        evaluated = self.due(self.options.eval_every)
        if evaluated:
            self.validation_loss = self.evaluate()
            shown.say(f"step {self.step}: training loss {loss:.4f}, validation loss {self.validation_loss:.4f}")
        if self.log is not None:
            validation = self.validation_loss if evaluated else ""
            self.log.row(self.step, loss, validation, self.learning_rate(), round(speed))
        self.note_matrices()
        shown.advance(self.step, loss, speed)

    def note_matrices(self) -> None:
        try:
            self.matrices.step(self.step)
        except OSError as error:
            raise Refusal(f"--out {self.options.out}: mixing.csv cannot be written: {error.strerror}.") from error

    def save(self) -> None:
        """Every process gives its part, the first one writes."""
        state = taken(self.model, self.optimizer, remembered(self.options), self.step, self.text.digest)
        if self.world.first:
            save(state, self.path)

    def due(self, every: int) -> bool:
        return self.step % every == 0 or self.step == self.options.steps

    @property
    def path(self) -> Path:
        return Path(self.options.out, CHECKPOINT)

    def opening(self) -> str:
        options, count = self.options, sum(parameter.numel() for parameter in self.model.parameters())
        return (
            f"{options.constraint}, {options.streams} streams: {count:,} parameters, "
            f"{len(self.text.training):,} bytes to train on, {len(self.text.held_out):,} held out, "
            f"steps {self.step + 1} to {options.steps} on {self.world.size} x {self.world.device}, into {options.out}"
        )

    def closing(self) -> str:
        baseline = bigram_loss(self.text, self.held_out)
        return f"validation loss {self.validation_loss:.4f} nats per byte; bigram baseline {baseline:.4f}"

    def interrupted(self) -> str:
        return f"interrupted after step {self.step}: go on with --resume {self.path}"


def build(options: argparse.Namespace) -> GPT:
    torch.manual_seed(options.seed)
    try:
        model = GPT(sizes(options))
    except (TypeError, ValueError) as error:  # the library says who, what was expected, and what to try
        raise Refusal(str(error)) from error
    return compiled(model) if options.compile else model


def compiled(model: GPT) -> GPT:
    """Compile in place, after a trial on something small: not every machine has a compiler."""
    try:
        torch.compile(torch.sin)(torch.zeros(2))
    except RuntimeError as error:
        reason = next(line for line in str(error).splitlines() if line)
        raise Refusal(f"--compile: cannot be used on this machine: {reason}") from error
    model.compile()
    return model


def loss_of(network: nn.Module, batch: Batch) -> Tensor:
    tokens, targets = batch  # (B, T) each
    return F.cross_entropy(network(tokens).flatten(0, 1), targets.flatten())


def open_log(options: argparse.Namespace, step: int) -> Log:
    """Nothing is written before everything else has been checked."""
    folder = Path(options.out)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise Refusal(f"--out {folder}: cannot be created: {error.strerror}. Try another folder.") from error
    earlier = earlier_rows(Path(options.resume).parent / "log.csv", step) if options.resume else []
    return Log(folder / "log.csv", earlier)


def give_up(line: str, status: int) -> int:
    if os.environ.get("RANK", "0") == "0":
        print(f"train_gpt.py: {line}", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
