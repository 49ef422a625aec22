"""Drop after the forward what is cheap to compute, and compute it again in the backward.

Maps, matrices and normalised activations cost little to compute and much to keep. What is kept is
the streams that go in, and of a branch what its policy says.
"""

from __future__ import annotations

import contextlib
import functools
import math
import threading
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

Policy = Callable[..., CheckpointPolicy]


def keep_products(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Keep the products with weights, convolutions and fused attention of a branch; the rest is computed again.

    Attention with dropout is computed again too, so that random numbers are drawn in the order of the forward.
    """
    if operation not in _products() or _draws_random_numbers(operation, args, kwargs):
        return CheckpointPolicy.PREFER_RECOMPUTE
    return CheckpointPolicy.MUST_SAVE


def keep_nothing(context: Any, operation: Any, *args: Any, **kwargs: Any) -> CheckpointPolicy:
    """Compute everything again, the branch included: one more forward for the least memory."""
    return CheckpointPolicy.PREFER_RECOMPUTE


def as_policy(recompute: bool | Policy) -> Policy | None:
    """True for :func:`keep_products`, False for None, or a policy as it is.

    Raises:
        TypeError: anything else.
    """
    if isinstance(recompute, bool):
        return keep_products if recompute else None
    if not callable(recompute):
        raise TypeError(
            f"recompute: expected True, False or a policy like hyperconn.recompute.keep_nothing, got {recompute!r}."
        )
    return recompute


def recomputed(policy: Policy | None, function: Callable[..., Any], *tensors: torch.Tensor) -> Any:
    """``function(*tensors)``, keeping the tensors and what the policy says; plainly where nothing is kept anyway."""
    if policy is None or not _keeps_anything():
        return function(*tensors)
    contexts = create_selective_checkpoint_contexts if torch.compiler.is_compiling() else _around_branches
    return checkpoint(function, *tensors, use_reentrant=False, context_fn=functools.partial(contexts, policy))


def segment_length(num_connections: int, streams: int) -> int:
    """How many connections to compute again together: ``√(nL / (n + 2))``.

    Between segments n C numbers per token are kept, within one (n + 2) C for each connection.

    Reference: Xie et al., 2025, arXiv 2512.24880.
    """
    return max(1, round(math.sqrt(streams * num_connections / (streams + 2))))


@contextlib.contextmanager
def branch_policy() -> Iterator[None]:
    """Around a branch: its operations are kept or computed again as the policy says.

    Only here, because a policy that watches operations slows each of them down, and a site has many small ones.
    """
    contexts = getattr(_this_thread, "contexts", None)
    with contextlib.nullcontext() if contexts is None else next(contexts):
        yield


_this_thread = threading.local()


def _around_branches(policy: Policy) -> tuple[Any, Any]:
    """Contexts for the forward and for the recomputation: each branch meets its own two, in the same order."""
    if policy is keep_nothing:
        return contextlib.nullcontext(), contextlib.nullcontext()
    for_recomputation: list[Any] = []
    forward = functools.partial(_forward_contexts, policy, for_recomputation)
    return _Offering(forward), _Offering(lambda: iter(for_recomputation))


def _forward_contexts(policy: Policy, for_recomputation: list[Any]) -> Iterator[Any]:
    while True:
        forward, again = create_selective_checkpoint_contexts(policy)
        for_recomputation.append(again)
        yield forward


class _Offering:
    """Entered, it holds out contexts to the branches that run in this thread; it can be entered again."""

    def __init__(self, contexts: Callable[[], Iterator[Any]]):
        self._contexts = contexts

    def __enter__(self) -> None:
        self._outer = getattr(_this_thread, "contexts", None)
        _this_thread.contexts = self._contexts()

    def __exit__(self, *_: Any) -> None:
        _this_thread.contexts = self._outer


def _keeps_anything() -> bool:
    exporting = getattr(torch.compiler, "is_exporting", bool)
    return torch.is_grad_enabled() and not exporting() and not torch._C._are_functorch_transforms_active()


@functools.cache
def _products() -> frozenset[Any]:
    names = (
        "mm",
        "addmm",
        "convolution",
        "_scaled_dot_product_flash_attention_for_cpu",
        "_scaled_dot_product_flash_attention",
        "_scaled_dot_product_efficient_attention",
        "_scaled_dot_product_cudnn_attention",
    )
    return frozenset(getattr(torch.ops.aten, name).default for name in names if hasattr(torch.ops.aten, name))


def _draws_random_numbers(operation: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    for position, argument in enumerate(operation._schema.arguments):
        if argument.name == "dropout_p":
            given = args[position] if position < len(args) else kwargs.get("dropout_p", argument.default_value)
            return bool(given)
    return False
