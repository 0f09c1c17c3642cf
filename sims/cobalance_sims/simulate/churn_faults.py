"""What happens to the processes of a churn. All of it goes through ``clock.plan``, so that skipping idle time never passes
over it, unlike the faults of the stories, which skip no time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from cobalance_sims.simulate.distributions import Distribution

if TYPE_CHECKING:
    from cobalance_sims.simulate.process import Process
    from cobalance_sims.simulate.world import World

DeployShape = Literal["none", "rolling", "surge", "all_at_once"]
POLL_MS = 100
"""How often a deployment checks whether a process is gone."""


def _start_like(process: Process) -> None:
    it = process.member_settings
    process.world.start(instance=it.instance_id, capacity=it.capacity)


@attrs.frozen
class CrashAndRestart:
    """A process is killed (SIGKILL), and its successor starts some time later."""

    down: Distribution

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None:
            process.kill()
            world.clock.plan(self.down.sample(world.random), _start_like, process)


@attrs.frozen
class Replace:
    """A process is asked to leave (SIGTERM), as on a drained node or a reclaimed spot instance, and another starts."""

    startup: Distribution

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None:
            process.stop(remain=process.member_settings.instance_id is not None)
            _await_gone(process, self.startup)


def _await_gone(process: Process, startup: Distribution) -> None:
    world = process.world
    if process.alive:
        world.clock.plan(POLL_MS, lambda it: _await_gone(it, startup), process)
    else:
        world.clock.plan(startup.sample(world.random), _start_like, process)


@attrs.frozen
class PauseAndResume:
    """A process executes nothing for a while: a garbage collector, a busy or migrating machine, SIGSTOP."""

    length: Distribution

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None:
            process.pause()
            world.clock.plan(self.length.sample(world.random), lambda it: it.resume(), process)


@attrs.frozen
class Cut:
    """A process cannot reach Redis for a while."""

    length: Distribution

    def strike(self, world: World) -> None:
        process = world.pick()
        if process is not None and process.reaches_redis:
            ms = self.length.sample(world.random)
            world.log(process, f"cannot reach Redis for {ms} ms")
            process.reaches_redis = False
            world.clock.plan(ms, self._end, process)

    @staticmethod
    def _end(process: Process) -> None:
        process.reaches_redis = True


@attrs.frozen
class HostDeath:
    """A machine is gone: its processes are, without a word to anybody, and their successors start elsewhere."""

    processes: int
    down: Distribution

    def strike(self, world: World) -> None:
        for _ in range(self.processes):
            process = world.pick()
            if process is not None:
                process.kill(silently=True)
                world.clock.plan(self.down.sample(world.random), _start_like, process)


@attrs.frozen
class Outage:
    """Nobody can reach Redis for a while."""

    length: Distribution

    def strike(self, world: World) -> None:
        if world.redis.up:
            ms = self.length.sample(world.random)
            world.log(None, f"Redis is unreachable for {ms} ms")
            world.redis.set_up(up=False)
            world.clock.plan(ms, self._end, world)

    @staticmethod
    def _end(world: World) -> None:
        world.redis.set_up(up=True)


@attrs.frozen
class ScaleOut:
    """An autoscaler adds a process, unless the maximum is reached."""

    most: int
    capacities: tuple[int, ...] = (1,)
    instances: bool = False

    def strike(self, world: World) -> None:
        """It takes the lowest free instance id, as a StatefulSet does, and the capacity that belongs to it. Without instance
        ids, capacities come in turn.
        """
        if len(world.living) >= self.most:
            return
        number = len(world.processes)
        if self.instances:
            taken = {it.member_settings.instance_id for it in world.living.values()}
            number = next(n for n in range(len(taken) + 1) if f"i{n}" not in taken)
        world.start(
            instance=f"i{number}" if self.instances else None, capacity=self.capacities[number % len(self.capacities)]
        )


@attrs.frozen
class ScaleIn:
    """An autoscaler removes a process for good, unless the minimum is reached."""

    least: int

    def strike(self, world: World) -> None:
        process = world.pick()
        staying = sum(not it.leaving for it in world.living.values())
        if process is not None and staying > self.least:
            process.stop(remain=False)


@attrs.frozen
class Deploy:
    """Every process is replaced: one after the other (``rolling``), the new one before the old one (``surge``), or all
    of them stop before the first new one starts (``all_at_once``).
    """

    shape: DeployShape
    pause_ms: int
    startup: Distribution

    def strike(self, world: World) -> None:
        waiting = [it for it in world.living.values() if not it.leaving]
        if self.shape == "all_at_once":
            for process in waiting:
                self._stop(process)
                _await_gone(process, self.startup)
        elif waiting:
            self._next(waiting)

    def _next(self, waiting: list[Process]) -> None:
        while waiting:
            process = waiting.pop(0)
            if process.alive and not process.leaving:
                if self.shape == "surge":
                    ms = self.startup.sample(process.world.random)
                    process.world.clock.plan(ms, _start_like, process)
                    process.world.clock.plan(ms + self.pause_ms, self._retire, (process, waiting))
                else:
                    self._retire((process, waiting))
                return

    def _retire(self, what: tuple[Process, list[Process]]) -> None:
        process, _ = what
        if process.alive:
            self._stop(process)
        self._await(what)

    def _await(self, what: tuple[Process, list[Process]]) -> None:
        process, waiting = what
        clock = process.world.clock
        if process.alive:
            clock.plan(POLL_MS, self._await, what)
            return
        ms = 0 if self.shape == "surge" else self.startup.sample(process.world.random)
        if self.shape != "surge":
            clock.plan(ms, _start_like, process)
        clock.plan(ms + self.pause_ms, self._next, waiting)

    @staticmethod
    def _stop(process: Process) -> None:
        if not process.leaving:
            process.stop(remain=process.member_settings.instance_id is not None)
