"""Fractions of the feature axis as streams (Frac-Connections)."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor, nn

from ..checks import check_count, check_streams
from ..connection import Carry, HyperConnection, Mappings
from ..constraints import Constraint
from ..gates import LinearGates
from ..mappings import MAPPINGS, Mapped, Mapping
from ..numerics import compute_dtype, outside_autocast
from ..recompute import Policy


class FractionalConnection(HyperConnection):
    """A connection whose n streams are cut into m fractions each: ``N = n·m`` narrow streams Z of width C/m.

    Every fraction of the branch input is a read of its own, every fraction of the output a write
    of its own, and the residual matrix is N × N::

        u_f = Σ_j pre[f, j] Z_j        y = F(u_1, …, u_m)        Z' = H Z + Σ_f post[f] ⊗ y_f

    With one stream and m fractions it costs no memory over the plain residual. Gates are linear: a
    fraction must be able to read nothing of another. It starts as ``x + F(x)``, exactly for a
    constraint that starts at I (unconstrained, identity, orthogonal); fractions are no copies, so
    that a start near I mixes them a little.

    Args:
        dim: width C of one stream, a multiple of fractions.
        streams: number of streams n.
        fractions: number of fractions m per stream.
        branch: the sublayer F ``(..., C) -> (..., C)``.
        constraint: the set of the N × N residual matrix: a name, an alias, or an instance for N streams.
        mapping: ``"per-stream"``, ``"flat"`` or ``"static"``, on the narrow streams.
        layer_index: position of the sublayer; its home stream is ``layer_index % streams``.
        recompute: as in :class:`HyperConnection`.

    Raises:
        ValueError: fractions does not divide dim, an unknown mapping, or what :class:`HyperConnection` raises.

    Reference: Frac-Connections, 2025, arXiv 2503.14125.
    """

    def __init__(
        self,
        dim: int,
        streams: int = 1,
        fractions: int = 2,
        branch: nn.Module | None = None,
        *,
        constraint: str | Constraint = "unconstrained",
        mapping: str = "per-stream",
        layer_index: int = 0,
        recompute: bool | Policy = False,
    ):
        for what, value in (("dim", dim), ("streams", streams), ("fractions", fractions)):
            check_count("FractionalConnection", what, value)
        if dim % fractions:
            raise ValueError(f"FractionalConnection: expected fractions to divide dim={dim}, got {fractions}.")
        if mapping not in MAPPINGS:
            raise ValueError(f"FractionalConnection: unknown mapping {mapping!r}; known: {', '.join(MAPPINGS)}.")
        super().__init__(
            dim // fractions,
            streams * fractions,
            branch,
            constraint=constraint,
            mapping=mapping,
            recompute=recompute,
        )
        self.fractions = fractions
        if self.mapping is not None:
            fractional = FractionalMapping(mapping, self.dim, fractions, self.constraint, layer_index % streams)
            self.mapping = cast(Mapping, fractional)

    def read(self, streams: Tensor) -> tuple[Tensor, Carry]:
        """The branch input ``(..., C)`` and a carry with the narrow streams, from ``(..., n, C)``."""
        pre, carry = self.map_streams(streams)
        if pre is None:
            return streams.squeeze(-2), carry
        return _product(pre, carry.streams).to(streams.dtype).flatten(-2), carry

    def map_streams(self, streams: Tensor) -> tuple[Tensor | None, Carry]:
        """The pre weights ``(..., m, N)`` and a carry with the narrow streams, from ``(..., n, C)``."""
        n = self.streams // self.fractions if self.enabled else 1
        check_streams(self._signature(), streams, n, self.dim * self.fractions)
        if not self.enabled or self.mapping is None:
            return None, Carry(streams, None, None)
        narrow = streams.unflatten(-1, (self.fractions, self.dim)).flatten(-3, -2)
        mapped = self.mapping(narrow)
        return mapped.pre, Carry(narrow, mapped.post, self.constraint(mapped.coordinates))

    def write(self, branch_output: Tensor, carry: Carry) -> Tensor:
        """The new streams ``(..., n, C)`` from the branch output ``(..., C)`` and the carry of :meth:`read`."""
        narrow, post, res = carry
        if post is None or res is None:
            return super().write(branch_output, carry)
        self._check_branch_output(branch_output, (*narrow.shape[:-2], self.dim * self.fractions))
        parts = branch_output.unflatten(-1, (self.fractions, self.dim))
        moved = (_product(res, narrow) + _product(post.mT, parts)).to(narrow.dtype)
        return moved.unflatten(-2, (-1, self.fractions)).flatten(-2)

    def mappings(self, streams: Tensor) -> Mappings:
        """What these streams ``(..., n, C)`` meet: ``pre, post (..., m, N)``, ``res (..., N, N)``."""
        pre, (_, post, res) = self.map_streams(streams)
        maps = self.static_mappings() if pre is None or post is None or res is None else Mappings(pre, post, res)
        return Mappings(*(part.expand(*streams.shape[:-2], *part.shape[-2:]) for part in maps))

    def description(self) -> dict[str, Any]:
        return {**super().description(), "fractions": self.fractions}

    def _signature(self) -> str:
        m = self.fractions
        return f"FractionalConnection(dim={self.dim * m}, streams={self.streams // m}, fractions={m})"


class FractionalMapping(nn.Module):
    """Narrow streams to ``pre, post (..., m, N)`` and coordinates.

    An ordinary mapping has one read and one write; those of the other fractions are further
    coordinate groups, in front of the constraint's.
    """

    def __init__(self, kind: str, dim: int, fractions: int, constraint: Constraint, home: int):
        super().__init__()
        self.fractions, self.streams = fractions, constraint.streams
        pre, post = torch.zeros(fractions, self.streams), torch.eye(fractions).repeat(1, self.streams // fractions)
        pre[:, home * fractions : (home + 1) * fractions] = torch.eye(fractions)
        start = [pre[0], post[0], pre[1:].flatten(), post[1:].flatten(), constraint.identity_coordinates()]
        sizes = (self._further, self._further, *constraint.coordinate_sizes)
        self.inner = MAPPINGS[kind](dim, self.streams, sizes, torch.cat(start), LinearGates())

    @property
    def _further(self) -> int:
        return (self.fractions - 1) * self.streams

    def forward(self, narrow: Tensor) -> Mapped:
        """``(..., N, C/m) -> pre (..., m, N), post (..., m, N), coordinates (..., k)``."""
        return self._by_fraction(self.inner(narrow))

    def static(self) -> Mapped:
        """The same with the dynamic part at zero."""
        return self._by_fraction(self.inner.static())

    def description(self) -> dict[str, Any]:
        """That of the ordinary mapping."""
        return self.inner.description()

    def _by_fraction(self, mapped: Mapped) -> Mapped:
        pre, post, coordinates = mapped.coordinates.tensor_split((self._further, 2 * self._further), dim=-1)
        shape = (self.fractions, self.streams)
        all_pre, all_post = torch.cat([mapped.pre, pre], -1), torch.cat([mapped.post, post], -1)
        return Mapped(all_pre.unflatten(-1, shape), all_post.unflatten(-1, shape), coordinates, mapped.streams)


def _product(matrix: Tensor, streams: Tensor) -> Tensor:
    """``(..., i, j), (..., j, c) -> (..., i, c)`` in ``float32`` or ``float64``."""
    wide = compute_dtype(streams)
    with outside_autocast(streams):
        return torch.einsum("...ij,...jc->...ic", matrix.to(wide), streams.to(wide))
