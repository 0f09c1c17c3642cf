"""Upper bounds on what a group may have. Each protects a guarantee of the coordinator; none is a target.

Names have their own bound (names.py), as have topics (rabbitmq/model/topic.py). Settings declare their own ranges.
"""

from __future__ import annotations

import inspect
import json
from collections.abc import Iterable
from datetime import UTC
from typing import TYPE_CHECKING, TypeVar

from cobalance.errors import UsageError
from cobalance.names import validate_name

if TYPE_CHECKING:
    from collections.abc import Callable, Collection
    from datetime import datetime

T = TypeVar("T")

MAX_RESOURCES = 100_000
"""Per group. After a loss of data all resources must be claimed within one session timeout, and a claim costs up to 50
µs each (5 s on two busy cores). The quotients of ``40_shares.lua`` are exact up to 2^18.
"""

MAX_MEMBERS = 10_000
"""Per group, checked when a process joins: ten times what was measured, and what a paged ``describe`` can still show.
"""

MAX_INTEGER = 2**53 - 1
"""Redis's Lua has only doubles: above this, two adjacent offsets would compare equal."""

STARTING = -2
"""The lowest offset there is, below -1, which is before the first: it is still being found out where to start."""


def check_resources(names: Collection[str]) -> None:
    """Raises UsageError for too many resources."""
    if len(names) > MAX_RESOURCES:
        raise UsageError(
            f"{len(names):,} resources are more than a group may have ({MAX_RESOURCES:,}): use several groups, or larger resources"
        )


def check_members(group: str, present: int) -> None:
    """Raises UsageError if the group has no room for another member."""
    if present >= MAX_MEMBERS:
        raise UsageError(
            f"group {group!r} has {present:,} members already, and may have {MAX_MEMBERS:,}: is some program joining it in a loop?"
        )


def check_integer(what: str, value: object, *, least: int = 0, most: int = MAX_INTEGER) -> None:
    """Raises UsageError unless the value is an integer within these bounds, by default those the coordinator represents
    exactly.
    """
    if type(value) is not int or not least <= value <= most:  # bool is a subclass of int
        bound = "2^53 - 1" if most == MAX_INTEGER else most
        raise UsageError(f"{what} is {value!r}: give a whole number from {least} to {bound}")


def is_number(value: object, least: float, most: float) -> bool:
    """Whether the value is a finite number within these bounds."""
    return isinstance(value, int | float) and not isinstance(value, bool) and least <= value <= most


def check_number(what: str, value: object, *, least: float, most: float) -> None:
    """Raises UsageError unless the value is an integer or float within these bounds."""
    if not is_number(value, least, most):
        raise UsageError(f"{what} is {value!r}: give a number from {least} to {most}")


def check_time(what: str, value: datetime) -> None:
    """Raises UsageError unless the time has a time zone, and a year in UTC: AMQP is given it in UTC."""
    if value.utcoffset() is None:
        raise UsageError(f"{what} is {value}, which has no time zone: give one, e.g. datetime.now(UTC)")
    try:
        value.astimezone(UTC)
    except OverflowError:
        raise UsageError(f"{what} is {value}: give one whose year in UTC is from 1 to 9999") from None


def check_flag(what: str, value: object, error: type[UsageError] = UsageError) -> None:
    """Raises UsageError, or a kind of it, unless the value is a bool."""
    if not isinstance(value, bool):
        raise error(f"{what} is {value!r}: give True or False")


def check_kind(what: str, value: object, kind: type, *, optional: bool = False) -> None:
    """Raises UsageError unless the value is an instance of ``kind``. The message names only the type, since the value
    may be secret.
    """
    if not isinstance(value, kind) and not (optional and value is None):
        wanted = f"a {kind.__name__}{' or None' if optional else ''}"
        raise UsageError(f"{what} is an object of type {type(value).__name__}: give {wanted}")


def parse_json(text: str | bytes, kind: type[T]) -> T:
    """Parses JSON that somebody else wrote. Raises ValueError unless it is of this kind, also if it is nested too deep."""
    try:
        found = json.loads(text)
    except RecursionError as error:
        raise ValueError(str(error)) from None
    if not isinstance(found, kind):
        raise ValueError(f"it is of type {type(found).__name__}")
    return found


def check_callables(**functions: object) -> None:
    """Raises UsageError unless each named value is None or a function of one argument."""
    for what, function in functions.items():
        check_callable(what, function)
        if callable(function):
            check_parameters(what, function, "a list of tenures" if what.startswith("on_") else "a tenure")


def check_parameters(what: str, function: Callable[..., object], argument: str) -> None:
    """Raises UsageError unless the function can be called with a single argument."""
    try:
        # A decorator may pass arguments of its own, so the wrapped function's signature does not count.
        signature = inspect.signature(function, follow_wrapped=False)
    except (TypeError, ValueError):  # built-ins may have no signature
        return
    try:
        signature.bind(None)
    except TypeError as error:
        raise UsageError(
            f"{what} cannot be called with {argument} alone ({error}): give a function of one parameter, or a method of an "
            f"object; functools.partial binds further ones"
        ) from None


def check_callable(what: str, value: object) -> None:
    """Raises UsageError unless the value is None or callable."""
    if value is not None and not callable(value):
        raise UsageError(f"{what} is an object of type {type(value).__name__}: give a function")


def check_names(kind: str, names: object) -> tuple[str, ...]:
    """Validates a list of names and returns it. Raises UsageError, also for a single string, which is not a list of
    letters.
    """
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise UsageError(f"the {kind}s are {names!r}: give a list of names, such as ['{kind}1', '{kind}2']")
    return tuple(validate_name(kind, name) for name in names)
