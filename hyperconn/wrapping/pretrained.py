"""Load a wrapped model that ``save_pretrained`` has written."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from ..parameters import NARROW_DTYPES
from .options import CONFIG_KEY, WrapOptions
from .wrap import wrap
from .wrapped_block import CHILD

INDEX = "model.safetensors.index.json"


def load_wrapped(
    path: str | Path, *, model_class: Any = None, model_options: dict[str, Any] | None = None, **overrides: Any
) -> nn.Module:
    """Load a wrapped ``transformers`` model with its connections, which stay in ``float32``.

    Args:
        path: the folder that ``model.save_pretrained(path)`` wrote.
        model_class: the model's class; None takes the one that ``config.json`` names from ``transformers``.
        model_options: keyword arguments for the ``from_pretrained`` of the model's class.
        overrides: arguments of :func:`hyperconn.wrap` that replace the stored ones; needed for objects
            of your own (an unregistered constraint, say), which are not stored.

    Returns:
        Module: the model, wrapped, in eval mode.

    Raises:
        ValueError: the folder holds no wrapped model, or its connections do not fit.
    """
    import transformers

    path = Path(path)
    if not path.is_dir():
        raise ValueError(f"load_wrapped: expected a folder, got {str(path)!r}. Download a model of a hub first.")
    config = transformers.AutoConfig.from_pretrained(path)
    stored = getattr(config, CONFIG_KEY, None)
    if stored is None:
        raise ValueError(f"load_wrapped: {path} holds no wrapped model; load it with from_pretrained and wrap() it.")
    options = WrapOptions.from_config(stored, **overrides)
    model = _base_model(model_class or _named_class(config.architectures), path, model_options or {})
    wrap(model, **vars(options))
    _load_connections(model, _connection_tensors(path))
    return model.eval()


def _named_class(architectures: list[str] | None) -> Any:
    import transformers

    (name,) = architectures or [""]
    if not hasattr(transformers, name):
        raise ValueError(f"load_wrapped: transformers has no class {name!r}; give the model's own as model_class=.")
    return getattr(transformers, name)


def _base_model(cls: Any, path: Path, model_options: dict[str, Any]) -> nn.Module:
    """The model without its connections, whose tensors are no surprise to it."""
    ignored = [*(cls._keys_to_ignore_on_load_unexpected or []), rf"\.{CHILD}\."]
    names = {"__module__": cls.__module__, "__qualname__": cls.__qualname__}
    tolerant: Any = type(cls.__name__, (cls,), {"_keys_to_ignore_on_load_unexpected": ignored, **names})
    model: nn.Module = tolerant.from_pretrained(path, **model_options)
    model.__class__ = cls
    return model


def _connection_tensors(path: Path) -> dict[str, Tensor]:
    from safetensors import safe_open

    tensors = {}
    for file in _weight_files(path):
        with safe_open(file, framework="pt") as opened:
            tensors.update({key: opened.get_tensor(key) for key in opened.keys() if f".{CHILD}." in key})  # noqa: SIM118
    narrow = [key for key, tensor in tensors.items() if tensor.dtype in NARROW_DTYPES]
    if narrow:
        warnings.warn(
            f"load_wrapped: {len(narrow)} connection tensors were stored in a half precision dtype "
            f"({narrow[0]}, ...). Their digits are lost; store connections in float32.",
            stacklevel=3,
        )
    return tensors


def _weight_files(path: Path) -> list[Path]:
    index = path / INDEX
    if not index.exists():
        return [path / "model.safetensors"]
    names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    outside = [name for name in names if Path(name).name != name]
    if outside:
        raise ValueError(f"load_wrapped: {index} names a file outside its folder, {outside[0]!r}.")
    return [path / name for name in names]


def _load_connections(model: nn.Module, tensors: dict[str, Tensor]) -> None:
    expected = {key for key in model.state_dict() if f".{CHILD}." in key}
    if set(tensors) != expected:
        different = sorted(set(tensors) ^ expected)
        raise ValueError(
            f"load_wrapped: the stored connections do not fit {type(model).__name__}: {len(different)} keys differ, "
            f"{different[0]} for one. Was it wrapped with other options?"
        )
    with torch.no_grad():
        model.load_state_dict(tensors, strict=False)
