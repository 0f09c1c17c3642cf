"""Stories of the two witnesses that see a crash at once: both right, late, silent or lying, while processes lose connections."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance_sims.simulate.network import BAD
from cobalance_sims.simulate.scenario import QUICKENED, At, Every, Scenario
from cobalance_sims.simulate.witnesses import Witnesses
from proof.stories import faults as f

if TYPE_CHECKING:
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World


@attrs.frozen
class ResetBroker:
    """Processes lose their connection to the broker, and have another one soon."""

    ms: int = 300
    count: int = 1

    def strike(self, world: World) -> None:
        for _ in range(self.count):
            process = world.pick()
            if process is not None:
                world.log(process, f"loses the broker for {self.ms} ms")
                process.lose_broker(self.ms)


@attrs.frozen
class ResetListener:
    """A process's listener is cut off, and connects again soon."""

    ms: int = 200

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None:
            process.lose_listener(self.ms)


@attrs.frozen
class Sever:
    """A process loses all three of its connections in one moment, and has each again within some time."""

    longest_ms: int
    count: int = 1
    """1,000 are all of them, as where a proxy is restarted."""

    def strike(self, world: World) -> None:
        victims = [world.pick()] if self.count == 1 else world.running()[: self.count]
        for process in victims:
            if process is not None and process.reaches_redis:
                world.log(process, "loses all its connections")
                process.reaches_redis = False
                process.lose_listener(world.random.randint(1, 50))  # or once it can reach Redis
                process.lose_broker(world.random.randint(1, self.longest_ms))
                world.clock.after(world.random.randint(1, self.longest_ms), self._end, process)

    @staticmethod
    def _end(process: Process) -> None:
        process.reaches_redis = True


@attrs.frozen
class Lie:
    """The broker delivers the will of a process that lives and has its connection: it has closed a channel alone."""

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None and process.witness is not None:
            world.log(process, "loses the channel of its will")
            process.witness.lose_will()


MESSAGES = Every(100, f.Publish(6), jitter_ms=50)
COMES_AND_GOES = (Every(7_000, f.Arrive(), jitter_ms=3_000), Every(7_000, f.Crash(), start_ms=3_500, jitter_ms=3_000))
UNTRUE = Witnesses(lost=0.2, late=0.2, doubled=0.3, will_ms=(1, 40), deaf_ms=(0, 200))
GRACE = attrs.evolve(QUICKENED, rejoin_grace_ms=10_000)

SCENARIOS = (
    Scenario(
        name="crashes_seen",
        summary="processes are killed and others come, and both witnesses are right",
        plan=(*COMES_AND_GOES, At(40_000, f.Crash(3)), At(42_000, f.Arrive(3)), MESSAGES),
        partitions=True,
        witnesses=Witnesses(),
    ),
    Scenario(
        name="false_alarms",
        summary="living processes lose one connection, two, or all three for a moment or for longer; some are killed",
        plan=(
            *COMES_AND_GOES,
            Every(1_500, ResetBroker(), jitter_ms=700),
            Every(2_500, ResetListener(), jitter_ms=1_000),
            Every(2_000, Sever(30), start_ms=500, jitter_ms=900),
            Every(9_000, Sever(3_000), start_ms=4_000, jitter_ms=4_000),
            Every(3_000, Lie(), jitter_ms=1_500),
            MESSAGES,
        ),
        partitions=True,
        witnesses=Witnesses(),
    ),
    Scenario(
        name="untrue_witnesses",
        summary="wills are lost, late, doubled and lies, members that look are frozen or killed, and the network is bad at times",
        plan=(
            *COMES_AND_GOES,
            Every(5_000, f.Pause(9_000), jitter_ms=2_000),
            Every(2_000, ResetBroker(1_000), jitter_ms=900),
            Every(700, ResetListener(400), jitter_ms=300),
            Every(1_000, Lie(), jitter_ms=500),
            Every(17_000, f.Disturb(BAD, 8_000), jitter_ms=4_000),
            Every(13_000, f.Freeze(1_500), jitter_ms=4_000),
            MESSAGES,
        ),
        members=6,
        partitions=True,
        witnesses=UNTRUE,
    ),
    Scenario(
        name="proxy_restarted",
        summary="all processes lose all connections at the same time, for moments and for longer",
        plan=(
            Every(9_000, Sever(40, 1_000), jitter_ms=3_000),
            Every(21_000, Sever(4_000, 1_000), start_ms=9_000, jitter_ms=5_000),
            *COMES_AND_GOES,
            MESSAGES,
        ),
        partitions=True,
        witnesses=Witnesses(near=0.0),
    ),
    Scenario(
        name="witnesses_of_losses",
        summary="Redis loses data, fails over, and is put back, while processes are killed and lose connections",
        plan=(
            Every(15_000, f.Remember(), start_ms=5_000),
            Every(30_000, f.Stale(), start_ms=9_000, jitter_ms=4_000),
            Every(30_000, f.Stale(restarted=False), start_ms=24_000, jitter_ms=4_000),
            At(50_000, f.Empty(), jitter_ms=5_000),
            Every(3_000, ResetBroker(), jitter_ms=700),
            Every(3_000, Sever(500), start_ms=500, jitter_ms=900),
            *COMES_AND_GOES,
            MESSAGES,
        ),
        partitions=True,
        witnesses=Witnesses(late=0.2),
    ),
    Scenario(
        name="static_crashes_seen",
        summary="processes with instance ids are killed and come back, and lose connections",
        plan=(
            Every(6_000, f.Restart(500), jitter_ms=3_000),
            Every(17_000, f.Crash(), start_ms=3_000, jitter_ms=3_000),
            Every(9_000, f.Arrive(1, instances=("i0", "i1", "i2", "i3")), start_ms=5_000, jitter_ms=3_000),
            Every(2_000, ResetBroker(), jitter_ms=900),
            Every(3_000, Sever(200), jitter_ms=1_500),
            MESSAGES,
        ),
        instances=True,
        settings=GRACE,
        partitions=True,
        witnesses=Witnesses(),
    ),
)
