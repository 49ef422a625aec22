"""Geometric continuity: do the leading singular directions of a projection carry on from layer to layer?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from . import export
from .directions import (
    adjacent,
    adjacent_subspaces,
    leading_directions,
    pairwise,
    random_cosine,
    random_cosine_error,
)
from .projections import Found, Projection, find_projections
from .table import render_table
from .tables import number

Read = Callable[[str], Tensor]


@dataclass(frozen=True)
class ProjectionContinuity:
    """One projection through L layers. ``v`` directions live in its input space, ``u`` in its output space."""

    name: str
    layers: list[int]
    shape: tuple[int, int]
    """(out, in)."""
    c_v: Tensor
    """``(L − 1,)``: ``|v₁(W_l)ᵀ v₁(W_{l+1})|``."""
    c_u: Tensor
    baseline_v: float
    """What random directions give on average."""
    baseline_u: float
    standard_error_v: float
    """Of the mean of ``c_v``, for random directions."""
    standard_error_u: float
    top_k: int
    subspace_v: Tensor
    """``(L − 1,)``: overlap of the spaces of the k leading directions; random ones give k/d."""
    subspace_u: Tensor
    matrix_v: Tensor
    """``(L, L)``: every layer with every other."""
    matrix_u: Tensor
    singular_values: Tensor
    """``(L, k)``, the leading ones."""
    gaps: Tensor
    """``(L,)``: ``(σ₁ − σ₂) / σ₁``; near 0 the first direction is not well defined."""
    gradient_coherence: Tensor | None
    """``(L − 1,)``: cosine of the gradients of adjacent layers, if all have one."""


@dataclass(frozen=True)
class ContinuityReport:
    """All projections of a model; ``print(report)`` shows a table."""

    projections: list[ProjectionContinuity]

    def __iter__(self) -> Iterator[ProjectionContinuity]:
        return iter(self.projections)

    def __len__(self) -> int:
        return len(self.projections)

    def __getitem__(self, name: str) -> ProjectionContinuity:
        for projection in self.projections:
            if projection.name == name:
                return projection
        raise KeyError(f"no projection {name!r}; known: {', '.join(p.name for p in self.projections)}")

    def __str__(self) -> str:
        columns = ["projection", "layers", "out × in", "C_v", "random", "C_u", "random", "top-k v", "random",
                   "top-k u", "random", "gap", "gradients"]  # fmt: skip
        return render_table("continuity of adjacent layers (means)", columns, [_row(p) for p in self.projections])

    def to_dict(self) -> dict[str, Any]:
        """Everything as plain data."""
        return {"projections": [_plain(p) for p in self.projections]}

    def to_json(self, path: str | Path) -> None:
        """Write :meth:`to_dict` as JSON; non-finite numbers become strings."""
        export.write_json(self.to_dict(), path)

    def plot(self, path: str | Path) -> None:
        """Draw continuity against depth and the layer × layer matrices, as PNG, SVG or PDF by suffix.

        Raises:
            ImportError: matplotlib is not installed; it comes with ``hyperconn[plot]``.
            ValueError: another suffix.
        """
        from .continuity_plots import draw_continuity

        draw_continuity(self, path)


def continuity(
    model: nn.Module | Mapping[str, Tensor],
    *,
    patterns: Mapping[str, str | Projection] | None = None,
    top_k: int = 8,
) -> ContinuityReport:
    """Compare the leading singular directions of every projection between layers.

    Projections are found by the parameter names of common families (Llama-type, GPT-2, BERT, ViT, timm, torch's
    own layers); after a backward pass the coherence of the gradients is reported as well.

    Args:
        model: a module, or a state dict.
        patterns: projections by kind for other names, e.g. ``{"q": "blocks.{layer}.attn.wq.weight"}``;
            see :class:`hyperconn.inspection.Projection` for fused and transposed weights.
        top_k: dimensions of the subspaces that are compared.

    Returns:
        ContinuityReport: one entry per projection.

    Raises:
        ValueError: no projection occurs in two layers, or top_k < 1.

    Reference: arXiv 2605.04971.
    """
    weights = dict(model.named_parameters()) if isinstance(model, nn.Module) else dict(model)
    matrices = {name: weight for name, weight in weights.items() if isinstance(weight, Tensor)}
    shapes = {name: tuple(weight.shape) for name, weight in matrices.items()}
    return continuity_of(shapes, matrices.__getitem__, patterns, top_k, lambda name: matrices[name].grad)


def continuity_of(
    shapes: Mapping[str, tuple[int, ...]],
    read: Read,
    patterns: Mapping[str, str | Projection] | None = None,
    top_k: int = 8,
    read_gradient: Callable[[str], Tensor | None] = lambda name: None,
) -> ContinuityReport:
    """The same for weights that are read one at a time."""
    if isinstance(top_k, bool) or not isinstance(top_k, int) or top_k < 1:
        raise ValueError(f"continuity: expected top_k >= 1, got {top_k!r}.")
    groups = find_projections(shapes, patterns)
    return ContinuityReport([_measure(label, group, read, top_k, read_gradient) for label, group in groups.items()])


def _measure(
    label: str, group: list[Found], read: Read, top_k: int, read_gradient: Callable[[str], Tensor | None]
) -> ProjectionContinuity:
    out, into = group[0].take(read(group[0].name)).shape
    top_k = min(top_k, out, into)
    found = [leading_directions(one.take(read(one.name)), max(top_k, min(2, out, into))) for one in group]
    left, values, right = (torch.stack(parts) for parts in zip(*found, strict=True))
    matrix_v, matrix_u = pairwise(right), pairwise(left)
    pairs = len(group) - 1
    return ProjectionContinuity(
        name=label,
        layers=[one.layer for one in group],
        shape=(out, into),
        c_v=adjacent(matrix_v),
        c_u=adjacent(matrix_u),
        baseline_v=random_cosine(into),
        baseline_u=random_cosine(out),
        standard_error_v=random_cosine_error(into, pairs),
        standard_error_u=random_cosine_error(out, pairs),
        top_k=top_k,
        subspace_v=adjacent_subspaces(right[:, :top_k]),
        subspace_u=adjacent_subspaces(left[:, :top_k]),
        matrix_v=matrix_v,
        matrix_u=matrix_u,
        singular_values=values,
        gaps=_gaps(values),
        gradient_coherence=_coherence(group, read_gradient),
    )


def _gaps(values: Tensor) -> Tensor:
    second = values[:, 1] if values.shape[1] > 1 else torch.zeros_like(values[:, 0])
    return (values[:, 0] - second) / values[:, 0]


@torch.no_grad()
def _coherence(group: list[Found], read_gradient: Callable[[str], Tensor | None]) -> Tensor | None:
    cosines: list[Tensor] = []
    before = None
    for one in group:
        gradient = read_gradient(one.name)
        if gradient is None:
            return None
        flat = one.take(gradient).flatten().float()
        if before is not None:
            cosines.append(F.cosine_similarity(before, flat, dim=0).cpu())
        before = flat
    return torch.stack(cosines)


def _row(p: ProjectionContinuity) -> list[str]:
    out, into = p.shape
    gradients = "" if p.gradient_coherence is None else _mean(p.gradient_coherence)
    return [
        p.name, str(len(p.layers)), f"{out} × {into}",
        _mean(p.c_v), number(p.baseline_v), _mean(p.c_u), number(p.baseline_u),
        _mean(p.subspace_v), number(p.top_k / into), _mean(p.subspace_u), number(p.top_k / out),
        _mean(p.gaps), gradients,
    ]  # fmt: skip


def _mean(values: Tensor) -> str:
    return number(float(values.mean()))


def _plain(p: ProjectionContinuity) -> dict[str, Any]:
    return {name: list(value) if name == "shape" else export.plain(value) for name, value in vars(p).items()}
