"""One hyper-connected sublayer: map, constrain, read, branch, write, retract."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from . import fast
from .checks import check_count, check_streams
from .constraints import Constraint, as_constraint
from .description import check_description, encode_description
from .gates import Init
from .mappings import Mapping, as_mapping
from .numerics import compute_dtype
from .outputs import split_first
from .recompute import Policy, as_policy, branch_policy, recomputed
from .retraction import Retraction, as_retraction
from .switch import Switchable


class Mappings(NamedTuple):
    """What a connection applies: ``pre (..., n)``, ``post (..., n)``, ``res (..., n, n)``."""

    pre: Tensor
    post: Tensor
    res: Tensor


class Carry(NamedTuple):
    """What :meth:`HyperConnection.write` needs from :meth:`HyperConnection.read`; the maps are None at n = 1."""

    streams: Tensor
    post: Tensor | None
    res: Tensor | None


class HyperConnection(Switchable):
    """A branch F connected to n residual streams: ``X' = H X + post ⊗ F(Σ_j pre_j X_j)``.

    With one stream it is ``x + F(x)``, without parameters of its own.

    Args:
        dim: width C of one stream.
        streams: number of streams n.
        branch: the sublayer F, its own norm included, any module ``(..., C) -> (..., C)``. None to use
            :meth:`read` and :meth:`write` by hand.
        constraint: the set of the residual matrix: a name of ``list_constraints()``, an alias, or an instance.
        mapping: ``"flat"``, ``"per-stream"``, ``"static"``, an instance, or None for the constraint's own.
        retraction: keeps every stream on a sphere: None, ``"projection"``, ``"cayley"``,
            ``"exponential"``, an order p, or an instance.
        layer_index: position of the sublayer in the network; its home stream is ``layer_index % streams``.
        init: ``"residual"`` starts as the plain residual network, ``"paper"`` at the published values.
        recompute: True keeps of a call only the streams and the products in the branch, and computes the rest
            again in the backward; or a policy of :mod:`hyperconn.recompute` or of one's own. :meth:`read` and
            :meth:`write` by hand are not affected.

    Raises:
        ValueError: unknown names, impossible sizes, or a constraint built for another n.
        TypeError: a recompute that is neither a bool nor a policy.

    Reference: Zhu et al., 2024, arXiv 2409.19606; Xie et al., 2025, arXiv 2512.24880.
    """

    def __init__(
        self,
        dim: int,
        streams: int = 4,
        branch: nn.Module | None = None,
        *,
        constraint: str | Constraint = "sinkhorn",
        mapping: str | Mapping | None = None,
        retraction: str | float | Retraction | None = None,
        layer_index: int = 0,
        init: Init = "residual",
        recompute: bool | Policy = False,
    ):
        super().__init__()
        check_count("HyperConnection", "dim", dim)
        check_count("HyperConnection", "streams", streams)
        self.dim, self.streams = dim, streams
        self.branch = branch
        self.constraint = as_constraint(constraint, streams)
        self.mapping = as_mapping(mapping, dim, self.constraint, layer_index=layer_index, init=init)
        self.retraction = as_retraction(retraction)
        self.recompute = as_policy(recompute)

    def forward(self, streams: Tensor, *args: Any, **kwargs: Any) -> Any:
        """Apply the branch to what it reads of the streams, and write its output back.

        Args:
            streams: ``(..., n, C)``.
            args: further positional arguments of the branch, untouched.
            kwargs: keyword arguments of the branch, untouched.

        Returns:
            Tensor: ``(..., n, C)`` in the dtype of the streams. If the branch returns a tuple, list,
            dict or dataclass, the same structure with its first element replaced by the streams.

        Raises:
            ValueError: streams of another shape (not expanded, say), or a branch that changes the width.
            TypeError: integer streams, no branch, or a branch output without a tensor in first place.
        """
        return recomputed(self.recompute, lambda streams: self._site(streams, *args, **kwargs), streams)

    def _site(self, streams: Tensor, *args: Any, **kwargs: Any) -> Any:
        branch_input, carry = self.read(streams)
        output, rebuild = split_first(self.apply_branch(branch_input, *args, **kwargs))
        return rebuild(self.write(output, carry))

    def apply_branch(self, branch_input: Tensor, *args: Any, **kwargs: Any) -> Any:
        """What the branch returns for an input ``(..., C)``; what is kept of it is as ``recompute`` says."""
        if self.branch is None:
            raise TypeError(f"{self._signature()}: no branch was given. Pass one, or use read() and write() by hand.")
        if torch.compiler.is_compiling():
            return self.branch(branch_input, *args, **kwargs)
        with branch_policy():
            return self.branch(branch_input, *args, **kwargs)

    def read(self, streams: Tensor) -> tuple[Tensor, Carry]:
        """The branch input ``(..., C)`` and what :meth:`write` needs later, from ``(..., n, C)``."""
        pre, carry = self.map_streams(streams)
        if pre is None:
            return streams.squeeze(-2), carry
        branch_input, streams = fast.read(carry.streams, pre)
        return branch_input, Carry(streams, carry.post, carry.res)

    def map_streams(self, streams: Tensor) -> tuple[Tensor | None, Carry]:
        """The pre weights ``(..., n)``, None for a single stream, and what :meth:`write` needs, without reading."""
        n = self.streams if self.enabled else 1
        check_streams(self._signature(), streams, n, self.dim)
        if n == 1 or self.mapping is None:
            return None, Carry(streams, None, None)
        pre, post, coordinates, streams = self.mapping(streams)
        return pre, Carry(streams, post, self.constraint(coordinates))

    def write(self, branch_output: Tensor, carry: Carry) -> Tensor:
        """The new streams ``(..., n, C)`` from the branch output ``(..., C)`` and the carry of :meth:`read`."""
        streams, post, res = carry
        self._check_branch_output(branch_output, (*streams.shape[:-2], streams.shape[-1]))
        if self.retraction is None:
            return _merge(fast.write, streams, post, res, branch_output)
        proposal = _merge(fast.mix, streams, post, res, self.retraction.scale_branch(branch_output))
        return self.retraction(streams, proposal)

    def mappings(self, streams: Tensor) -> Mappings:
        """The weights and the matrix that these streams would meet, for looking at them.

        Args:
            streams: ``(..., n, C)``.

        Returns:
            Mappings: ``pre (..., n)``, ``post (..., n)``, ``res (..., n, n)``, in ``float32`` or ``float64``.
        """
        check_streams(self._signature(), streams, self.streams, self.dim)
        leading, n = streams.shape[:-2], self.streams
        if self.mapping is None:
            one = streams.new_ones(1, dtype=compute_dtype(streams))
            pre, post, res = one, one, one[:, None]
        else:
            pre, post, coordinates, _ = self.mapping(streams)
            res = self.constraint(coordinates)
        return Mappings(pre.expand(*leading, n), post.expand(*leading, n), res.expand(*leading, n, n))

    def static_mappings(self) -> Mappings:
        """The learned weights and matrix with their dynamic part at zero: ``(n,)``, ``(n,)``, ``(n, n)``."""
        if self.mapping is None:
            one = torch.ones(1)
            return Mappings(one, one, one[:, None])
        pre, post, coordinates, _ = self.mapping.static()
        return Mappings(pre, post, self.constraint(coordinates))

    def residual_matrix(self, streams: Tensor | None = None) -> Tensor:
        """H: the static ``(n, n)``, or ``(..., n, n)`` for each token of the streams ``(..., n, C)``."""
        res = (self.static_mappings() if streams is None else self.mappings(streams)).res
        return res.clone()  # never a view of a parameter, which would change under the reader

    def description(self) -> dict[str, Any]:
        """What the numbers of this connection's state dict mean; it travels with them."""
        return {
            "dim": self.dim,
            "streams": self.streams,
            "constraint": self.constraint.description(),
            "mapping": None if self.mapping is None else self.mapping.description(),
            "retraction": None if self.retraction is None else self.retraction.description(),
        }

    def get_extra_state(self) -> Tensor:
        return encode_description(self.description())

    def set_extra_state(self, state: Tensor) -> None:
        check_description(self._signature(), self.description(), state)

    def extra_repr(self) -> str:
        return f"dim={self.dim}, streams={self.streams}"

    def _check_branch_output(self, branch_output: Tensor, expected: tuple[int, ...]) -> None:
        if branch_output.shape != expected:
            raise ValueError(
                f"{self._signature()}: expected a branch output {expected}, got {tuple(branch_output.shape)}. "
                "A branch must keep the shape of its input."
            )

    def _signature(self) -> str:
        return f"{type(self).__name__}(dim={self.dim}, streams={self.streams})"


def _merge(
    merge: Callable[..., Tensor], streams: Tensor, post: Tensor | None, res: Tensor | None, y: Tensor
) -> Tensor:
    """One stream needs no maps: ``x + y``."""
    if post is None or res is None:
        return (streams + y.unsqueeze(-2)).to(streams.dtype)
    return merge(streams, post, res, y)
