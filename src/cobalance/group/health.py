"""Whether a member is alive and ready, as probes ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from cobalance.group.membership import Membership
from cobalance.member.session import Phase

if TYPE_CHECKING:
    from cobalance.settings import GroupSettings

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
    """new: not entered. joining: not a member yet. draining: on its way out. left: after a normal end."""
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


class Healthy(Membership):
    """Adds ``health``, for :class:`cobalance.group.group.Group`."""

    settings: GroupSettings
    _entered: bool
    _was_member: bool
    _stop_asked_at: int

    @property
    def health(self) -> Health:
        """Whether this member is alive and ready, and why not. Any thread, at any time."""
        if self.is_copy:
            why = ("this process is a fork of the member's",)
            return Health(group=self.name, state="left", live=False, ready=False, reasons=why)
        state, silent_ms = self._health_state(), self._silent_ms()
        reasons = self._reasons(state)
        is_silent = silent_ms > max(2 * self.settings.session_timeout_ms, LEAST_SILENCE_MS)
        if is_silent:
            reasons.append(f"the thread that keeps it going has done nothing for {silent_ms} ms")
        return Health(
            group=self.name,
            state=state,
            live=not (is_silent or (state == "failed" and not self._runs())),
            ready=state == "member",
            reasons=tuple(reasons),
            member=self._engine.session.member if self._was_member else None,
            held=sum(it.held for it in self._roster.everything()) if self._entered else 0,
            heard_at=self._engine.heard_at if hasattr(self, "_engine") else None,
        )

    def _health_state(self) -> HealthState:
        if self.failed is not None or self._failure is not None:
            return "failed"
        if not self._entered:
            return "new"
        if not hasattr(self, "_engine"):
            return "joining"
        if self._engine.session.phase is Phase.LEFT or self._engine.is_over:
            return "left"
        if self._stop_asked_at or self._engine.session.phase is Phase.LEAVING:
            return "draining"
        return "member" if self._was_member else "joining"

    def _reasons(self, state: HealthState) -> list[str]:
        if state == "failed":
            return [self._why_failed()]
        told = {
            "new": "it is not entered yet",
            "joining": "it has not joined yet",
            "draining": "it is leaving: what it holds is finished and handed over",
            "left": "it has left",
        }
        if state in told:
            return [told[state]]
        is_cut = self._engine.session.phase is Phase.CUT
        return ["the coordinator does not answer, so nothing is worked but what its broker guards"] if is_cut else []

    def _why_failed(self) -> str:
        """The program's own exceptions may quote anything."""
        if self._failure is not None:
            return f"it has failed: {self._failure.message}"
        return f"it has failed: a {type(self.failed).__name__} in {self._tasks.failed_in}"

    def _silent_ms(self) -> int:
        """For how long the engine has done nothing, while it should."""
        return self._engine.silent_ms if self._runs() else 0

    def _runs(self) -> bool:
        return hasattr(self, "_engine") and self._engine.runs
