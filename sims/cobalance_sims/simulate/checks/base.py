"""The base of all checkers: a checker observes everything that happens and raises when a promise is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance.member.events import CommitOutcome
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure
    from cobalance_sims.simulate.world import World


class Violation(AssertionError):
    """A promise was broken. ``promise`` names it (S1 … M1)."""

    def __init__(self, promise: str, text: str) -> None:
        super().__init__(f"{promise}: {text}")
        self.promise = promise


class Check:
    """One promise. Only the methods that a checker overrides are called, so the others cost nothing."""

    promise: ClassVar[str]

    def __init__(self, world: World) -> None:
        self.world = world

    def broken(self, text: str) -> NoReturn:
        """Raises a violation that says how the promise was broken."""
        raise Violation(self.promise, text)

    # -- what it may observe -------------------------------------------------------------------------------------------

    def journal(self, entry: JournalEntry) -> None:
        """A transition was written; the ledger still shows the state before it."""

    def after_journal(self, entry: JournalEntry) -> None:
        """The same, after the ledger was updated."""

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        """Redis served a request, other than a heartbeat, for the first time."""

    def started(self, process: Process, action: act.Start) -> None:
        """A member learned that it holds a resource."""

    def kept(self, process: Process, action: act.Keep) -> None:
        """A member learned that it keeps a resource that it was asked for."""

    def asked_back(self, process: Process, action: act.Drain) -> None:
        """A member was asked to give a resource back."""

    def active(self, process: Process, tenure: SimulatedTenure) -> None:
        """User code may touch the resource from now on."""

    def idle(self, process: Process, tenure: SimulatedTenure) -> None:
        """User code no longer touches the resource."""

    def ended(self, process: Process, tenure: SimulatedTenure, why: str) -> None:
        """The work was cut short: the process died, froze (it may resume), or aborts it."""

    def frozen(self, process: Process) -> None:
        """A process was frozen."""

    def thawed(self, process: Process) -> None:
        """A frozen process is about to resume."""

    def drained(self, process: Process, tenure: SimulatedTenure) -> None:
        """The work is finished and about to be reported as drained."""

    def committed(self, process: Process, asked: tuple[str, int, int], outcome: CommitOutcome) -> None:
        """A user's commit (resource, token, offset) was answered."""

    def process_started(self, process: Process) -> None:
        """A process was started, and is about to join."""

    def joined(self, process: Process) -> None:
        """A member's join was answered."""

    def asked_to_leave(self, process: Process) -> None:
        """A process was asked to leave."""

    def died(self, process: Process) -> None:
        """A process was killed."""

    def data_lost(self, known_from: int) -> None:
        """Redis forgot everything after this time; -1 means everything."""

    def handled(self, process: Process, queue: str, token: int, seq: int) -> None:
        """A handler starts on a message."""

    def acked(self, queue: str, seq: int) -> None:
        """The broker took an acknowledgement up to this message."""

    def second(self) -> None:
        """Another second has passed."""

    def settled(self) -> None:
        """Churn has stopped and the group reports that it has converged."""
