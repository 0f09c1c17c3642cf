"""The coordinator's replies as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal, cast

import attrs

from cobalance.errors import ProtocolMismatch

if TYPE_CHECKING:
    from cobalance.coordinator.transport import Reply as RawReply

Status = Literal[
    "OK", "REJOIN", "UNKNOWN", "ENDED", "STALE", "INSTANCE_IN_USE", "REPAIRING", "SUBSCRIPTIONS", "PROTOCOL", "LATE"
]

ChangeKind = Literal["hold", "revoke", "lost"]


@attrs.frozen
class Change:
    """The current state of one resource, for the member that asked."""

    kind: ChangeKind
    resource: str
    token: int
    """The tenure's token; for ``lost``, one above it."""
    deadline_ms: int = 0
    """For ``revoke``, in group time."""
    committed: int | None = None
    tries: int = 0
    """For ``hold``: how often in a row it was given up before."""


@attrs.frozen(kw_only=True)
class CoordinatorReply:
    status: Status
    now_ms: int = 0
    incarnation: int = 0
    version: int = 0
    cursor: int = 0
    session_timeout_ms: int = 0
    heartbeat_interval_ms: int = 0
    due_ms: int = 0
    """When a member has to call again on behalf of the group."""
    coordinator: bool = False
    head: bool = False
    """Whether the member is elected to look for its subscription's resources."""
    more: bool = False
    """Whether another call would do or return more."""
    recovering_ms: int = 0
    changes: tuple[Change, ...] = ()
    results: tuple[str, ...] = ()
    owner_until_ms: int | None = None
    """For ``INSTANCE_IN_USE`` only: when the session of the instance id's owner ends, unless the owner renews it. In
    group time; None where a coordinator does not say so.
    """
    owner: str = ""
    """For ``INSTANCE_IN_USE`` only: the member id of the instance id's owner, if the coordinator says so."""
    rows: tuple[tuple[str, ...], ...] = ()
    """For ``describe`` only."""


def _text(raw: RawReply) -> str:
    if isinstance(raw, bytes):
        return raw.decode()
    return "" if raw is None else str(raw)


def _row(raw: Any) -> tuple[str, ...]:
    """Rows come by the ten thousand, and have nothing but words."""
    try:
        return tuple([word.decode() for word in raw])
    except AttributeError:
        return tuple(map(_text, raw))


def _change(raw: Any) -> Change:
    word, resource, token, number, committed = raw
    kind = cast("ChangeKind", _text(word))
    return Change(
        kind,
        _text(resource),
        int(token),
        0 if kind == "hold" else int(number),
        None if committed is None else int(committed),
        int(number) if kind == "hold" else 0,
    )


def decode(raw: RawReply) -> CoordinatorReply:
    """Parses a script's reply.

    Raises:
        ProtocolMismatch: the group was written by an incompatible version of Cobalance.
    """
    fields: Any = raw
    status = cast("Status", _text(fields[0]))
    if status == "PROTOCOL":
        raise ProtocolMismatch(
            "this group speaks another protocol: all members of a group must run compatible versions of cobalance"
        )
    numbers = map(int, fields[1:11])
    now, incarnation, version, cursor, session, heartbeat, due, elected, more, recovering = numbers
    changes, results = fields[11:]
    is_in_use = status == "INSTANCE_IN_USE"
    return CoordinatorReply(
        status=status,
        now_ms=now,
        incarnation=incarnation,
        version=version,
        cursor=cursor,
        session_timeout_ms=session,
        heartbeat_interval_ms=heartbeat,
        due_ms=due,
        coordinator=elected & 1 == 1,
        head=elected & 2 == 2,
        more=more == 1,
        recovering_ms=recovering,
        changes=tuple(map(_change, changes)),
        owner_until_ms=int(results[0]) if is_in_use and results else None,
        owner=_text(results[1]) if is_in_use and len(results) > 1 else "",
        results=tuple([_text(word) for word in results if type(word) is not list]) if results and not is_in_use else (),
        rows=tuple([_row(row) for row in results if type(row) is list]) if results else (),
    )
