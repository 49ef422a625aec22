"""Put our sites and head into a whole model of ``transformers``, and the model's own back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar, TypeVar

from torch import Tensor, nn

from .. import fast
from .families import FAMILIES, Family
from .heads import from_head, to_head
from .sites import from_site, to_site

Model = TypeVar("Model", bound=nn.Module)


class Replacement(nn.Module):
    """Takes the place of a module, under its names in the state dict, and can give it back.

    ``save_pretrained`` of the model therefore writes a checkpoint of the family.
    """

    ours: nn.Module
    stored_names: ClassVar[dict[str, str]]

    def __init__(self, original: nn.Module):
        super().__init__()
        self._original = (original,)  # to be put back, but no part of this module
        self.register_state_dict_post_hook(_rename_to_stored)
        self.register_load_state_dict_pre_hook(_rename_to_ours)

    def tensors(self) -> dict[str, Tensor]:
        """The tensors of the family as they are now."""
        raise NotImplementedError

    def restored(self) -> nn.Module:
        """The module that this one replaced, with the tensors as they are now."""
        (original,) = self._original
        tensors = self.tensors()
        for name, parameter in original.named_parameters(recurse=False):
            parameter.data = tensors[name].to(parameter.dtype)
        return original


class Site(Replacement):
    """A connection in the place of a site."""

    stored_names: ClassVar[dict[str, str]] = {
        f"mapping.{ours}": name for ours, name in (("weight", "fn"), ("bias", "base"), ("scale", "scale"))
    }

    def __init__(self, original: nn.Module, family: Family):
        super().__init__(original)
        self.ours = from_site(original, family.name)
        self.mixes = family.mixes

    def forward(self, streams: Tensor) -> tuple[Tensor, ...]:
        """What the model's layers expect of a site.

        ``(B, S, n, C)`` to ``post (B, S, n)``, ``comb = Hᵀ (B, S, n, n)`` where there is one, ``u (B, S, C)``.
        """
        connection: Any = self.ours
        pre, (streams, post, res) = connection.map_streams(streams)
        branch_input, _ = fast.read(streams, pre)
        return (post, res.mT, branch_input) if self.mixes else (post, branch_input)

    def tensors(self) -> dict[str, Tensor]:
        connection: Any = self.ours
        return to_site(connection)


class Head(Replacement):
    """A collapse in the place of a head."""

    stored_names: ClassVar[dict[str, str]] = {
        f"weights.{ours}": f"hc_{name}" for ours, name in (("weight", "fn"), ("bias", "base"), ("scale", "scale"))
    }

    def __init__(self, original: nn.Module, family: Family):
        super().__init__(original)
        self.ours = from_head(original, family.name)

    def forward(self, streams: Tensor) -> Tensor:
        """``(B, S, n, C) -> (B, S, C)``."""
        return self.ours(streams)

    def tensors(self) -> dict[str, Tensor]:
        collapse: Any = self.ours
        return to_head(collapse)


def replace_sites(model: Model) -> Model:
    """Replace every site and head of a ``transformers`` model by ours, in place.

    The model computes the same up to rounding, its state dict keeps its names, and its matrices are
    there to be inspected and trained.

    Args:
        model: a model of a known family; see ``FAMILIES``.

    Raises:
        ValueError: it has no sites of a known family.
    """
    count = _exchange(model, _replacement)
    if not count:
        raise ValueError(f"replace_sites: {type(model).__name__} has no sites of {', '.join(FAMILIES)}.")
    return model


def restore_sites(model: Model) -> Model:
    """Put the model's own sites and head back, with the tensors as they are now, in place.

    Raises:
        ValueError: there is nothing to put back.
    """
    if not _exchange(model, lambda module: module.restored() if isinstance(module, Replacement) else None):
        raise ValueError(f"restore_sites: {type(model).__name__} has no sites that replace_sites() has put there.")
    return model


def _replacement(module: nn.Module) -> nn.Module | None:
    name = type(module).__name__
    for family in FAMILIES.values():
        if name in family.site_classes:
            return Site(module, family)
        if name in family.head_classes:
            return Head(module, family)
    return None


def _exchange(model: nn.Module, exchange: Callable[[nn.Module], nn.Module | None]) -> int:
    """Exchange the modules for which the function gives another; how many there were."""
    count = 0
    for parent in list(model.modules()):
        for name, child in list(parent.named_children()):
            other = exchange(child)
            if other is not None:
                setattr(parent, name, other.train(child.training))
                count += 1
    return count


def _rename_to_stored(module: Any, state: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    state.pop(f"{prefix}ours._extra_state", None)
    for ours, name in module.stored_names.items():
        if f"{prefix}ours.{ours}" in state:
            state[prefix + name] = state.pop(f"{prefix}ours.{ours}")


def _rename_to_ours(module: Any, state: dict[str, Any], prefix: str, *others: Any) -> None:
    for ours, name in module.stored_names.items():
        if prefix + name in state:
            state[f"{prefix}ours.{ours}"] = state.pop(prefix + name)
    if isinstance(module, Site):
        connection: Any = module.ours
        state.setdefault(f"{prefix}ours._extra_state", connection.get_extra_state())
