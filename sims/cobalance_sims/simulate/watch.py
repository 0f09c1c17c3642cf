"""Passes on what happens to those checkers that override the method for it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from cobalance_sims.simulate.checks.base import Check

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance.member.events import CommitOutcome
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure
    from cobalance_sims.simulate.world import World


class Checkers:
    """The checkers of one world; see :class:`Check` for the methods."""

    def __init__(self, world: World, checks: Iterable[Check]) -> None:
        self._world = world
        self.checks: list[Check] = []
        self._served: dict[str, int] = {}
        self._wanted: dict[str, list[Callable[..., None]]] = {}
        for check in checks:
            self.add(check)
        world.clock.after(1_000, self._second)

    def add(self, check: Check) -> None:
        self.checks.append(check)
        for name in vars(Check):
            if name.startswith("_") or getattr(type(check), name) is getattr(Check, name):
                continue
            self._wanted.setdefault(name, []).append(getattr(check, name))

    def _tell(self, name: str, *arguments: Any) -> None:
        for method in self._wanted.get(name, ()):
            method(*arguments)

    def _second(self, _: object) -> None:
        self._world.clock.after(1_000, self._second)
        self._tell("second")

    def journal(self, entry: JournalEntry) -> None:
        self._tell("journal", entry)

    def after_journal(self, entry: JournalEntry) -> None:
        self._tell("after_journal", entry)

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        """Passes on first executions only. Heartbeats are the bulk of all calls and decide nothing; a repeated request
        gets the same answer as the first time, whatever has happened since.
        """
        if request.payload.verb == "heartbeat" or reply.status != "OK":
            return
        header = request.header
        if header.number <= self._served.get(header.member, 0):
            self._world.reached.count("repeat")
            return
        self._served[header.member] = header.number
        self._tell("executed", process, request, reply)

    def started(self, process: Process, action: act.Start) -> None:
        self._tell("started", process, action)

    def kept(self, process: Process, action: act.Keep) -> None:
        self._tell("kept", process, action)

    def asked_back(self, process: Process, action: act.Drain) -> None:
        self._tell("asked_back", process, action)

    def active(self, process: Process, tenure: SimulatedTenure) -> None:
        self._tell("active", process, tenure)

    def idle(self, process: Process, tenure: SimulatedTenure) -> None:
        self._tell("idle", process, tenure)

    def ended(self, process: Process, tenure: SimulatedTenure, why: str) -> None:
        self._tell("ended", process, tenure, why)

    def frozen(self, process: Process) -> None:
        self._tell("frozen", process)

    def thawed(self, process: Process) -> None:
        self._tell("thawed", process)

    def drained(self, process: Process, tenure: SimulatedTenure) -> None:
        self._tell("drained", process, tenure)

    def committed(self, process: Process, asked: tuple[str, int, int], outcome: CommitOutcome) -> None:
        self._tell("committed", process, asked, outcome)

    def process_started(self, process: Process) -> None:
        self._tell("process_started", process)

    def joined(self, process: Process) -> None:
        self._tell("joined", process)

    def asked_to_leave(self, process: Process) -> None:
        self._tell("asked_to_leave", process)

    def died(self, process: Process) -> None:
        self._tell("died", process)

    def data_lost(self, known_from: int) -> None:
        self._tell("data_lost", known_from)

    def handled(self, process: Process, queue: str, token: int, seq: int) -> None:
        self._tell("handled", process, queue, token, seq)

    def acked(self, queue: str, seq: int) -> None:
        self._tell("acked", queue, seq)

    def settled(self) -> None:
        self._tell("settled")
