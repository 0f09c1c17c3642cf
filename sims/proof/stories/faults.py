"""What may go wrong, or just happen, as data. The world picks its victims at random."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance_sims.simulate.habits import QUICK, Habits
from cobalance_sims.simulate.network import BAD, DEAF, LAGGING, SOUND, Network

if TYPE_CHECKING:
    from cobalance.settings import GroupSettings
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World


# -- processes -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Arrive:
    count: int = 1
    instances: tuple[str, ...] = ()
    """Instance ids for them, one each; an id that a living process has already is skipped."""
    capacity: int = 1
    settings: GroupSettings | None = None
    """The settings they assume for the group; by default the group's own."""
    wants: tuple[str, ...] | None = None
    """The resources their code names; by default those deployed now."""

    def strike(self, world: World) -> None:
        for number in range(self.count):
            instance = self.instances[number % len(self.instances)] if self.instances else None
            world.start(instance=instance, capacity=self.capacity, settings=self.settings, wants=self.wants)


@attrs.frozen
class Crash:
    """Processes are killed (SIGKILL); one always survives."""

    count: int = 1

    def strike(self, world: World) -> None:
        for _ in range(self.count):
            process = world.pick()
            if process is not None and len(world.living) > 1:
                process.kill()


@attrs.frozen
class Restart:
    """A process is killed and its successor starts, under its instance id if it has one."""

    down_ms: int = 500

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None:
            process.kill()
            world.clock.after(self.down_ms, _start_successor, process)


@attrs.frozen
class Redeploy:
    """Each process leaves gracefully, then its successor starts, one after the other, as in a rolling deploy."""

    remain: bool = False
    every_ms: int = 2_000
    """Interval between processes; all that live now are replaced."""
    wants: tuple[str, ...] | None = None
    """The resources named by the new code and all later processes; by default those of the old code."""

    def strike(self, world: World) -> None:
        if self.wants is not None:
            world.deployed = self.wants
            world.log(None, f"code that names {len(self.wants)} resources is deployed")
        for number, process in enumerate(list(world.living.values())):
            world.clock.after(number * self.every_ms, self._replace, process)

    def _replace(self, process: Process) -> None:
        if process.running and not process.leaving:
            process.stop(remain=self.remain)
            process.world.clock.after(100, self._await_gone, process)

    def _await_gone(self, process: Process) -> None:
        if process.alive:
            process.world.clock.after(100, self._await_gone, process)
        else:
            _start_successor(process, self.wants)


@attrs.frozen
class StopAll:
    """All processes leave gracefully. Once the last has gone, their successors start, a moment after one another."""

    every_ms: int = 20

    def strike(self, world: World) -> None:
        stopped = list(world.living.values())
        for process in stopped:
            if process.running and not process.leaving:
                process.stop(remain=False)
        world.clock.after(100, self._await_gone, (world, stopped))

    def _await_gone(self, stopped: tuple[World, list[Process]]) -> None:
        world, processes = stopped
        if any(process.alive for process in processes):
            world.clock.after(100, self._await_gone, stopped)
            return
        for number, process in enumerate(world.random.sample(processes, len(processes))):
            world.clock.after(number * self.every_ms, _start_successor, process)


def _start_successor(process: Process, wants: tuple[str, ...] | None = None) -> None:
    """It runs the same code unless ``wants`` says otherwise."""
    it = process.member_settings
    process.world.start(instance=it.instance_id, capacity=it.capacity, wants=wants or process.wants)


@attrs.frozen
class Depart:
    """Processes are asked to leave gracefully; one always stays."""

    count: int = 1
    remain: bool = False
    drain_timeout_ms: int | None = None

    def strike(self, world: World) -> None:
        for _ in range(self.count):
            process = world.pick()
            staying = sum(not it.leaving for it in world.living.values())
            if process is not None and staying > 1:
                process.stop(remain=self.remain)


@attrs.frozen
class Pause:
    """A process is frozen (SIGSTOP) and resumed later (SIGCONT)."""

    ms: int = 5_000

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None:
            process.pause()
            world.clock.after(self.ms, lambda it: it.resume(), process)


@attrs.frozen
class Suspend:
    """A machine sleeps for a while, as with a closed lid. Its process's clock runs on, and the network comes back some time
    after it wakes up.
    """

    ms: int = 20_000
    network_ms: int = 3_000

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None:
            process.pause()
            process.reaches_redis = False
            world.clock.after(self.ms, lambda it: it.resume(), process)
            world.clock.after(self.ms + self.network_ms, self._connect, process)

    @staticmethod
    def _connect(process: Process) -> None:
        process.reaches_redis = True


@attrs.frozen
class Stall:
    """The machine is busy, or suspended: processes freeze at the same time, each for a while of its own."""

    shortest_ms: int
    longest_ms: int
    count: int = 1_000
    """How many of them at most."""

    def strike(self, world: World) -> None:
        for process in world.running()[: self.count]:
            process.pause()
            ms = world.random.randint(self.shortest_ms, self.longest_ms)
            world.clock.after(ms, lambda it: it.resume(), process)


@attrs.frozen
class Behave:
    """The handlers of some processes behave differently for a while: slow, stuck, unstoppable."""

    habits: Habits
    ms: int = 20_000
    count: int = 1

    def strike(self, world: World) -> None:
        for _ in range(self.count):
            process = world.pick()
            if process is not None:
                process.habits = self.habits
                world.clock.after(self.ms, self._end, process)

    @staticmethod
    def _end(process: Process) -> None:
        process.habits = QUICK


@attrs.frozen
class CommitSome:
    """A user commits a few offsets, now and then a lower one by mistake."""

    count: int = 1

    def strike(self, world: World) -> None:
        for _ in range(self.count):
            process = world.pick()
            if process is not None and process.work.tenures:
                names = sorted(process.work.tenures)
                tenure = process.work.tenures[names[world.random.randrange(len(names))]]
                step = -1 if world.random.random() < 0.03 else world.random.randint(0, 3)
                process.commit(tenure.resource, max(0, tenure.done + step))


# -- the network ---------------------------------------------------------------------------------------------------------


@attrs.frozen
class Disturb:
    """The network of all processes changes for a while."""

    network: Network = BAD
    ms: int = 10_000

    def strike(self, world: World) -> None:
        for process in world.living.values():
            process.network = self.network
        world.clock.after(self.ms, self._end, world)

    @staticmethod
    def _end(world: World) -> None:
        for process in world.living.values():
            process.network = SOUND


@attrs.frozen
class CutOff:
    """Some processes cannot reach Redis for a while; the others can."""

    ms: int = 15_000
    count: int = 1

    def strike(self, world: World) -> None:
        for _ in range(self.count):
            process = world.pick()
            if process is not None:
                world.log(process, f"cannot reach Redis for {self.ms} ms")
                process.reaches_redis = False
                world.clock.after(self.ms, self._end, process)

    @staticmethod
    def _end(process: Process) -> None:
        process.reaches_redis = True


@attrs.frozen
class Fade:
    """A process's connection to Redis becomes slow; then the process is cut off, or freezes."""

    slow_ms: int = 4_000
    ms: int = 9_000
    freezes: bool = False

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None:
            world.log(process, "has a slow line")
            process.network = LAGGING
            world.clock.after(self.slow_ms, self._break, process)

    def _break(self, process: Process) -> None:
        if process.network is not LAGGING:
            return  # the trouble has ended
        process.network = SOUND
        if self.freezes and process.running:
            process.pause()
        elif not self.freezes:
            process.reaches_redis = False
        process.world.clock.after(self.ms, self._end, process)

    @staticmethod
    def _end(process: Process) -> None:
        process.reaches_redis = True
        process.resume()


# -- Redis ---------------------------------------------------------------------------------------------------------------


@attrs.frozen
class Outage:
    """No process can reach Redis for a while."""

    ms: int = 5_000

    def strike(self, world: World) -> None:
        world.log(None, f"Redis is unreachable for {self.ms} ms")
        world.redis.set_up(up=False)
        world.clock.after(self.ms, self._end, world)

    @staticmethod
    def _end(world: World) -> None:
        world.log(None, "Redis is back")
        world.redis.set_up(up=True)


@attrs.frozen
class Freeze:
    """Redis freezes for a while (SIGSTOP, a slow fork): what arrives meanwhile is served when it resumes."""

    ms: int = 3_000

    def strike(self, world: World) -> None:
        world.log(None, f"Redis stands still for {self.ms} ms")
        world.redis.freeze(self.ms)


@attrs.frozen
class Empty:
    """Redis forgets everything; ``restarted`` gives it another run id as well."""

    restarted: bool = True

    def strike(self, world: World) -> None:
        world.log(None, "Redis loses its data")
        world.redis.empty()
        world.watch.data_lost(-1)
        if self.restarted:
            world.replace_redis()


@attrs.frozen
class Die:
    """A script dies between its writes, as when the user's permission for a command is withdrawn."""

    most: int = 60
    """It dies at one of this many writes to come."""

    def strike(self, world: World) -> None:
        """The caller whose script makes that write gets no answer."""
        world.redis.store.die_at(world.random.randint(1, self.most))


@attrs.frozen
class Remember:
    """A replica, or a backup, is up to date at this moment and lags from then on."""

    def strike(self, world: World) -> None:
        world.redis.remember()


@attrs.frozen
class Stale:
    """The lagging replica takes over: another server, or one that was demoted to a replica and promoted again, so that
    its run id or its replication id differs. Not ``restarted`` means that the older data was put back in place: nothing
    reveals it.
    """

    restarted: bool = True

    def strike(self, world: World) -> None:
        """What came after the last :class:`Remember` never happened."""
        memory = world.redis.memory
        if memory is None:
            return
        world.log(None, f"Redis comes back as it was at {memory.at} ms")
        world.redis.restore()
        if self.restarted:
            world.replace_redis()
        world.watch.data_lost(memory.at)


@attrs.frozen
class StepClock:
    """The clock of the Redis machine is set."""

    ms: int

    def strike(self, world: World) -> None:
        world.log(None, f"the clock of Redis is set by {self.ms} ms")
        world.redis.step_clock(self.ms)


# -- the group -----------------------------------------------------------------------------------------------------------


@attrs.frozen
class Declare:
    """The resource list changes to this many names, more or fewer than before."""

    count: int

    def strike(self, world: World) -> None:
        world.declare(names(self.count))


@attrs.frozen
class Publish:
    """Publishes messages for partitions; most of them for the first one if it is ``hot``."""

    count: int = 1
    hot: bool = False

    def strike(self, world: World) -> None:
        wanted = world.wanted()
        if world.broker is None or not wanted:
            return
        for _ in range(self.count):
            is_hot = self.hot and world.random.random() < 0.8
            world.broker.publish(wanted[0 if is_hot else world.random.randrange(len(wanted))])


DEAFEN = Disturb(DEAF)


def names(count: int, first: int = 0) -> tuple[str, ...]:
    """Returns that many resource names, sorted."""
    return tuple(sorted(f"r{number}" for number in range(first, first + count)))
