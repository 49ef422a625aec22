"""The command line, and the command line that a checkpoint remembers."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

import hyperconn as hc

from .model import Sizes
from .refusal import Refusal

NOT_REMEMBERED = {"resume", "out", "device", "compile", "fsdp", "help"}


class OneLineParser(argparse.ArgumentParser):
    """Wrong arguments get one line, like everything else that the user can mend."""

    def error(self, message: str) -> NoReturn:
        raise Refusal(f"{message}. Try --help.")


def parser() -> argparse.ArgumentParser:
    parser = OneLineParser(
        prog="train_gpt.py",
        description="Trains a byte-level GPT with n residual streams, then shows what their mixing matrices learned.",
        allow_abbrev=False,
    )
    model = parser.add_argument_group("streams")
    names = ", ".join(hc.list_constraints())
    model.add_argument("--constraint", default="sinkhorn", help=f"set of the residual matrices: {names}")
    model.add_argument("--streams", type=_whole(1, 64), default=4, help="number of residual streams n")
    model.add_argument("--mapping", type=_optional, help="flat, per-stream, static, or the constraint's own")
    model.add_argument("--retraction", type=_optional, help="none, projection, cayley, exponential, or an order p")

    model = parser.add_argument_group("model")
    model.add_argument("--layers", type=_whole(1, 256), default=4, help="blocks of attention and MLP")
    model.add_argument("--width", type=_whole(1, 8192), default=128, help="channels C of one stream")
    model.add_argument("--heads", type=_whole(1, 256), default=4, help="attention heads")
    model.add_argument("--context", type=_whole(1, 65536), default=64, help="bytes that a prediction can see, T")
    model.add_argument("--dropout", type=_number(0, 0.99), default=0.0, help="share of dropped branch outputs")

    data = parser.add_argument_group("text")
    data.add_argument("--data", help="a file or a folder; default: the source of the Python standard library")
    data.add_argument("--megabytes", type=_number(0.001, 1000), default=4.0, help="how much of the text to use")

    training = parser.add_argument_group("training")
    training.add_argument("--steps", type=_whole(1, 10**6 - 1), default=400, help="optimizer steps in all")
    training.add_argument("--batch-size", type=_whole(1, 65536), default=12, help="windows per step, all processes")
    training.add_argument("--lr", type=_number(0, 10), default=3e-3, help="highest learning rate")
    training.add_argument("--warmup", type=_whole(1, 10**6), default=50, help="steps of rising learning rate")
    training.add_argument("--weight-decay", type=_number(0, 10), default=0.1, help="AdamW's")
    training.add_argument("--seed", type=_whole(0, 2**31), default=0, help="start values and order of the text")
    training.add_argument("--eval-every", type=_whole(1, 10**6), default=100, help="steps between evaluations")
    training.add_argument("--eval-batches", type=_whole(1, 10**4), default=32, help="held-out batches each time")
    training.add_argument("--save-every", type=_whole(1, 10**6), default=100, help="steps between checkpoints")

    training.add_argument("--log-matrices", type=_whole(0, 10**6), default=50,
                          help="steps between rows of mixing.csv, 0 for none; not with --fsdp")  # fmt: skip

    run = parser.add_argument_group("run")
    run.add_argument("--out", help="folder of checkpoint.pt and log.csv; default: runs/CONSTRAINT")
    run.add_argument("--resume", nargs="?", const="", metavar="CHECKPOINT",
                     help="go on from this checkpoint, or from the one in --out")  # fmt: skip
    run.add_argument("--device", default="auto", help="auto, cpu, cuda, ...")
    run.add_argument("--compile", action="store_true", help="run the model through torch.compile")
    run.add_argument("--fsdp", action="store_true", help="shard the model over the processes of torchrun")
    return parser


def remembered(options: argparse.Namespace) -> list[str]:
    """The options that a resumed run takes over, as they would be typed."""
    typed = vars(options) | {"data": options.data and str(Path(options.data).resolve())}
    return [
        f"--{name.replace('_', '-')}={value}"
        for name, value in typed.items()
        if name not in NOT_REMEMBERED and value is not None
    ]


def parse(argv: Sequence[str], earlier: Sequence[str] = ()) -> argparse.Namespace:
    """What was typed, on top of what an earlier run was started with; both pass the same checks.

    Raises:
        Refusal: the earlier options are not ones that a run remembers.
    """
    names = {action.dest.replace("_", "-") for action in parser()._actions} - NOT_REMEMBERED
    unknown = [option for option in earlier if option.partition("=")[0].removeprefix("--") not in names]
    if unknown:
        raise Refusal(f"--resume: the checkpoint holds the option {unknown[0][:40]!r}, which no run remembers.")
    return parser().parse_args([*earlier, *argv])


def sizes(options: argparse.Namespace) -> Sizes:
    """The part of the options that the model is built from."""
    return Sizes(**{name: getattr(options, name) for name in Sizes._fields})


def out_folder(options: argparse.Namespace) -> Path:
    """``--out``, or beside the checkpoint that is resumed, or ``runs/CONSTRAINT``."""
    if options.out:
        return Path(options.out)
    if options.resume:
        return Path(options.resume) if Path(options.resume).is_dir() else Path(options.resume).parent
    return Path("runs", options.constraint)


def _whole(low: int, high: int):
    def whole_number(text: str) -> int:
        value = int(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a whole number from {low} to {high}, got {text}")
        return value

    return whole_number


def _number(low: float, high: float):
    def number(text: str) -> float:
        value = float(text)
        if not low <= value <= high:
            raise argparse.ArgumentTypeError(f"expected a number from {low} to {high}, got {text}")
        return value

    return number


def _optional(text: str) -> str | float | None:
    """``none`` is no object at all, a number is an order p, anything else a name."""
    if text.lower() == "none":
        return None
    try:
        return float(text)
    except ValueError:
        return text
