"""Values of the production classes as hashable skeletons plus the numbers in them, and back.

A skeleton is the whole value with every token, version, incarnation, request number and time replaced by a slot. Two
values that differ only in those numbers share a skeleton, and renaming or ageing works on the numbers alone.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from enum import Enum
from functools import cache
from typing import Any

import attrs

from cobalance.coordinator.requests import Request
from cobalance.member.holding import Holding, State
from cobalance.member.holdings import Holdings
from cobalance.member.lease import Lease
from cobalance.member.outstanding import Line
from cobalance.member.session import Session
from cobalance.settings import GroupSettings, MemberSettings
from proof.explore.scope import GROUP_MS, MEMBER_MS, TICK_MS

TOKEN, VERSION, STORE_VERSION, INCARNATION, GROUP_TIME, MEMBER_TIME, FREED = "K", "V", "W", "I", "T", "M", "F"
LOSABLE = "L"
"""The kind of no value: it marks a state in which Redis may still lose its data."""
NUMBER, CURSOR, NEWS = "N:", "Q:", "C:"
"""Kinds of numbers. Those that end in a colon are followed by the member they belong to: request numbers are compared
with that member's only, and so are the versions up to which it has heard its changes (cursor) and at which there were
some (news).
"""

HIGHEST_TOKEN = GROUP_MS * 1000 + 1_000_000
"""Stands for the highest token known to a member or the group, whatever it is: the next one is above it."""

SLOT = ("slot",)
_LEAST_TOKEN = 10**15
_VERSIONS = {"_seen": VERSION, "seen": VERSION, "_cursor": CURSOR, "cursor": CURSOR, "_hinted": NEWS}
_MEASURED_FROM = frozenset({"_first_sent_at", "_sent_at", "asked_at", "_refused_since", "_refused_at"})
"""Times from which a member measures. Of others it only matters whether they have come, so past ones become now."""
_FAR_MS = 100_000_000
_ATOMS = frozenset({type(None), bool, str, GroupSettings, MemberSettings})

Skeleton = Any
Numbers = tuple[int, ...]
Kinds = tuple[str, ...]


class TermSession(Session):
    """Stores the tokens it holds one by one: they can be renamed in a state, unlike their sum."""

    def _on_record(self) -> tuple[int, ...]:
        return self.holdings.tokens()


class Encoder:
    """Takes one value apart."""

    def __init__(self) -> None:
        self.numbers: list[int] = []
        self.kinds: list[str] = []
        self._member = ""

    def encode(self, value: Any, field: str = "") -> Skeleton:
        """Returns the skeleton; the numbers taken out of it are in `numbers` and `kinds`."""
        kind = type(value)
        if kind is int:
            return self._number(value, field)
        if kind in _ATOMS or isinstance(value, Enum):
            return value
        if kind is tuple or kind is list:
            return (kind, tuple([self.encode(part, field) for part in value]))
        if kind is dict:
            return (dict, tuple([(self.encode(key), self.encode(part, field)) for key, part in value.items()]))
        return self._object(value)

    def _number(self, value: int, field: str) -> Skeleton:
        kind = _kind(value, field, self._member)
        if kind is None:
            return value
        if kind == MEMBER_TIME and field not in _MEASURED_FROM:
            value = next_tick(value)
        self.numbers.append(value)
        self.kinds.append(kind)
        return SLOT

    def _object(self, value: Any) -> Skeleton:
        fields = _fields(value)
        if isinstance(value, Line):
            self._member = value.member
        if isinstance(value, Request):
            self._member = value.header.member
        _DROP_DEAD.get(type(value), _keep)(value, fields)
        return (type(value), tuple([(name, self.encode(part, name)) for name, part in fields.items()]))


def next_tick(value: int) -> int:
    """When a member that checks its clock at each tick sees that this time has come. Past times become now."""
    return MEMBER_MS + max(0, -(-(value - MEMBER_MS) // TICK_MS)) * TICK_MS


def _kind(value: int, field: str, member: str) -> str | None:
    kind = _VERSIONS.get(field)
    if value < 0 or (value == 0 and kind != CURSOR):
        return None
    if kind is not None:
        return kind + member if kind[-1] == ":" else kind
    if field in {"_number", "number"}:
        return NUMBER + member
    if field == "incarnation":
        return INCARNATION
    if value >= _LEAST_TOKEN:
        return None if value == HIGHEST_TOKEN else TOKEN
    return MEMBER_TIME if abs(value - MEMBER_MS) < _FAR_MS else None


def _fields(value: Any) -> dict[str, Any]:
    names = _names(type(value))  # type: ignore[arg-type]  # a class is hashable, whatever its instances are
    return dict(vars(value)) if names is None else {name: getattr(value, name) for name in names}


@cache
def _names(kind: type) -> tuple[str, ...] | None:
    """The fields of such values; None for a class whose instances know them."""
    return tuple(field.name for field in attrs.fields(kind)) if attrs.has(kind) else None


def decode(skeleton: Skeleton, numbers: Iterator[int]) -> Any:
    if skeleton is SLOT:
        return next(numbers)
    if not isinstance(skeleton, tuple):
        return skeleton
    kind, parts = skeleton
    if kind is tuple or kind is list:
        return kind([decode(part, numbers) for part in parts])
    if kind is dict:
        return {decode(key, numbers): decode(part, numbers) for key, part in parts}
    value = object.__new__(kind)
    put = object.__setattr__
    for name, part in parts:
        put(value, name, decode(part, numbers) if isinstance(part, tuple) else part)
    return value


# Values that can no longer be read mean nothing: they become constants, so that states that differ only there are the
# same.


def _keep(_value: Any, _fields_of_it: dict[str, Any]) -> None:
    return


def _session(session: Session, fields: dict[str, Any]) -> None:
    fields["_out"], fields["_now"] = [], MEMBER_MS
    due = fields["_due_at"]
    if not fields["_is_coordinator"] or due is None or due >= MEMBER_MS + _FAR_MS:
        fields["_due_at"] = None
    if session.line.outstanding is None:
        lease = session.lease
        lease._first_sent_at = lease._sent_at = MEMBER_MS  # noqa: SLF001
        lease._failures = 0  # noqa: SLF001


def _lease(_lease_of_it: Lease, fields: dict[str, Any]) -> None:
    fields["_failures"] = 0  # it decides how early within the next tick the retry comes
    for name in ("_first_sent_at", "_sent_at"):
        fields[name] = max(fields[name], MEMBER_MS - fields["session_ms"])


def _line(line: Line, fields: dict[str, Any]) -> None:
    if line._hinted <= line._cursor:  # noqa: SLF001
        fields["_hinted"] = 0


def _holdings(_holdings_of_it: Holdings, fields: dict[str, Any]) -> None:
    fields["out"] = []
    fields["highest_token"] = HIGHEST_TOKEN if fields["highest_token"] else 0
    fields["_by_name"] = dict(sorted(fields["_by_name"].items()))
    fields["_index"], fields["_touched"] = None, []  # rebuilt on demand


def _holding(holding: Holding, fields: dict[str, Any]) -> None:
    if holding.state is not State.ABORTED:
        fields["stop_by"] = 0
    if holding.stop_by:
        fields["stop_by"] = MEMBER_MS + _FAR_MS // 2


_DROP_DEAD: dict[type, Callable[[Any, dict[str, Any]], None]] = {
    TermSession: _session,
    Lease: _lease,
    Line: _line,
    Holdings: _holdings,
    Holding: _holding,
}
