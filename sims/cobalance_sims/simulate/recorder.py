"""Records the events of a simulated run, with what only a simulator knows about them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.ownership import ENDINGS
from cobalance_sims.outcomes import Event, of_entry
from cobalance_sims.records import SIM
from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.consumer import SimulatedPartition

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure
    from cobalance_sims.simulate.world import World

_CUT_SHORT = ENDINGS - {"released", "withdrawn"}


class Recorder(Check):
    """Not a promise: it only observes, until :meth:`stop`."""

    promise = ""

    def __init__(self, world: World, run: str) -> None:
        super().__init__(world)
        self.events: list[Event] = []
        self.crashes = self.pauses = self.observed_ms = self.silent_resource_ms = self.duplicates_at_risk = 0
        self._run = run
        self._unacked: dict[tuple[str, int], int] = {}
        self._is_over = False

    def stop(self) -> None:
        """Stops recording: the story is over, and what its proof takes is not part of it."""
        if not self._is_over:
            self._is_over = True
            self.observed_ms = self.world.clock.story
            for process in self.world.processes.values():
                self._count_silence(process)

    # -- events ----------------------------------------------------------------------------------------------------------

    def journal(self, entry: JournalEntry) -> None:
        if self._is_over:
            return
        event = of_entry(entry, self._run, SIM, shift_ms=self.world.clock.skipped)
        if entry.kind in _CUT_SHORT:
            event = self._cut_short(event)
        elif entry.kind in ("expired_member", "graced"):
            process = self._process(entry.member)
            if process is not None:
                event = event._replace(silent_since_ms=self._silent_since(process), alive=process.alive)
        self.events.append(event)

    def _cut_short(self, event: Event) -> Event:
        process = self._process(event.member)
        if process is None:
            return event
        silent = self._silent_since(process)
        if silent is not None:
            self.silent_resource_ms += max(0, event.at_ms - silent)
        unacked = self._unacked_of(process, event.resource or "", event.token or 0)
        self.duplicates_at_risk += unacked or 0
        return event._replace(silent_since_ms=silent, unacked=unacked)

    def _process(self, member: str | None) -> Process | None:
        return self.world.processes.get((member or "").rpartition(".")[0])

    def _silent_since(self, process: Process) -> int | None:
        """On the group's clock. Time is never skipped while a member is silent."""
        since, world = process.silent_since, self.world
        return None if since is None else world.redis.now_ms + world.clock.skipped - (world.now - since)

    # -- messages --------------------------------------------------------------------------------------------------------

    def ended(self, process: Process, tenure: SimulatedTenure, why: str) -> None:
        """Counts the messages its consumer has at this moment."""
        if why == "frozen":
            return  # it may resume; if it does not, the moment hardly matters
        self._unacked[tenure.resource, tenure.token] = self._count(process, tenure)

    def _unacked_of(self, process: Process, resource: str, token: int) -> int | None:
        noted = self._unacked.pop((resource, token), None)
        tenure = process.work.tenures.get(resource)
        if noted is None and tenure is not None and tenure.token == token:
            return self._count(process, tenure)
        return noted

    def _count(self, process: Process, tenure: SimulatedTenure) -> int:
        world = self.world
        if isinstance(tenure, SimulatedPartition):
            queue = tenure.broker.queue(tenure.resource)
            return len(queue.unacked) if queue.consumer is tenure.channel else 0
        if world.load is None:
            return 0
        least = int(tenure.state == "draining")  # the message its handler is working on, and was asked to finish
        silent_ms = 0 if process.silent_since is None else world.now - process.silent_since
        return max(least, world.load.unacked(tenure.resource, tenure.since, world.clock.story - silent_ms))

    # -- processes -------------------------------------------------------------------------------------------------------

    def died(self, process: Process) -> None:
        del process
        self.crashes += not self._is_over

    def frozen(self, process: Process) -> None:
        del process
        self.pauses += not self._is_over

    def thawed(self, process: Process) -> None:
        """The process was frozen; nobody worked what it still owns meanwhile."""
        if not self._is_over:
            self._count_silence(process)

    def _count_silence(self, process: Process) -> None:
        if process.silent_since is None or not process.session.member:
            return
        ledger = self.world.redis.ledger
        name = f"{process.name}."
        owned = sum(it.owner.startswith(name) for it in ledger.resources.values())
        self.silent_resource_ms += owned * (self.world.now - process.silent_since)
