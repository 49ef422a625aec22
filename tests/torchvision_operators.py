"""Lets a torchvision built for CUDA be imported beside a torch for CPU."""

from __future__ import annotations

import functools
import importlib.util

import torch


@functools.cache
def define_missing_operators() -> torch.library.Library | None:
    """Declare the two operators without which torchvision cannot be imported, where their library cannot be loaded.

    timm imports torchvision for its image transforms alone, and transformers imports it where it is
    installed. PyPI's torchvision for Linux has its C++ operators in a library that needs CUDA; without
    it the import fails on registrations for two of them, whose signatures are enough to go on.
    """
    if importlib.util.find_spec("torchvision") is None or torch.version.cuda is not None:
        return None
    library = torch.library.Library("torchvision", "DEF")
    for name in ("nms", "qnms"):
        library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    return library
