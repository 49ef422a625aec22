"""Which weights of a model are the same projection at different layers, by the names of the parameters."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor

Split = Callable[[Tensor], Sequence[Tensor]]


def whole(weight: Tensor) -> Sequence[Tensor]:
    """A weight that holds one projection."""
    return (weight,)


def thirds(weight: Tensor) -> Sequence[Tensor]:
    """Query, key and value one below the other, ``(3 d, C)``."""
    return weight.chunk(3)


def halves(weight: Tensor) -> Sequence[Tensor]:
    """Two projections of equal size, one below the other."""
    return weight.chunk(2)


def grouped(weight: Tensor) -> Sequence[Tensor]:
    """Query of width C, then key and value, which are narrower where heads share them: ``(C + 2 d, C)``."""
    queries = weight.shape[1]
    shared = (weight.shape[0] - queries) // 2
    return weight.split([queries, shared, shared])


@dataclass(frozen=True)
class Projection:
    """Where to find one projection, or several in one weight.

    Args:
        pattern: name of the parameter with ``{layer}`` for the number of the layer,
            e.g. ``"blocks.{layer}.attn.wq.weight"``; whatever comes before it is free.
        split: ``(out, in)`` weight to one weight per projection.
        transposed: the weight is stored as ``(in, out)``.
    """

    pattern: str
    split: Split = whole
    transposed: bool = False


class Found(NamedTuple):
    """One layer's weight of a projection: parameter ``name``, part ``part`` of its split."""

    layer: int
    name: str
    part: int
    split: Split
    transposed: bool

    def take(self, weight: Tensor) -> Tensor:
        """``(out, in)``: this projection out of the parameter, or out of its gradient."""
        return self.split(weight.mT if self.transposed else weight)[self.part]


class _Known(NamedTuple):
    kinds: tuple[str, ...]
    ending: str
    split: Split = whole


_QKV = ("q", "k", "v")
_ORDER = (*_QKV, "o", "gate", "up", "down")
# Endings of parameter names; the first that fits decides. Llama-type, torch, BERT and ViT, timm, GPT-2.
_KNOWN = (
    *(_Known((kind,), rf"\.{kind}_proj(\.weight|_weight)") for kind in _ORDER),
    _Known(_QKV, r"\.in_proj_weight", thirds),
    _Known(("o",), r"\.(self_attn|attn|attention|encoder_attn|multihead_attn)\.out_proj\.weight"),
    _Known(_QKV, r"\.qkv_proj\.weight", grouped),
    _Known(("gate", "up"), r"\.gate_up_proj\.weight", halves),
    *(_Known((word[0],), rf"\.{word}\.weight") for word in ("query", "key", "value")),
    _Known(("o",), r"\.attention\.output\.dense\.weight"),
    _Known(("up",), r"\.intermediate\.dense\.weight"),
    _Known(("down",), r"\.output\.dense\.weight"),
    _Known(("up",), r"\.(linear1|fc1)\.weight"),
    _Known(("down",), r"\.(linear2|fc2)\.weight"),
    _Known(_QKV, r"\.(qkv|c_attn)\.weight", thirds),
    _Known(("o",), r"\.attn\.(proj|c_proj)\.weight"),
    _Known(("up",), r"\.c_fc\.weight"),
    _Known(("down",), r"\.mlp\.c_proj\.weight"),
)
_GPT2_NAME = re.compile(r"\.(c_attn|c_proj|c_fc)\.weight$")


def find_projections(
    shapes: Mapping[str, Sequence[int]], patterns: Mapping[str, str | Projection] | None = None
) -> dict[str, list[Found]]:
    """Projections that occur in at least two layers.

    Args:
        shapes: shape of every parameter by name.
        patterns: projections by kind; a key like ``"q, k, v"`` names the parts of a split. None looks for
            the names of common model families.

    Returns:
        dict: label to the layers in order. The label is the kind, with the rest of the name where a model
        has the same kind at several places (an encoder and a decoder, say).

    Raises:
        ValueError: nothing was found; some names are shown.
    """
    matrices = [name for name, shape in shapes.items() if len(shape) == 2]
    matched = _by_known_names(matrices, shapes) if patterns is None else _by_patterns(matrices, patterns)
    groups: dict[tuple[str, str, tuple[int, ...]], list[Found]] = {}
    for kind, place, found in matched:
        groups.setdefault((kind, place, tuple(shapes[found.name])), []).append(found)
    repeated = {key: sorted(group) for key, group in groups.items() if len(group) > 1}
    if not repeated:
        raise ValueError(_nothing_found(matrices))
    return _labelled(repeated)


_Match = tuple[str, str, Found]


def _by_patterns(names: Iterable[str], patterns: Mapping[str, str | Projection]) -> Iterable[_Match]:
    for kinds, given in patterns.items():
        projection = given if isinstance(given, Projection) else Projection(given)
        if projection.pattern.count("{layer}") != 1:
            raise ValueError(f"continuity: expected a pattern with {{layer}} once, got {projection.pattern!r}.")
        before, after = map(re.escape, projection.pattern.split("{layer}"))
        expression = re.compile(rf"((?:.*\.)?){before}(\d{{1,9}}){after}")
        for name in names:
            if match := expression.fullmatch(name):
                for part, kind in enumerate(re.split(r"[,\s]+", kinds.strip())):
                    found = Found(int(match[2]), name, part, projection.split, projection.transposed)
                    yield kind, match[1], found


def _by_known_names(names: Iterable[str], shapes: Mapping[str, Sequence[int]]) -> Iterable[_Match]:
    transposed = _stores_transposed(shapes)
    layers = _layer_numbers([name for name in names if _known(name)])
    for name, (place, layer) in layers.items():
        known = _known(name)
        if known is not None and "experts." not in name:
            for part, kind in enumerate(known.kinds):
                yield kind, place, Found(layer, name, part, known.split, transposed and bool(_GPT2_NAME.search(name)))


def _known(name: str) -> _Known | None:
    return next((known for known in _KNOWN if re.search(known.ending + "$", "." + name)), None)


def _layer_numbers(names: Sequence[str]) -> dict[str, tuple[str, int]]:
    """The place of a name and its layer: of all numbers in it, the last one that varies between equal names."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault(re.sub(r"(?<![^.])\d+(?=\.)", "#", name), []).append(name)
    found = {}
    for template, group in alike.items():
        numbers = {
            name: [int(part) for part in name.split(".") if part.isascii() and part.isdigit()] for name in group
        }
        varying = [i for i, values in enumerate(zip(*numbers.values(), strict=False)) if len(set(values)) > 1]
        if varying:
            for name, own in numbers.items():
                others = tuple(number for i, number in enumerate(own) if i != varying[-1])
                found[name] = (f"{template} {others}", own[varying[-1]])
    return found


def _stores_transposed(shapes: Mapping[str, Sequence[int]]) -> bool:
    """GPT-2's own layers store ``(in, out)``, ports with Linear layers ``(out, in)``: the fused weight tells."""
    fused = [shape for name, shape in shapes.items() if name.endswith("c_attn.weight") and len(shape) == 2]
    return bool(fused) and all(shape[1] == 3 * shape[0] for shape in fused)


def _labelled(groups: Mapping[tuple[str, str, tuple[int, ...]], list[Found]]) -> dict[str, list[Found]]:
    kinds = [kind for kind, _, _ in groups]
    labelled: dict[str, list[Found]] = {}
    for (kind, _, shape), group in sorted(groups.items(), key=lambda item: _rank(item[0][0])):
        label = kind if kinds.count(kind) == 1 else f"{kind} ({group[0].name})"
        labelled[label if label not in labelled else f"{label} {shape}"] = group
    return labelled


def _rank(kind: str) -> int:
    return _ORDER.index(kind) if kind in _ORDER else len(_ORDER)


def _nothing_found(names: Sequence[str]) -> str:
    some = ", ".join(names[:3]) or "none"
    return (
        "continuity: found no projection that occurs in at least two layers. Matrices of the model: "
        f"{some}{', …' if len(names) > 3 else ''}. "
        "Pass patterns={'q': 'blocks.{layer}.attn.wq.weight'}, for instance."
    )
