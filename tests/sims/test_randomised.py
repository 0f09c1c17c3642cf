"""Rebalanser's randomised runs in virtual time, with its own numbers of members and resources.

At every interval one of its members starts or stops, or a resource comes or goes. Its monitor then looks for two
members at one resource, and, where the interval leaves time for it, checks whether everything is assigned. Here all
promises are checked after every step; members are also killed and frozen, which Rebalanser's never are; and evenness is
required as well. No run gets more time than Rebalanser gives: its five minutes between the changes of a large group are
one. A quarter of its changes is run; ``COBALANCE_SHARE=1`` runs all of them.
"""

from __future__ import annotations

import os
from typing import Literal

import attrs
import pytest

from cobalance.settings import GroupSettings
from cobalance_sims.simulate.checks.liveness import why_unsettled
from cobalance_sims.simulate.habits import QUICK, Habits
from cobalance_sims.simulate.run import Run
from cobalance_sims.simulate.scenario import Scenario
from proof.stories.faults import Pause

Mode = Literal["cooperative", "eager"]

SHARE = float(os.environ.get("COBALANCE_SHARE", "0.25"))

# Near Rebalanser's: sessions of 20 s in its tests.
SETTINGS = GroupSettings(
    session_timeout_ms=18_000,
    heartbeat_interval_ms=6_000,
    revocation_timeout_ms=24_000,
    rejoin_grace_ms=0,
    gather_ms=500,
)
SLOW_HANDLERS = Habits(drain_ms=(0, 10_000), close_ms=(0, 10_000), stop_ms=(0, 50))


@attrs.frozen(kw_only=True)
class Config:
    """One of its runs. A full check follows every interval; a conditional one every fifth, after two more minutes."""

    members: int
    resources: int
    interval_s: int
    check: Literal["full", "conditional", "double"]
    changes: int = 120
    """How many changes its two (or eight) hours hold."""
    random_interval: bool = False
    habits: Habits = QUICK
    partitions: bool = False
    """Whether there is a broker, which keeps connections of dead clients for a while (hence OnAssignmentDelay)."""


LOW = Config(members=3, resources=6, interval_s=60, check="full")
MEDIUM_LOW = Config(members=10, resources=5, interval_s=60, check="full")
MEDIUM = Config(members=10, resources=60, interval_s=60, check="full")
LARGE = Config(members=30, resources=200, interval_s=60, check="full", changes=24)
VERY_LARGE = Config(members=100, resources=1_000, interval_s=60, check="full", changes=24)
SMALL_LARGE = Config(members=10, resources=200, interval_s=60, check="full", changes=96)
SHORT = attrs.evolve(MEDIUM, interval_s=10, random_interval=True, check="conditional", changes=250)
DELAYED = attrs.evolve(SHORT, partitions=True)
DOUBLE = attrs.evolve(LOW, interval_s=5, check="double", changes=1_440)
WAITING = attrs.evolve(DOUBLE, habits=SLOW_HANDLERS)

RUNS: dict[str, tuple[Mode, Config]] = {
    f"{mode}-{name}": (mode, config)
    for name, config in (
        ("low", LOW), ("medium-low", MEDIUM_LOW), ("medium", MEDIUM), ("large", LARGE), ("very-large", VERY_LARGE),
        ("small-large", SMALL_LARGE), ("short", SHORT), ("delayed", DELAYED), ("double", DOUBLE), ("waiting", WAITING),
    )
    for mode in ("cooperative", "eager")
}  # fmt: skip


class Randomised:
    """One of Rebalanser's runs."""

    def __init__(self, mode: Mode, config: Config, seed: int) -> None:
        self.config = config
        scenario = Scenario(
            name="randomised",
            summary="members and resources come and go",
            plan=(),
            members=config.members,
            resources=config.resources,
            settings=attrs.evolve(SETTINGS, mode=mode),
            habits=config.habits,
            partitions=config.partitions,
        )
        self.run = Run(scenario, seed, verbose=config.members <= 10)
        self.world = self.run.world
        self.random = self.world.random
        self.changes = self.checks = 0
        self.ever: set[str] = set()

    def tell(self) -> None:
        """Runs to the end; a broken promise raises where it is broken."""
        self.run.begin()
        self.world.clock.run(30_000)
        for _ in range(int(self.config.changes * SHARE)):
            self._change()
            most_ms = self.config.interval_s * 1_000
            self.world.clock.run(self.random.randrange(most_ms) if self.config.random_interval else most_ms)
            self._check()
        if self.world.broker is not None:  # what was taken from the list comes back, with the messages it still has
            self.world.declare(self.ever)
        self.run.calm()

    def _change(self) -> None:
        self.changes += 1
        if self.random.random() < 0.5:
            self._change_members()
        else:
            self._change_resources()
        if self.world.broker is not None:
            for name in self.world.resources:
                self.world.broker.publish(name)

    def _change_members(self) -> None:
        """Picks a random slot: its member stops, is killed or freezes, or one starts there."""
        if self.random.randrange(self.config.members) >= len(self.world.living):
            self.world.start()
            return
        process = self.world.pick()
        if process is None:
            return
        match self.random.randrange(4):
            case 0:
                process.kill()
            case 1:
                Pause(self.random.randrange(2 * SETTINGS.session_timeout_ms)).strike(self.world)
            case _:
                process.stop(remain=False)

    def _change_resources(self) -> None:
        names = list(self.world.resources)
        if self.random.random() < 0.5 or not names:
            names.append(f"new{self.changes}")
        else:
            names.pop(self.random.randrange(len(names)))
        self.ever.update(self.world.resources, names)
        self.world.declare(names)

    def _check(self) -> None:
        if self.config.check == "double" or not self.world.living:
            return
        if self.config.check == "conditional":
            if self.changes % 5:
                return
            self.world.clock.run(120_000)
        self.checks += 1
        assert why_unsettled(self.world) == "", "\n".join(list(self.world.trace.lines)[-60:])


QUICK_RUNS = {f"{mode}-{name}" for mode in ("cooperative", "eager") for name in ("low", "medium-low")}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name in QUICK_RUNS else pytest.mark.thorough) for name in RUNS]
)
@pytest.mark.thorough
def test_a_randomised_run_keeps_every_promise(name: str) -> None:
    """Never two at one resource, everything assigned and even in time, and the group at rest in the end."""
    mode, config = RUNS[name]
    it = Randomised(mode, config, seed=len(name))
    it.tell()
    assert (it.checks > 0) == (config.check != "double")
