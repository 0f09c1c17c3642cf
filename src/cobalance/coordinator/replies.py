"""What the coordinator answers, as values."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, cast

import attrs

from cobalance.errors import ProtocolMismatch

if TYPE_CHECKING:
    from cobalance.coordinator.transport import Reply as RawReply

Status = Literal["OK", "REJOIN", "UNKNOWN", "ENDED", "STALE", "INSTANCE_IN_USE", "PROTOCOL"]

ChangeKind = Literal["hold", "revoke", "lost"]


@attrs.frozen
class Change:
    """The present state of one resource for the member that asked."""

    kind: ChangeKind
    resource: str
    token: int
    """Of the tenure; for ``lost``, one above the tenure's."""
    deadline_ms: int = 0
    """On the group's clock, for ``revoke``."""
    committed: int | None = None


@attrs.frozen(kw_only=True)
class CoordinatorReply:
    """An answer to any verb."""

    status: Status
    now_ms: int = 0
    incarnation: int = 0
    version: int = 0
    cursor: int = 0
    session_timeout_ms: int = 0
    heartbeat_interval_ms: int = 0
    due_ms: int = 0
    """When somebody must call again for the group's sake."""
    coordinator: bool = False
    more: bool = False
    """Work is waiting that a next call would do or bring."""
    recovering_ms: int = 0
    changes: tuple[Change, ...] = ()
    results: tuple[str, ...] = ()
    rows: tuple[tuple[str, ...], ...] = ()
    """Of ``describe`` only."""


def _text(raw: RawReply) -> str:
    if isinstance(raw, bytes):
        return raw.decode()
    return "" if raw is None else str(raw)


def _change(raw: RawReply) -> Change:
    kind, resource, token, deadline, committed = cast("list[RawReply]", raw)
    return Change(
        cast("ChangeKind", _text(kind)),
        _text(resource),
        int(_text(token)),
        int(_text(deadline)),
        None if committed is None else int(_text(committed)),
    )


def decode(raw: RawReply) -> CoordinatorReply:
    """Reads a script's reply.

    Raises:
        ProtocolMismatch: the group was written by an incompatible version of Cobalance.
    """
    fields = cast("list[RawReply]", raw)
    status = cast("Status", _text(fields[0]))
    if status == "PROTOCOL":
        raise ProtocolMismatch(
            "this group speaks another protocol: all members of a group must run compatible versions of cobalance"
        )
    numbers = [int(_text(value)) for value in fields[1:11]]
    changes, results = cast("list[RawReply]", fields[11]), cast("list[RawReply]", fields[12])
    return CoordinatorReply(
        status=status,
        now_ms=numbers[0],
        incarnation=numbers[1],
        version=numbers[2],
        cursor=numbers[3],
        session_timeout_ms=numbers[4],
        heartbeat_interval_ms=numbers[5],
        due_ms=numbers[6],
        coordinator=numbers[7] == 1,
        more=numbers[8] == 1,
        recovering_ms=numbers[9],
        changes=tuple(_change(change) for change in changes),
        results=tuple(_text(word) for word in results if not isinstance(word, list)),
        rows=tuple(tuple(_text(word) for word in row) for row in results if isinstance(row, list)),
    )
