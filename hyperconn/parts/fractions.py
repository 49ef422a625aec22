"""Fractions of the feature axis as streams (Frac-Connections)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..checks import check_count, check_streams
from ..connection import Carry, HyperConnection, Mappings
from ..constraints import Constraint
from ..gates import LinearGates
from ..mappings import MAPPINGS, Mapped, Mapping
from ..numerics import compute_dtype, outside_autocast


class FractionalConnection(HyperConnection):
    """A connection whose n streams are cut into m fractions each: ``N = n·m`` narrow streams Z of width C/m.

    Every fraction of the branch input is a read of its own, every fraction of the output a write
    of its own, and the residual matrix is N × N::

        u_f = Σ_j pre[f, j] Z_j        y = F(u_1, …, u_m)        Z' = H Z + Σ_f post[:, f] ⊗ y_f

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
    ):
        for what, value in (("dim", dim), ("streams", streams), ("fractions", fractions)):
            check_count("FractionalConnection", what, value)
        if dim % fractions:
            raise ValueError(f"FractionalConnection: expected fractions to divide dim={dim}, got {fractions}.")
        if mapping not in MAPPINGS:
            raise ValueError(f"FractionalConnection: unknown mapping {mapping!r}; known: {', '.join(MAPPINGS)}.")
        super().__init__(dim // fractions, streams * fractions, branch, constraint=constraint, mapping=mapping)
        self.fractions = fractions
        if self.mapping is not None:
            self.mapping = self._fractional_mapping(MAPPINGS[mapping], layer_index % streams)

    def read(self, streams: Tensor) -> tuple[Tensor, Carry]:
        """The branch input ``(..., C)`` and a carry with the narrow streams, from ``(..., n, C)``."""
        if not self.enabled or self.mapping is None:
            check_streams(self._signature(), streams, 1, self.dim * self.fractions)
            return streams.squeeze(-2), Carry(streams, None, None)
        pre, post, res = self.mappings(streams)
        narrow = self._narrow(streams)
        return _product(pre, narrow).to(streams.dtype).flatten(-2), Carry(narrow, post, res)

    def write(self, branch_output: Tensor, carry: Carry) -> Tensor:
        """The new streams ``(..., n, C)`` from the branch output ``(..., C)`` and the carry of :meth:`read`."""
        narrow, post, res = carry
        if post is None or res is None:
            return super().write(branch_output, carry)
        self._check_branch_output(branch_output, (*narrow.shape[:-2], self.dim * self.fractions))
        parts = branch_output.unflatten(-1, (self.fractions, self.dim))
        moved = (_product(res, narrow) + _product(post, parts)).to(narrow.dtype)
        return moved.unflatten(-2, (-1, self.fractions)).flatten(-2)

    def mappings(self, streams: Tensor) -> Mappings:
        """What these streams ``(..., n, C)`` meet: ``pre (..., m, N)``, ``post (..., N, m)``, ``res (..., N, N)``."""
        narrow = self._narrow(streams)
        maps = super().mappings(narrow) if self.mapping is None else self._maps(self.mapping(narrow))
        return Mappings(*(map_.expand(*narrow.shape[:-2], *map_.shape[-2:]) for map_ in maps))

    def static_mappings(self) -> Mappings:
        """The same with their dynamic part at zero: ``(m, N)``, ``(N, m)``, ``(N, N)``."""
        return super().static_mappings() if self.mapping is None else self._maps(self.mapping.static())

    def description(self) -> dict[str, Any]:
        return {**super().description(), "fractions": self.fractions}

    def _narrow(self, streams: Tensor) -> Tensor:
        """``(..., n, C) -> (..., N, C/m)``."""
        check_streams(self._signature(), streams, self.streams // self.fractions, self.dim * self.fractions)
        return streams.unflatten(-1, (self.fractions, self.dim)).flatten(-3, -2)

    def _fractional_mapping(self, kind: type[Mapping], home: int) -> Mapping:
        """The reads and writes of all fractions but the first are coordinate groups in front of the constraint's."""
        m, n = self.fractions, self.streams // self.fractions
        further = (m - 1) * self.streams
        pre, post = torch.zeros(m, self.streams), torch.eye(m).repeat(1, n)
        pre[:, home * m : (home + 1) * m] = torch.eye(m)
        start = [pre[0], post[0], pre[1:].flatten(), post[1:].flatten(), self.constraint.identity_coordinates()]
        sizes = (further, further, *self.constraint.coordinate_sizes)
        return kind(self.dim, self.streams, sizes, torch.cat(start), LinearGates())

    def _maps(self, mapped: Mapped) -> Mappings:
        further = (self.fractions - 1) * self.streams
        pre, post, coordinates = mapped.coordinates.tensor_split((further, 2 * further), dim=-1)
        by_fraction = (self.fractions, self.streams)
        all_pre = torch.cat([mapped.pre, pre], -1).unflatten(-1, by_fraction)
        all_post = torch.cat([mapped.post, post], -1).unflatten(-1, by_fraction).mT
        return Mappings(all_pre, all_post, self.constraint(coordinates))

    def _signature(self) -> str:
        m = self.fractions
        return f"FractionalConnection(dim={self.dim * m}, streams={self.streams // m}, fractions={m})"


def _product(matrix: Tensor, streams: Tensor) -> Tensor:
    """``(..., i, j), (..., j, c) -> (..., i, c)`` in ``float32`` or ``float64``."""
    wide = compute_dtype(streams)
    with outside_autocast(streams):
        return torch.einsum("...ij,...jc->...ic", matrix.to(wide), streams.to(wide))
