"""How much of everything a group may have. Each bound keeps a promise of the coordinator's; none is a target.

Names have their own bound (names.py), topics theirs (rabbitmq/model/topic.py), and settings say their ranges themselves.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from typing import TYPE_CHECKING

from cobalance.errors import UsageError
from cobalance.names import validate_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

MAX_RESOURCES = 100_000
"""Per group: all of them have to be claimed within one session timeout when Redis has lost its data, and a claim takes it up to
50 µs (5 s on two busy cores). The quotients of ``40_shares.lua`` are exact up to 2^18.
"""

MAX_MEMBERS = 10_000
"""Per group, looked at when a process enters: ten times what was measured, and what a page-wise ``describe`` can still show."""

MAX_INTEGER = 2**53 - 1
"""Redis's Lua has no integers but these: above, two offsets would look the same."""


def check_resources(names: Collection[str]) -> None:
    """Raises UsageError when there are too many resources."""
    if len(names) > MAX_RESOURCES:
        raise UsageError(
            f"{len(names):,} resources are more than a group may have ({MAX_RESOURCES:,}): use several groups, or larger resources"
        )


def check_members(group: str, present: int) -> None:
    """Raises UsageError when a group has no room for another member."""
    if present >= MAX_MEMBERS:
        raise UsageError(
            f"group {group!r} has {present:,} members already, and may have {MAX_MEMBERS:,}: is some program joining it in a loop?"
        )


def check_integer(what: str, value: object, *, least: int = 0, most: int = MAX_INTEGER) -> None:
    """Raises UsageError unless the value is a whole number in these bounds, by default one that the coordinator can tell from its
    neighbours.
    """
    if type(value) is not int or not least <= value <= most:  # a bool is no number here
        bound = "2^53 - 1" if most == MAX_INTEGER else most
        raise UsageError(f"{what} is {value!r}: give a whole number from {least} to {bound}")


def is_number(value: object, least: float, most: float) -> bool:
    """Whether it is a finite number in these bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def check_number(what: str, value: object, *, least: float, most: float) -> None:
    """Raises UsageError unless the value is a number in these bounds, whole or not."""
    if not is_number(value, least, most):
        raise UsageError(f"{what} is {value!r}: give a number from {least} to {most}")


def check_kind(what: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Raises UsageError unless the value is of this class. Values may hold secrets, so only their own class is told."""
    if not isinstance(value, kind) and not (optional and value is None):
        wanted = f"a {kind.__name__}{' or None' if optional else ''}"
        raise UsageError(f"{what} is an object of type {type(value).__name__}: give {wanted}")


def check_callables(**functions: object) -> None:
    """Raises UsageError unless each, by the names they have, is a function that takes one argument, or is not given."""
    for what, function in functions.items():
        check_callable(what, function)
        if callable(function):
            check_parameters(what, function, "a list of tenures" if what.startswith("on_") else "a tenure")


def check_parameters(what: str, function: Callable[..., object], argument: str) -> None:
    """Raises UsageError for a function that cannot be called with this argument alone."""
    try:
        # Not what a decorator wraps: it may give arguments of its own.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # that of a built-in may not be known
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise UsageError(
            f"{what} cannot be called with {argument} alone ({error}): give a function of one parameter, or a method of an "
            f"object; functools.partial binds further ones"
        ) from None


def check_callable(what: str, value: object) -> None:
    """Raises UsageError unless the value is a function, or is not given."""
    if value is not None and not callable(value):
        raise UsageError(f"{what} is an object of type {type(value).__name__}: give a function")


def check_names(kind: str, names: object) -> tuple[str, ...]:
    """Returns the names in a list, or raises UsageError. A single string is no list of its letters."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise UsageError(f"the {kind}s are {names!r}: give a list of names, such as ['{kind}1', '{kind}2']")
    return tuple(validate_name(kind, name) for name in names)
