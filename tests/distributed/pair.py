"""Two gloo processes that run many checks one after another: starting them is what costs."""

from __future__ import annotations

import importlib
import json
import os
import traceback
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist

SIZE = 2
PATIENCE = timedelta(seconds=30)
MODULES = ("check_data_parallel", "check_sharding", "check_checkpoints", "check_pipeline")
Check = Callable[[int, Path], None]


def all_checks() -> dict[str, Check]:
    """Functions ``check_…(rank, folder)`` of the modules beside this one, by name."""
    modules = [importlib.import_module(name) for name in MODULES]
    return {
        name: function for module in modules for name, function in vars(module).items() if name.startswith("check_")
    }


def run_pair(folder: Path) -> dict[str, str]:
    """What each check said: nothing if it passed on both ranks, a traceback otherwise."""
    torch.multiprocessing.spawn(_work, args=(str(folder),), nprocs=SIZE)
    return json.loads((folder / "said.json").read_text())


def _work(rank: int, folder: str) -> None:
    torch.set_num_threads(1)
    store = dist.FileStore(os.path.join(folder, "store"), SIZE)
    said = {name: _say(name, check, rank, Path(folder), store) for name, check in all_checks().items()}
    if rank == 0:
        Path(folder, "said.json").write_text(json.dumps(said))


def _say(name: str, check: Check, rank: int, folder: Path, store: dist.Store) -> str:
    """What one check says. A group for each, and results through the store: a rank that fails leaves the other waiting."""
    own = dist.PrefixStore(name, store)
    dist.init_process_group("gloo", store=own, rank=rank, world_size=SIZE, timeout=PATIENCE)
    torch.manual_seed(0)
    try:
        check(rank, folder)
        mine = ""
    except BaseException:  # errors of torch.distributed.checkpoint are not Exceptions
        mine = f"rank {rank}:\n{traceback.format_exc()}"
    own.set(f"said-{rank}", mine)
    said = [own.get(f"said-{r}").decode() for r in range(SIZE)]
    dist.destroy_process_group()
    return "\n".join(filter(None, said))
