"""How much of everything a group may have. Each bound keeps a promise of the coordinator's; none is a target.

Names have their own bound (names.py), topics theirs (rabbitmq/topic.py), and settings say their ranges themselves.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Collection

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


def check_integer(what: str, value: object, *, least: int = 0) -> None:
    """Raises UsageError unless the value is a whole number that the coordinator can tell from its neighbours."""
    if type(value) is not int or not least <= value <= MAX_INTEGER:  # a bool is no number here
        raise UsageError(f"{what} is {value!r}: give a whole number from {least} to 2^53 - 1")
