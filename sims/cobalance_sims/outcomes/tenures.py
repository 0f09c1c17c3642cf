"""Resources as the events show them: who owns which, what is being handed over, and for how long it had no owner."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    from cobalance_sims.outcomes.event import Event


@attrs.define(eq=False)
class Seat:
    """One resource."""

    owner: str = ""
    token: int = 0
    held_at: int | None = None
    revoking_at: int | None = None
    open: dict[str, Any] | None = None
    """The handover that waits for a new owner."""
    first_owned_at: int | None = None
    free_since_ms: int | None = None
    """Since when it has had no owner, in time with members; ``None`` while it has one, or before its first one."""
    is_halted: bool = False
    is_removing: bool = False


def ended(event: Event, seat: Seat) -> dict[str, Any]:
    """Begins a handover at the end of a tenure. The event may know what the seat does not."""
    is_known = seat.owner == event.member and seat.token == (event.token or 0)
    revoking_at = seat.revoking_at if is_known else None
    if revoking_at is None and event.drain_ms:
        revoking_at = event.at_ms - event.drain_ms
    silent = event.silent_since_ms
    return {
        "run": event.run,
        "source": event.source,
        "handover_id": event.handover_id or event.token or 0,
        "resource": event.resource,
        "giver": event.member,
        "how": event.kind,
        "reason": event.reason or None,
        "held_at_ms": seat.held_at if is_known else None,
        "revoking_at_ms": revoking_at,
        "deadline_ms": event.deadline_ms,
        "ended_at_ms": event.at_ms,
        "drain_ms": None if revoking_at is None else max(0, event.at_ms - revoking_at),
        "silent_ms": None if silent is None else max(0, event.at_ms - silent),
        "handled": event.handled,
        "busy_ms": event.busy_ms,
        "late_ms": event.late_ms,
        "duplicates_at_risk": event.unacked,
        "false_expiry": event.alive,
    }


def cancelled(event: Event, seat: Seat) -> dict[str, Any]:
    """A cancelled revocation: the resource stayed where it was."""
    row = ended(event, seat)
    row["taker"], row["false_expiry"] = event.member, None
    return row


def taken(row: dict[str, Any], taker: str | None, at_ms: int) -> dict[str, Any]:
    """Completes the handover."""
    row["taker"], row["granted_at_ms"] = taker, at_ms
    row["gap_ms"] = max(0, at_ms - row["ended_at_ms"])
    return row
