"""What the matrices do during training: a CSV file, and TensorBoard where it is installed."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from .mosaic import mosaic
from .sites import chain_beginnings, connections_of
from .snapshot import Row, snapshot
from .training_log import TrainingLog

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Self

SCALARS = (
    "negative_share",
    "most_negative",
    "distance_from_identity",
    "forward_gain",
    "product.second_singular_value",
)


class MixingLogger:
    """Write the static quantities of all connections every so many steps.

    It reads parameters and touches nothing else: no hooks, no random numbers, no gradients. ``every=0``
    turns it off: nothing is computed or created.

        with hc.MixingLogger(model, every=50, folder="runs/first") as logger:
            for step, batch in enumerate(batches):
                train(batch)
                logger.step(step)

    Args:
        model: any module that contains hyper-connections.
        every: number of steps between two entries; 0 for none.
        folder: where ``mixing.csv`` and TensorBoard's files go.

    Raises:
        ValueError: the model has no hyper-connection, or every < 0.
    """

    def __init__(self, model: nn.Module, every: int = 50, folder: str | Path = "runs/mixing"):
        if isinstance(every, bool) or not isinstance(every, int) or every < 0:
            raise ValueError(f"MixingLogger: expected every to be a number of steps, or 0 for none, got {every!r}.")
        self.every, self.folder = every, Path(folder)
        self._connections = connections_of("MixingLogger", model)
        self._beginnings = chain_beginnings(model)
        self._log: TrainingLog | None = None
        self._board: Any = None

    def step(self, step: int) -> None:
        """Call it after every optimizer step; most calls return at once.

        Args:
            step: number of the step.
        """
        if self.every and step % self.every == 0:
            self._write(step)

    def close(self) -> None:
        """Finish TensorBoard's file."""
        if self._board is not None:
            self._board.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _write(self, step: int) -> None:
        rows, matrices = snapshot(self._connections, self._beginnings)
        if self._log is None:
            columns = dict.fromkeys(key for row in rows for key in row)
            self._log = TrainingLog(self.folder / "mixing.csv", ["step", "connection", *columns])
            self._board = _board(self.folder)
        named = zip(self._connections, rows, strict=True)
        self._log.write([{"step": step, "connection": name, **row} for name, row in named])
        if self._board is not None:
            self._show(step, rows, matrices)

    def _show(self, step: int, rows: Sequence[Row], matrices: Sequence[Tensor]) -> None:
        for name, row in zip(self._connections, rows, strict=True):
            for quantity in SCALARS:
                self._board.add_scalar(f"{quantity}/{name}", row[quantity], step)
        for n in sorted({matrix.shape[-1] for matrix in matrices}):
            stack = torch.stack([matrix for matrix in matrices if matrix.shape[-1] == n])
            self._board.add_image(f"H, {n} streams", mosaic(stack), step)


def _board(folder: Path) -> Any:
    """TensorBoard's writer, None where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        return None
    return SummaryWriter(str(folder))
