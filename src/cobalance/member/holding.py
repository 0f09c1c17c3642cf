"""One tenure of one resource, as its member sees it.

A tenure begins when a reply says *hold* and ends when the coordinator knows that it has ended. In between it is worked
(HELD), asked back (DRAINING), past the point of no return because ``on_revoked`` runs (CLOSING), finished or given up
but not yet reported (ENDED), and reported (RELEASING). A tenure that still has work can be aborted: ABORTED waits until
the work has really stopped, so that nothing is reported free while it is still in use. What has not stopped in time is
reported all the same, as an overlap, and whatever its work reports afterwards is ignored.

                    revoke              begun               drained             send               OK | FENCED
    hold ──► HELD ────────► DRAINING ────────► CLOSING ────────► ENDED ────────► RELEASING ────────► (forgotten)
              ▲                │                                   ▲
              └──── keep ──────┘       abort: HELD, DRAINING, CLOSING ──► ABORTED ── stopped ──┘
              lost: from anywhere ──► (forgotten)
"""

from __future__ import annotations

from enum import Enum

import attrs

from cobalance.coordinator.requests import Effort
from cobalance.errors import IllegalTransition


class State(Enum):
    HELD = "held"  # Worked. Left by a revocation, by a drain that finished unasked, or by an abort.
    DRAINING = "draining"  # Delivery has stopped, the handler finishes. A cancelled revocation returns it to HELD.
    CLOSING = "closing"  # on_revoked runs or has run. Left only by finishing or by an abort.
    ABORTED = "aborted"  # Stopping at once. Waits until it has, but not forever: what does not stop may overlap.
    ENDED = "ended"  # Not worked any more. Waits to be released.
    RELEASING = "releasing"  # The release is under way, and repeated unchanged until it is answered.
    GONE = "gone"  # Forgotten.


class Step(Enum):
    """The events of a tenure."""

    KEEP = "keep"  # a reply says hold
    REVOKE = "revoke"  # a reply says revoke
    BEGIN = "begin"  # on_revoked is about to run
    FINISH = "finish"  # drained
    ABORT = "abort"  # by the member's own clock: deadline, lease or hung handler
    STOP = "stop"  # the work has stopped unfinished
    SEND = "send"  # the release is sent
    ANSWER = "answer"  # the release was accepted, or refused as fenced
    RETRY = "retry"  # the release was refused for another reason: give up the tenure instead
    LOSE = "lose"  # a reply says lost


_S, _E = State, Step

TABLE: dict[State, dict[Step, State]] = {
    _S.HELD: {
        _E.KEEP: _S.HELD,
        _E.REVOKE: _S.DRAINING,
        _E.BEGIN: _S.CLOSING,  # it began before the cancellation reached it
        _E.FINISH: _S.ENDED,
        _E.ABORT: _S.ABORTED,
        _E.STOP: _S.ENDED,
        _E.LOSE: _S.GONE,
    },
    _S.DRAINING: {
        _E.KEEP: _S.HELD,
        _E.REVOKE: _S.DRAINING,
        _E.BEGIN: _S.CLOSING,
        _E.FINISH: _S.ENDED,
        _E.ABORT: _S.ABORTED,
        _E.STOP: _S.ENDED,
        _E.LOSE: _S.GONE,
    },
    _S.CLOSING: {
        _E.KEEP: _S.CLOSING,
        _E.REVOKE: _S.CLOSING,
        _E.FINISH: _S.ENDED,
        _E.ABORT: _S.ABORTED,
        _E.STOP: _S.ENDED,
        _E.LOSE: _S.GONE,
    },
    _S.ABORTED: {
        _E.KEEP: _S.ABORTED,
        _E.REVOKE: _S.ABORTED,
        _E.BEGIN: _S.ABORTED,  # the abort crossed a drain that was just closing
        _E.FINISH: _S.ENDED,
        _E.STOP: _S.ENDED,
        _E.LOSE: _S.GONE,
    },
    _S.ENDED: {
        _E.KEEP: _S.ENDED,
        _E.REVOKE: _S.ENDED,
        _E.BEGIN: _S.ENDED,  # it was given up as hung, and reports late; so may its end
        _E.FINISH: _S.ENDED,
        _E.STOP: _S.ENDED,  # the abort crossed the end of the drain
        _E.SEND: _S.RELEASING,
        _E.LOSE: _S.GONE,
    },
    _S.RELEASING: {
        _E.KEEP: _S.RELEASING,
        _E.REVOKE: _S.RELEASING,
        _E.BEGIN: _S.RELEASING,
        _E.FINISH: _S.RELEASING,
        _E.STOP: _S.RELEASING,
        _E.ANSWER: _S.GONE,
        _E.RETRY: _S.ENDED,
        _E.LOSE: _S.GONE,
    },
}

WORKING = (State.HELD, State.DRAINING, State.CLOSING)
"""States in which user code may use the resource."""


@attrs.define
class Holding:
    """One tenure. Times are the member's monotonic ms."""

    resource: str
    token: int
    committed: int | None = None
    state: State = State.HELD
    on_record: bool = True
    """False once it was omitted from the claims to a coordinator that lost its state: it only has to stop."""
    abort_at: int | None = None
    stop_by: int = 0
    """Once aborted: when to stop waiting for its work."""
    busy_since: int | None = None
    reported_busy: bool = False
    guarded: bool = False
    delivered: int = 0
    acknowledged: int = 0
    offset: int | None = None
    reason: str = ""
    effort: Effort | None = None

    def step(self, step: Step) -> State:
        """Moves along the table.

        Raises:
            IllegalTransition: the step is not possible in this state; nothing has changed.
        """
        after = TABLE.get(self.state, {}).get(step)
        if after is None:
            raise IllegalTransition(
                f"{step.value} cannot happen to a tenure that is {self.state.value} ({self.resource!r})"
            )
        self.state = after
        return after

    def next_clock(self) -> int | None:
        """When to check it again."""
        if self.state is State.ABORTED:
            return self.stop_by
        return self.abort_at if self.working else None

    @property
    def working(self) -> bool:
        """Whether user code may still use the resource."""
        return self.state in WORKING

    @property
    def over(self) -> bool:
        """Whether it has ended, which the coordinator has heard or will hear."""
        return self.state in (State.ENDED, State.RELEASING)

    @property
    def is_busy(self) -> bool:
        """Whether its handler was running when it was last sampled."""
        return self.busy_since is not None
