"""The simulated run: the same story, messages and times, with this machine's latencies, and the evidence in the same
terms.

The production Lua and the production session run in virtual time; the latencies of network and broker and the handlers'
overrun are drawn from the measured samples.
"""

from __future__ import annotations

from math import inf
from random import Random
from typing import TYPE_CHECKING

import attrs

from cobalance_sims.records import SIM
from cobalance_sims.simulate.broker import Ways, whole
from cobalance_sims.simulate.checks.base import Check
from cobalance_sims.simulate.habits import Habits
from cobalance_sims.simulate.network import Network
from cobalance_sims.simulate.server import START_MS
from cobalance_sims.simulate.world import World
from proof.fidelity.load import PlannedMessage
from proof.fidelity.machine import Machine
from proof.fidelity.story import Incident, Story
from proof.fidelity.telling import ProcessSilence, Telling, TenureCallback, partition_number

if TYPE_CHECKING:
    from cobalance.journal import JournalEntry
    from cobalance.member import actions as act
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.work import SimulatedTenure

__all__ = ["MeasuredNetwork", "tell", "ways"]


AT_ONCE = (0.0,)


@attrs.frozen(kw_only=True)
class MeasuredNetwork(Network):
    """Calls and hints take a random one of the machine's samples. Both directions take the same time."""

    call_ms: tuple[float, ...]
    hint_ms: tuple[float, ...]

    def latency(self, random: Random) -> int:
        """Half of a call."""
        return whole(random.choice(self.call_ms) / 2, random)

    def hint_latency(self, random: Random) -> int:
        """A hint, from PUBLISH to the thread that waits for it."""
        return whole(random.choice(self.hint_ms), random)


def ways(machine: Machine) -> Ways:
    """Latencies to RabbitMQ and back, as measured. The calls and hints in an idle partition's handover are simulated,
    so only the rest is taken from its measured parts.
    """
    call, hint = machine.median("call_ms"), machine.median("hint_ms")
    return Ways(
        way_ms=max(1, round(machine.median("way_ms"))),
        open_ms=machine.open_ms,
        close_ms=_less(machine.let_go_ms, call / 2) or machine.close_ms,
        ask_ms=_less(machine.ask_ms, hint + call) or 0,
        tell_ms=_less(machine.tell_ms, hint + call) or 0,
    )


def _less(samples: tuple[float, ...], ms: float) -> tuple[float, ...]:
    return tuple(max(0.0, it - ms) for it in samples)


def tell(
    story: Story,
    load: list[PlannedMessage],
    steps: tuple[Incident, ...],
    machine: Machine | None,
    seed: int,
    *,
    lua: str | None = None,
) -> Telling:
    """Runs the story once, in virtual time. The steps and their times are those of a real run (``Telling.steps``).
    Without a machine, the simulator's own latencies of network and broker are used.
    """
    return SimulatedRun(
        story,
        load,
        steps,
        machine,
        World(
            story.settings,
            seed=seed,
            lua=lua,
            network=MeasuredNetwork(call_ms=machine.call_ms, hint_ms=machine.hint_ms) if machine else None,
            habits=Habits(prefetch=story.prefetch),
            partitions=True,
            ways=ways(machine) if machine else None,
            verbose=False,
        ),
    ).play()


class SimulatedRun:
    """One run."""

    def __init__(
        self,
        story: Story,
        load: list[PlannedMessage],
        steps: tuple[Incident, ...],
        machine: Machine | None,
        world: World,
    ) -> None:
        self.story, self._load, self._steps, self.world = story, load, steps, world
        self._overrun_ms = AT_ONCE if machine is None else machine.overrun_ms
        self._notes = Notes(self.world)
        self.world.watch.add(self._notes)
        self._processes: dict[str, Process] = {}
        self._silences: list[ProcessSilence] = []

    def play(self) -> Telling:
        """Runs from the beginning to the end."""
        world, story = self.world, self.story
        world.redis.create()
        world.resources = tuple(f"truth-{number}" for number in range(story.partitions))
        for step in self._steps:
            world.clock.after(step.at_ms, self._perform, step)
        for message in self._load:
            world.clock.after(message.at_ms, self._publish, message)
        world.clock.run(story.length_ms)
        return self._evidence()

    # -- what happens ----------------------------------------------------------------------------------------------------

    def _perform(self, step: Incident) -> None:
        if step.kind == "join":
            self._processes[step.who] = self.world.start()
            return
        process = self._processes[step.who]
        now = START_MS + self.world.now
        if step.kind == "leave":
            process.stop(remain=False)
        elif step.kind == "kill":
            process.kill()
            self._silences.append(ProcessSilence(process.name, now, inf, alive=False))
        else:
            process.pause()
            self.world.clock.after(step.for_ms, lambda _: process.resume())
            self._silences.append(ProcessSilence(process.name, now, now + step.for_ms, alive=True))

    def _publish(self, message: PlannedMessage) -> None:
        broker = self.world.broker
        if broker is not None:
            overrun = self.world.random.choice(self._overrun_ms)
            handle_ms = whole(message.handle_ms + max(0.0, overrun), self.world.random)
            broker.publish(f"truth-{message.partition}", handle_ms)

    # -- the evidence --------------------------------------------------------------------------------------------------

    def _evidence(self) -> Telling:
        return Telling(
            source=SIM,
            begun_at_ms=START_MS,
            ended_at_ms=START_MS + self.story.length_ms,
            entries=tuple(self._notes.entries),
            steps=self._steps,
            silences=tuple(self._silences),
            turns=tuple(self._notes.turns),
            handled=tuple(self._notes.handlings),
        )


class Notes(Check):
    """Not a promise: records what member processes would."""

    promise = ""

    def __init__(self, world: World) -> None:
        super().__init__(world)
        self.entries: list[JournalEntry] = []
        self.turns: list[TenureCallback] = []
        self.handlings: list[tuple[int, int]] = []

    def journal(self, entry: JournalEntry) -> None:
        self.entries.append(entry)

    def started(self, process: Process, action: act.Start) -> None:
        """``on_assigned``: the engine tells the event loop."""
        broker = process.world.broker
        late_ms = whole(broker.ways.tell_ms, self.world.random) if broker else 0
        self._turn(action.resource, action.token, begins=True, late_ms=late_ms)

    def idle(self, process: Process, tenure: SimulatedTenure) -> None:
        """``on_revoked``, if it ends as it should."""
        if process.running and tenure.state == "closing":
            self._turn(tenure.resource, tenure.token, begins=False)

    def handled(self, process: Process, queue: str, token: int, seq: int) -> None:
        del process, token
        self.handlings.append((partition_number(queue), seq))

    def _turn(self, resource: str, token: int, *, begins: bool, late_ms: int = 0) -> None:
        self.turns.append(
            TenureCallback(START_MS + self.world.now + late_ms, partition_number(resource), token, begins)
        )
