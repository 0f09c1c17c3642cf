"""Whether a member is alive and ready, as probes ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from cobalance.errors import CobalanceError
from cobalance.group.tasks import ENTRY
from cobalance.member.session import Phase

if TYPE_CHECKING:
    from cobalance.group.membership import Membership

HealthState = Literal["new", "joining", "member", "draining", "left", "failed"]

LEAST_SILENCE_MS = 10_000
"""A busy machine may keep a thread waiting for long, and what is not alive is killed."""


@attrs.frozen(kw_only=True)
class Health:
    """The answer to probes.

    Readiness is about the program: it has joined, and is not leaving. It lasts through rebalances, outages of servers
    and a lack of partitions, since a rollout that waited for a partition would never end: the old process has it until
    it is stopped. Liveness is about the thread that keeps the member going, and nothing else: restarting a process does
    not mend its servers.
    """

    group: str
    state: HealthState
    """new: not entered. joining: not a member yet. draining: on its way out. left: after a normal end. failed: after
    another end, or not entered at all.
    """
    live: bool
    """Whether a restart would not help."""
    ready: bool
    """Whether it has joined, and has neither failed nor begun to leave."""
    reasons: tuple[str, ...] = ()
    """Why it is not live, or not ready; and, though it is both, what is out of the ordinary."""
    member: str | None = None
    """Its member id."""
    held: int = 0
    """How many resources it holds."""
    heard_at: float | None = None
    """When the coordinator last answered, in seconds since 1970."""


def health_of(member: Membership, session_timeout_ms: int) -> Health:
    """Whether a member is alive and ready, and why not. Any thread, at any time."""
    if member.is_copy:
        why = ("this process is a fork of the member's",)
        return Health(group=member.name, state="left", live=False, ready=False, reasons=why)
    state, runs = _state(member), member.is_open and member.engine.runs and not member.engine.is_over
    silent_ms = member.engine.silent_ms if runs else 0  # the engine has done nothing, while it should
    reasons = _reasons(member, state)
    is_silent = silent_ms > max(2 * session_timeout_ms, LEAST_SILENCE_MS)
    if is_silent:
        reasons.append(f"the thread that keeps it going has done nothing for {silent_ms} ms")
    return Health(
        group=member.name,
        state=state,
        live=not (is_silent or (state == "failed" and not runs)),
        ready=state == "member",
        reasons=tuple(reasons),
        member=member.engine.session.member if member.was_member else None,
        held=sum(it.held for it in member.roster.everything()),
        heard_at=member.engine.heard_at if member.is_open else None,
    )


def _state(member: Membership) -> HealthState:
    if member.tasks.failed is not None or member.failure is not None:
        return "failed"
    if not member.is_entered:
        return "new"
    if not member.is_open:
        return "joining" if member.tasks.first_error is None else "left"
    phase = member.engine.session.phase
    if phase is Phase.LEFT or member.engine.is_over:
        return "left"
    if member.stop_asked_at or phase is Phase.LEAVING:
        return "draining"
    return "member" if member.was_member else "joining"


def _reasons(member: Membership, state: HealthState) -> list[str]:
    if state == "failed":
        return [_why_failed(member)]
    meanings = {
        "new": "it is not entered yet",
        "joining": "it has not joined yet",
        "draining": "it is leaving: what it holds is finished and handed over",
        "left": "it has left",
    }
    if state in meanings:
        return [meanings[state]]
    is_cut = member.engine.session.phase is Phase.CUT
    return ["the coordinator does not answer, so nothing is worked but what its broker guards"] if is_cut else []


def _why_failed(member: Membership) -> str:
    """The program's own exceptions may quote anything."""
    if member.failure is not None:
        return f"it has failed: {member.failure.message}"
    failed = member.tasks.failed
    if member.tasks.failed_in is ENTRY:
        return f"it was not entered: {failed if isinstance(failed, CobalanceError) else _a(failed)}"
    return f"it has failed: {_a(failed)} in {member.tasks.failed_in}"


def _a(error: object) -> str:
    return f"a {type(error).__name__}"
