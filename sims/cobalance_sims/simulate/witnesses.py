"""The two witnesses of a process's end, in virtual time: wills that the broker delivers, and listeners that Redis finds.

What a member vouches for, whom it looks at and when, and what comes of a look is production's. Here is what is around
it: how long the broker and Redis take to notice, who gets a will, and wills that are lost, late, doubled, or lies.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.errors import CobalanceError, Unreachable
from cobalance.group.vouching import Vouching
from cobalance.rabbitmq.consume.crash_watch import Suspicion, Suspicions
from cobalance.rabbitmq.consume.last_will import Will

if TYPE_CHECKING:
    from cobalance.coordinator.client import Sight
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request, Suspect
    from cobalance.journal import JournalEntry
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World


AGAIN_MS = 100
"""Until a process that has found a connection closed has another one, at least."""


KEPT_AGAIN_MS = 5_000
"""Until the broker keeps the will of a process again whose channel for it was closed alone."""


@attrs.frozen(kw_only=True)
class Witnesses:
    """How soon they notice, in ms, uniformly between the two (measured: 9 at most), and how far they can be trusted."""

    will_ms: tuple[int, int] = (1, 9)
    """From the end of a connection to the broker until its will is delivered."""
    kept_ms: tuple[int, int] = (4, 20)
    """From a connection to the broker, or a join, until the broker keeps its will."""
    deaf_ms: tuple[int, int] = (0, 9)
    """From a process's end until Redis finds nobody on its channel."""
    lost: float = 0.0
    """Share of wills that are never delivered."""
    late_ms: int = 20_000
    late: float = 0.0
    """Share of wills that take this much longer."""
    doubled: float = 0.0
    near: float = 0.3
    """Share of wills that come to a process on the same machine, whose kernel knows who is gone."""


class Wills:
    """The broker's queue of wills. Each is delivered to one process after the other, until one has looked after it."""

    def __init__(self, world: World, ways: Witnesses) -> None:
        self._world, self.ways = world, ways
        self._waiting: list[Will] = []

    def between(self, span: tuple[int, int]) -> int:
        """A time from this span, ms."""
        return self._world.random.randint(*span)

    def deliver(self, will: Will) -> None:
        """The connection that it tells of is gone, or so the broker says."""
        roll = self._world.random.random()
        if roll < self.ways.lost:
            return
        late_ms = self.ways.late_ms if roll < self.ways.lost + self.ways.late else 0
        self._world.clock.after(self.between(self.ways.will_ms) + late_ms, self._arrive, will)
        if self._world.random.random() < self.ways.doubled:
            self._world.clock.after(self.between(self.ways.will_ms), self._arrive, will)

    def deliver_again(self, wills: list[Will]) -> None:
        """Their holder is gone, or its connection is."""
        self._waiting += wills
        self.pass_on()

    def pass_on(self) -> None:
        """There may be somebody now who receives what nobody could."""
        waiting, self._waiting = self._waiting, []
        for will in waiting:
            self._arrive(will)

    def saw(self, entry: JournalEntry) -> None:
        """Notes whose session has ended early although its process lives."""
        process = self._world.of_member(entry.member or "") if entry.reason == "crashed" else None
        if process is not None and process.alive and process.witness is not None:
            process.witness.taken_for_dead = entry.member or ""

    def _arrive(self, will: Will) -> None:
        witnesses = [it.witness for it in self._world.living.values()]
        readers = [it for it in witnesses if it is not None and it.connection]
        if readers:
            readers[int(self._world.random.random() * len(readers))].hear(will)
        else:
            self._waiting.append(will)


class Witness:
    """One process's part: its connection to the broker, what it vouches for, and its looks at others."""

    def __init__(self, process: Process, wills: Wills) -> None:
        self._process, self._wills = process, wills
        self._clock = process.world.clock
        self.connection = ""
        """Its present connection to the broker; empty without one."""
        self.taken_for_dead = ""
        """The member that it was when its session ended early."""
        self._member, self._connections, self._looks_from = "", 0, 0
        self._kept: Will | None = None
        """What the broker will say once its present connection is gone."""
        self._unsettled: list[Will] = []
        self._suspicions = Suspicions()
        self._looking = False
        self._vouching = Vouching(
            self,
            listens=lambda: process.listens,
            renew=lambda: process.lose_listener(self._wills.between((1, 2_000))),
            now_s=lambda: self._clock.now / 1_000,
        )
        self.connect()

    # -- its own connections -------------------------------------------------------------------------------------------

    def joined(self, member: str) -> None:
        self._member = member
        self._vouching.joined(member)
        self.tell()
        self._keep_will()

    def tell(self) -> None:
        """Tells the coordinator what it vouches for, in turn with its other calls."""
        self._process.ask(self._vouching.tell)

    def answered(self) -> None:
        """The coordinator has answered a call."""
        if self._vouching.is_unheard:
            self.tell()

    def connect(self) -> None:
        """It has a connection to the broker, once more if this is not the first."""
        if self._connections:
            self._looks_from = self._clock.now + self._process.world.settings.session_timeout_ms
        self._name_connection()
        self._wills.pass_on()
        self._keep_will()

    def disconnect(self) -> None:
        """The broker, or what is in between, has closed the connection; the process hears of it if it still lives."""
        if not self.connection:
            return
        self._lose_channel()
        self.connection = ""

    def lose_will(self) -> None:
        """The broker closes the channel of its will alone, and has it again some time later."""
        if self.connection:
            self._lose_channel()
            self._process.later(KEPT_AGAIN_MS, self._keep_again, self.connection)

    def _lose_channel(self) -> None:
        will, self._kept = self._kept, None
        if will is not None:
            self._wills.deliver(will)
        unsettled, self._unsettled = self._unsettled, []
        self._wills.deliver_again(unsettled)
        self._process.run_code(self._vouch, None)

    def _keep_again(self, connection: str) -> None:
        """Under another name, since the old will may be heard late."""
        if connection == self.connection:
            self._name_connection()
            self._keep_will()

    def _name_connection(self) -> None:
        self._connections += 1
        self.connection = f"{self._process.name}-{self._connections}"

    def _keep_will(self) -> None:
        if self._member and self.connection:
            will = Will(self._member, self.connection, self._process.name)
            self._process.later(self._wills.between(self._wills.ways.kept_ms), self._will_kept, will)

    def _will_kept(self, will: Will) -> None:
        if will.connection == self.connection:
            self._kept = will
            self._vouch(will.connection)

    def leave(self) -> None:
        """It has left, and its will is deleted."""
        self.connection, self._kept = "", None
        unsettled, self._unsettled = self._unsettled, []
        self._wills.deliver_again(unsettled)

    def _vouch(self, connection: str | None) -> None:
        self._vouching.connected(connection)
        self.tell()

    def execute(self, request: Request) -> CoordinatorReply:
        """What `Vouching` asks of the coordinator.

        Raises:
            Unreachable: Redis does not answer.
        """
        redis = self._process.world.redis
        if not (self._process.reaches_redis and redis.up) or redis.thaws_at > self._clock.now:
            raise Unreachable("no answer")
        self._process.heard_at = self._clock.now
        return redis.ask(lambda coordinator: coordinator.execute(request))

    # -- others' ends --------------------------------------------------------------------------------------------------

    def hear(self, will: Will) -> None:
        """The broker has sent it a will, and waits until it has looked after that."""
        self._unsettled.append(will)
        self._clock.after(self._process.network.latency(self._process.world.random), self._heard_later, will)

    def _heard_later(self, will: Will) -> None:
        self._process.run_code(self._heard, will)

    def _heard(self, will: Will) -> None:
        if will.process == self._process.name or self._clock.now < self._looks_from:
            self._settle(will)
            return
        world = self._process.world
        world.reached.count("will heard")
        knows = world.random.random() < self._wills.ways.near
        suspicion = Suspicion(
            will, lambda name: knows and not world.processes[name].alive, done=lambda: self._settle(will)
        )
        self._suspicions.put(self._clock.now / 1_000, suspicion)
        if not self._looking:
            self._next()

    def _settle(self, will: Will) -> None:
        if will in self._unsettled:
            self._unsettled.remove(will)

    def _next(self) -> None:
        taken = self._suspicions.take(self._clock.now / 1_000)
        self._looking = taken is not None
        if taken is not None:
            at_s, suspicion = taken
            self._process.later(max(0, round(at_s * 1_000) - self._clock.now), self._look, suspicion)

    def _look(self, suspicion: Suspicion) -> None:
        latency_ms = self._process.network.latency(self._process.world.random)
        self._clock.after(latency_ms, self._arrive, (suspicion, suspicion.next_look()))

    def _arrive(self, what: tuple[Suspicion, Suspect]) -> None:
        """A look that has been sent is made, whatever becomes of its sender."""
        redis, sight = self._process.world.redis, None
        if redis.thaws_at > self._clock.now:
            self._clock.at(redis.thaws_at, self._arrive, what)
            return
        if self._process.reaches_redis and redis.up:
            try:
                sight = redis.ask(lambda coordinator: coordinator.suspect(what[1]))
            except CobalanceError:
                sight = None
        latency_ms = self._process.network.latency(self._process.world.random)
        self._process.later(latency_ms, self._saw, (what[0], sight))

    def _saw(self, what: tuple[Suspicion, Sight | None]) -> None:
        suspicion, sight = what
        pause_ms = None if sight is None else suspicion.saw(sight)
        if pause_ms is None:
            suspicion.done()
        else:
            self._suspicions.put((self._clock.now + pause_ms) / 1_000, suspicion)
        self._next()
