"""Constraints by name: the published short names and the names of the sets."""

from __future__ import annotations

import difflib
from collections.abc import Callable
from typing import Any, TypeVar

from .base import Constraint

ConstraintClass = TypeVar("ConstraintClass", bound=type[Constraint])

_CLASS_OF_NAME: dict[str, type[Constraint]] = {}


def register_constraint(name: str, *aliases: str) -> Callable[[ConstraintClass], ConstraintClass]:
    """Class decorator that makes a constraint available by name.

    Args:
        name: the name that :func:`list_constraints` shows.
        aliases: further names for the same class, e.g. the paper's own.

    Raises:
        TypeError: the decorated object is not a subclass of :class:`Constraint`.
        ValueError: a name is taken by another class.
    """

    def register(cls: ConstraintClass) -> ConstraintClass:
        if not (isinstance(cls, type) and issubclass(cls, Constraint)):
            raise TypeError(f"register_constraint({name!r}): expected a subclass of Constraint, got {cls!r}.")
        for known_as in (name, *aliases):
            taken_by = _CLASS_OF_NAME.get(_normalized(known_as), cls)
            if taken_by.__qualname__ != cls.__qualname__ or taken_by.__module__ != cls.__module__:
                raise ValueError(
                    f"register_constraint({known_as!r}): the name belongs to {taken_by.__name__}; "
                    f"choose another for {cls.__name__}."
                )
        cls.name, cls.aliases = name, aliases
        _CLASS_OF_NAME.update({_normalized(known_as): cls for known_as in (name, *aliases)})
        return cls

    return register


def list_constraints() -> tuple[str, ...]:
    """Names of all registered constraints, without aliases, in the order of registration."""
    return tuple(dict.fromkeys(cls.name for cls in _CLASS_OF_NAME.values()))


def constraint_class(name: str) -> type[Constraint]:
    """The class registered under a name or an alias.

    Raises:
        ValueError: nothing is registered under that name; the nearest name is suggested.
    """
    if not isinstance(name, str):
        raise TypeError(f"constraint: expected a name or a Constraint instance, got {name!r}.")
    try:
        return _CLASS_OF_NAME[_normalized(name)]
    except KeyError:
        near = difflib.get_close_matches(_normalized(name), _CLASS_OF_NAME, n=1)
        hint = f" Did you mean {near[0]!r}?" if near else ""
        known = ", ".join("/".join((cls.name, *cls.aliases)) for cls in dict.fromkeys(_CLASS_OF_NAME.values()))
        raise ValueError(f"unknown constraint {name!r}.{hint} Known: {known}.") from None


def make_constraint(name: str, streams: int, **options: Any) -> Constraint:
    """A constraint chosen by name.

    Args:
        name: a name of :func:`list_constraints` or an alias (``"mhc-lite"`` is ``"permutation"``).
        streams: number of streams n.
        options: keyword arguments of the constraint's class.

    Raises:
        ValueError: unknown name, or a number of streams that the constraint does not take.
    """
    return constraint_class(name)(streams, **options)


def as_constraint(constraint: str | Constraint, streams: int) -> Constraint:
    """A constraint by name, or the given instance if it was built for this number of streams.

    Raises:
        ValueError: unknown name, or an instance for another n.
        TypeError: neither a name nor a Constraint.
    """
    if not isinstance(constraint, Constraint):
        return make_constraint(constraint, streams)
    if constraint.streams != streams:
        raise ValueError(
            f"constraint {type(constraint).__name__} was built for {constraint.streams} streams, expected "
            f"{streams}. Build it with streams={streams}, or pass its name."
        )
    return constraint


def _normalized(name: str) -> str:
    return name.lower().replace("_", "-").strip()
