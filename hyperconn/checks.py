"""Errors at the two doors, constructor and forward: who, what was expected, what came, what to try."""

from __future__ import annotations

from torch import Tensor


def check_count(who: str, what: str, value: int) -> None:
    """A whole number of at least 1.

    Raises:
        TypeError: not an integer.
        ValueError: less than 1.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{who}: expected {what} to be an integer, got {value!r}.")
    if value < 1:
        raise ValueError(f"{who}: expected {what} >= 1, got {value}.")


def check_streams(who: str, tensor: Tensor, streams: int | None = None, dim: int | None = None) -> None:
    """Floating-point streams ``(..., n, C)``; a size that is None may be anything.

    Raises:
        ValueError: another shape.
        TypeError: an integer dtype.
    """
    if tensor.dim() < 2 or not (_is(tensor.shape[-2], streams) and _is(tensor.shape[-1], dim)):
        expected = f"(..., {'n' if streams is None else streams}, {'C' if dim is None else dim})"
        raise ValueError(f"{who}: expected {expected}, got {tuple(tensor.shape)}. Was the input expanded?")
    check_floating(who, tensor)


def _is(size: int, expected: int | None) -> bool:
    return expected is None or size == expected


def check_floating(who: str, tensor: Tensor) -> None:
    """A real floating-point tensor.

    Raises:
        TypeError: an integer, boolean or complex dtype.
    """
    if not tensor.is_floating_point():
        raise TypeError(f"{who}: expected a floating-point tensor, got {tensor.dtype}. Embed or cast it first.")
