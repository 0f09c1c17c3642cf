"""The world: processes, a Redis, perhaps a broker, one clock, one source of randomness, and the observers."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

from cobalance.member import events as ev
from cobalance.settings import GroupSettings, MemberSettings
from cobalance_sims.simulate.broker import SimulatedBroker, Ways
from cobalance_sims.simulate.clock import Clock
from cobalance_sims.simulate.consumer import BrokerWork
from cobalance_sims.simulate.habits import Habits
from cobalance_sims.simulate.load import Load
from cobalance_sims.simulate.network import Network
from cobalance_sims.simulate.process import Process
from cobalance_sims.simulate.reached import Reached
from cobalance_sims.simulate.server import RedisServer
from cobalance_sims.simulate.trace import Trace, Untold
from cobalance_sims.simulate.watch import Checkers
from cobalance_sims.simulate.witnesses import Wills, Witnesses
from cobalance_sims.simulate.work import PlainWork

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cobalance.coordinator.memory.store import MemoryStore
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance_sims.simulate.checks.base import Check
    from cobalance_sims.simulate.scenario import Messages
    from cobalance_sims.simulate.work import SimulatedTenure

HUNG_AFTER_SESSIONS = 6
"""A handler that runs for this many session timeouts is hung."""

NOISE = frozenset({"added", "granted"})
"""Journal entries not worth a line: the members' own lines say the same."""


class World:
    """Everything of one run. Processes report what they do to the methods below, which pass it to the trace and the
    checkers.

    Args:
        seed: decides everything that is left to chance.
        lua: the engine; None takes the fastest.
        ways: latencies to the broker, where there are partitions.
        witnesses: of killed processes, where crashes are seen at once.
        verbose: False keeps no lines, for runs that are too large to read.
        traced: False does not even hash what happens.
        store: a used one, which is cleared: its scripts are compiled already.
    """

    def __init__(
        self,
        settings: GroupSettings,
        *,
        seed: int = 0,
        lua: str | None = None,
        network: Network | None = None,
        habits: Habits | None = None,
        checks: Iterable[Check] = (),
        partitions: bool = False,
        ways: Ways | None = None,
        witnesses: Witnesses | None = None,
        messages: Messages | None = None,
        store: MemoryStore | None = None,
        verbose: bool = True,
        traced: bool = True,
    ) -> None:
        self.settings, self.seed = settings, seed
        self.random = Random(seed)
        self.clock = Clock()
        self.trace = Trace(verbose=verbose) if traced else Untold()
        self.reached = Reached()
        self.network, self.habits = network or Network(), habits or Habits()
        self.redis = RedisServer(self.clock, settings, lua=lua, seed=seed, on_entry=self._on_entry, store=store)
        self.broker = SimulatedBroker(self, ways) if partitions else None
        self.wills = None if witnesses is None else Wills(self, witnesses)
        self.load: Load | None = None
        if messages is not None:
            self.load = Load(
                messages.per_s,
                messages.handle,
                self.habits.prefetch,
                Random(seed),
                handlers=Random(f"handlers {seed}"),
            )
        self.processes: dict[str, Process] = {}
        self.living: dict[str, Process] = {}
        self.list_version = 1
        self.resources: tuple[str, ...] = ()
        self.lists: dict[int, tuple[str, ...]] = {}
        """Earlier versions of the group's own list, by version."""
        self.deployed: tuple[str, ...] | None = None
        """The resources that the currently deployed code names; None means the group's own list."""
        self.has_lists = False
        """Whether any process ever named a list of its own."""
        self.changed_at = 0
        """When the journal last grew, or a process was affected by anything."""
        self._born = 0
        self._traced = traced
        self.watch = Checkers(self, checks)

    @property
    def now(self) -> int:
        """Milliseconds since the beginning."""
        return self.clock.now

    # -- what faults and scenarios do ------------------------------------------------------------------------------------

    def start(
        self,
        *,
        instance: str | None = None,
        capacity: int = 1,
        drain_timeout_ms: int | None = None,
        settings: GroupSettings | None = None,
        wants: tuple[str, ...] | None = None,
    ) -> Process:
        """Starts a process that joins and declares ``wants``, by default what is deployed now; ``settings`` are those
        it assumes for the group, by default the group's own.
        """
        self._born += 1
        drain = self.settings.revocation_timeout_ms if drain_timeout_ms is None else drain_timeout_ms
        member = MemberSettings(
            instance_id=instance,
            capacity=capacity,
            drain_timeout_ms=drain,
            max_processing_ms=HUNG_AFTER_SESSIONS * self.settings.session_timeout_ms,
        )
        kind = BrokerWork if self.broker else PlainWork
        wants = self.deployed if wants is None else wants
        self.has_lists |= wants is not None
        process = Process(self, f"p{self._born}", member, settings or self.settings, kind, wants=wants)
        self.log(process, "starts" + (f" as {instance}" if instance else ""))
        self.enter(process, self.list_version if wants is None else 1, process.names)
        self.watch.process_started(process)
        return process

    def enter(self, process: Process, version: int, names: tuple[str, ...]) -> None:
        """A process joins, and declares this list."""
        self.processes[process.name] = self.living[process.name] = process
        self.clock.after(0, process.deliver, ev.Started(process.subscription))
        self.clock.after(0, process.deliver, ev.ResourcesDeclared(version, names))

    def declare(self, names: Iterable[str]) -> None:
        """Changes the group's own list; every process without another declares it, within a second or so."""
        self.lists[self.list_version] = self.resources
        self.list_version += 1
        self.resources = tuple(sorted(names))
        self.log(None, f"the list has {len(self.resources)} resources")
        event = ev.ResourcesDeclared(self.list_version, self.resources)
        for process in self.living.values():
            if process.wants is None:
                self.clock.after(self.random.randrange(1_000), process.deliver, event)

    def wanted(self) -> tuple[str, ...]:
        """The resources that living processes name."""
        if not self.has_lists:
            return self.resources
        return tuple(sorted({name for process in self.living.values() for name in process.names}))

    def replace_redis(self) -> None:
        """Another server answers from now on; where it matters who listens, nobody is connected to it yet."""
        self.redis.replace()
        if self.wills is not None:
            for process in self.living.values():
                process.lose_listener(self.random.randint(1, 1_000))

    def of_member(self, member: str) -> Process | None:
        """The process with this member id."""
        return self.processes.get(member.rpartition(".")[0])

    def running(self) -> list[Process]:
        return [process for process in self.living.values() if not process.paused]

    def pick(self) -> Process | None:
        """Picks a random process that is not leaving."""
        choice = [process for process in self.living.values() if not process.paused and not process.leaving]
        return choice[int(self.random.random() * len(choice))] if choice else None

    # -- what processes report -------------------------------------------------------------------------------------------

    def log(self, process: Process | None, text: str) -> None:
        self.trace.add(self.clock.story, process.name if process else "-", text)

    def died(self, process: Process) -> None:
        """The process was killed."""
        self.watch.died(process)
        self.living.pop(process.name, None)

    def left(self, process: Process) -> None:
        """Its session is over."""
        self.log(process, "left")
        self.living.pop(process.name, None)

    def joined(self, process: Process, member: str) -> None:
        """Its join was answered."""
        self.log(process, f"joined as {member}")
        if self.has_lists and any(it.subscription != process.subscription for it in self.living.values()):
            self.reached.count("different lists")
        self.watch.joined(process)

    def problem(self, process: Process, code: str) -> None:
        """A problem is reported to its user."""
        self.reached.count(code)
        self.log(process, f"has a problem: {code}")

    def started(self, process: Process, action: act.Start) -> None:
        """A tenure begins at a member."""
        beginning = "" if action.committed is None else f" from {action.committed}"
        process.silent_since = None
        self.log(process, f"starts {action.resource} {self.trace.tag(action.token)}{beginning}")
        self.watch.started(process, action)

    def kept(self, process: Process, action: act.Keep) -> None:
        """A tenure goes on, although it was asked back."""
        self.log(process, f"keeps {action.resource} {self.trace.tag(action.token)}")
        self.watch.kept(process, action)

    def asked_back(self, process: Process, action: act.Drain) -> None:
        within = action.abort_at - process.offset_ms - self.now
        self.log(process, f"drains {action.resource} {self.trace.tag(action.token)} within {within} ms")
        self.watch.asked_back(process, action)

    def hastened(self, process: Process, action: act.Hasten) -> None:
        """The time to finish a tenure was cut."""
        within = action.abort_at - process.offset_ms - self.now
        self.log(process, f"hastens {action.resource} {self.trace.tag(action.token)}: within {within} ms")

    def aborted(self, process: Process, action: act.Abort) -> None:
        """A tenure is cut short."""
        self.reached.count(f"abort {action.reason}")
        if action.reason == "fenced" and process.silent_since is None:
            process.silent_since = self.now
        self.log(process, f"aborts {action.resource} {self.trace.tag(action.token)}: {action.reason}")

    def became_active(self, process: Process, tenure: SimulatedTenure) -> None:
        """User code may touch the resource from now on."""
        self.watch.active(process, tenure)

    def became_idle(self, process: Process, tenure: SimulatedTenure) -> None:
        """User code no longer touches the resource."""
        self.watch.idle(process, tenure)

    def committed(self, process: Process, resource: str, token: int, offset: int, outcome: ev.CommitOutcome) -> None:
        """A user's commit was answered."""
        self.log(process, f"committed {resource} {self.trace.tag(token)} at {offset}: {outcome}")
        self.watch.committed(process, (resource, token, offset), outcome)

    def executed(self, process: Process, request: Request, reply: CoordinatorReply) -> None:
        """Redis ran a request; its journal has been read."""
        if reply.status != "OK":
            self.reached.count(f"status {reply.status}")
            self.log(process, f"is answered {reply.status} to its {request.payload.verb}")
        self.watch.executed(process, request, reply)

    def _on_entry(self, entry: JournalEntry) -> None:
        self.changed_at = self.clock.now
        if not self._traced:
            pass
        elif entry.kind not in NOISE:
            words = (entry.kind, entry.resource, entry.member, self.trace.tag(entry.token), entry.reason)
            self.trace.add(self.clock.story, "redis", " ".join(word for word in words if word and word != "-"))
        else:
            self.trace.fold(f"{entry.seq} {entry.kind} {entry.at_ms} {entry.resource} {entry.member} {entry.token}")
        self.reached.saw(entry, self.redis.ledger)
        if self.wills is not None:
            self.wills.saw(entry)
        self.watch.journal(entry)
        self.redis.ledger.apply(entry, self.clock.now)
        self.watch.after_journal(entry)
