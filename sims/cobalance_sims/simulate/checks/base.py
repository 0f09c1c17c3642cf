"""What a checker is: told of everything that happens, it raises when a promise is broken."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, NoReturn

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance.member.events import CommitOutcome
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import Tenure
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
        """Says how the promise was broken."""
        raise Violation(self.promise, text)

    # -- what it may look at -------------------------------------------------------------------------------------------

    def journal(self, entry: JournalEntry) -> None:
        """A transition was written; the ledger still shows how it was before."""

    def after_journal(self, entry: JournalEntry) -> None:
        """The same, with the ledger brought up to date."""

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        """Redis served a request other than a heartbeat, and for the first time."""

    def started(self, process: Process, action: act.Start) -> None:
        """A member was told that it holds something."""

    def asked_back(self, process: Process, action: act.Drain) -> None:
        """A member is asked for something back."""

    def active(self, process: Process, tenure: Tenure) -> None:
        """User code may touch the resource from now on."""

    def idle(self, process: Process, tenure: Tenure) -> None:
        """It touches it no more."""

    def ended(self, process: Process, tenure: Tenure, why: str) -> None:
        """Its work is cut short: the process died, froze (it may go on), or aborts it."""

    def frozen(self, process: Process) -> None:
        """A process stands still from now on."""

    def thawed(self, process: Process) -> None:
        """A frozen process is about to go on."""

    def drained(self, process: Process, tenure: Tenure) -> None:
        """Its work is finished and about to be reported so."""

    def committed(self, process: Process, asked: tuple[str, int, int], outcome: CommitOutcome) -> None:
        """A user's commit (resource, token, offset) was answered."""

    def joined(self, process: Process) -> None:
        """A member's join was answered."""

    def died(self, process: Process) -> None:
        """A process was killed."""

    def data_lost(self, known_from: int) -> None:
        """Redis forgot what happened after this time; -1 is everything."""

    def handled(self, process: Process, queue: str, token: int, seq: int) -> None:
        """A handler begins with a message."""

    def acked(self, queue: str, seq: int) -> None:
        """The broker took an acknowledgement up to this message."""

    def second(self) -> None:
        """Another second has passed."""

    def settled(self) -> None:
        """Churn has stopped and the group is said to have converged."""
