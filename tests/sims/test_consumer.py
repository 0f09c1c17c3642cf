"""The simulated consumer acts like the real one: it finishes its buffer, acks in ticks, reports idle partitions."""

from __future__ import annotations

import pytest

from cobalance_sims.simulate.broker import SimulatedQueue
from cobalance_sims.simulate.consumer import SimulatedPartition
from cobalance_sims.simulate.scenario import QUICKENED
from cobalance_sims.simulate.world import World


class Scene:
    """One process that works one partition."""

    def __init__(self, *handle_ms: int, drain_timeout_ms: int | None = None) -> None:
        self.world = World(QUICKENED, partitions=True)
        self.world.redis.create()
        self.world.resources = ("r",)
        assert self.world.broker is not None
        self.broker = self.world.broker
        self.process = self.world.start(drain_timeout_ms=drain_timeout_ms)
        self.world.clock.run(1_000)
        for ms in handle_ms:
            self.broker.publish("r", ms)
        self.world.clock.run(2)

    @property
    def lane(self) -> SimulatedPartition:
        """As the process has it."""
        lane = self.process.work.tenures["r"]
        assert isinstance(lane, SimulatedPartition)
        return lane

    @property
    def queue(self) -> SimulatedQueue:
        """As the broker has it."""
        return self.broker.queue("r")


@pytest.mark.parametrize(("within_ms", "finished"), [(150, 1), (300, 2), (1_000, 3)])
def test_a_drain_finishes_what_was_prefetched_for_half_of_the_time(within_ms: int, finished: int) -> None:
    """The running handler always finishes; others start only within half of the time; the rest goes back."""
    scene = Scene(100, 100, 100, drain_timeout_ms=within_ms)
    scene.process.stop(remain=False)
    scene.world.clock.run(1_000)
    assert scene.queue.acked == finished
    assert [it.seq for it in scene.queue.ready] == list(range(finished + 1, 4))
    assert scene.process.left


def test_a_drain_hears_that_its_deadline_was_moved_forward() -> None:
    """Half of the time that is left then is for what was prefetched, and never more than before."""
    scene = Scene(100, 100, 100, 100, 100, drain_timeout_ms=10_000)
    scene.process.stop(remain=False)
    scene.world.clock.run(40)
    scene.lane.hasten(300)  # what is begun within 150 ms
    scene.lane.hasten(900)
    scene.world.clock.run(1_000)
    assert scene.queue.acked == 2


def test_acks_leave_at_ticks() -> None:
    """What was finished a moment before a crash comes again, what was finished a tick before it does not."""
    scene = Scene(1, 1, 500)
    scene.world.clock.run(20)
    assert scene.queue.acked == 0
    scene.world.clock.run(50)
    assert scene.queue.acked == 2
    hasty = Scene(1, 1, 500)
    hasty.world.clock.run(20)
    hasty.process.kill()
    hasty.world.clock.run(100)
    assert [(it.seq, it.redelivered) for it in hasty.queue.ready] == [(1, True), (2, True), (3, True)]


def test_a_frozen_consumer_loses_its_queue_after_two_to_three_heartbeats() -> None:
    """The broker's heartbeat is the one that a ConsumerGroup with these settings asks for."""
    scene = Scene(500)
    assert scene.broker.heartbeat_ms == 2_000
    scene.process.pause()
    scene.world.clock.run(2 * 2_000 - 1)
    assert scene.queue.consumer is not None
    scene.world.clock.run(2_000 + 1)
    assert scene.queue.consumer is None


def test_the_coordinator_learns_who_is_busy() -> None:
    """It is reported at the engine's samples, so that idle partitions are revoked first."""
    world = World(QUICKENED, partitions=True)
    world.redis.create()
    world.resources = ("r0", "r1")
    assert world.broker is not None
    world.start()
    world.clock.run(1_000)
    latest = max(world.redis.coordinator.resources(), key=lambda row: row.token).name
    world.broker.publish(latest, 60_000)  # if it were idle, it would be the first to go
    world.clock.run(3 * QUICKENED.heartbeat_interval_ms)
    newcomer = world.start()
    world.clock.run(2_000)
    owned = [row.name for row in world.redis.coordinator.resources() if row.owner == newcomer.session.member]
    assert owned == sorted({"r0", "r1"} - {latest})


def test_a_partition_that_is_kept_before_its_drain_has_begun_stays_on_its_channel() -> None:
    """What its handler works on, and what was taken with it, has to be finished first."""
    scene = Scene(100, 100, 100)
    channel = scene.lane.channel
    scene.process.work.drain("r", scene.lane.token, 10_000)
    scene.process.work.resume("r", scene.lane.token)
    scene.world.clock.run(1_000)
    assert scene.lane.channel is channel
    assert scene.queue.acked == 3


def test_a_partition_that_is_kept_while_it_finishes_goes_on() -> None:
    """As a member does: on its channel, with what has arrived meanwhile. No message is skipped, and none comes twice."""
    scene = Scene(100)
    first = scene.lane.channel
    scene.broker.publish("r", 100)  # arrives while the handler works: it is finished, too
    scene.process.work.drain("r", scene.lane.token, 10_000)
    scene.world.clock.run(150)
    scene.broker.publish("r", 100)  # too late to be finished
    scene.process.work.resume("r", scene.lane.token)
    scene.world.clock.run(1_000)
    assert scene.lane.channel is first
    assert scene.queue.acked == scene.queue.published == 3
    assert scene.world.reached.counts["redelivery"] == 0


def test_a_queue_in_use_is_asked_for_again_as_by_a_member() -> None:
    """Each attempt opens a channel; the pauses are those of the core."""
    scene = Scene()
    heir = SimulatedPartition(scene.process, scene.broker, "r", scene.lane.token)
    scene.world.clock.run(100)
    core = heir.channel.core
    assert core.state.name == "WAITING"
    assert scene.world.reached.counts["refused by the broker"] == 4  # after 0, 10, 20 and 40 ms, and opening thrice
    scene.broker.close(scene.lane.channel)
    scene.world.clock.run(100)
    assert core.state.name == "CONSUMING"
