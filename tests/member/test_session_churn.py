"""Random churn in virtual time: no two members ever work one resource, and when it calms down the group becomes even.

A failure prints the end of its story and its seed. Replay one with ``COBALANCE_SEED=17 pytest
tests/member/test_session_churn.py``, and run more than usual with ``COBALANCE_SEEDS=1000``.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from random import Random

import attrs
import pytest
from tests.harness import Process, World, names, steady

from cobalance.coordinator.requests import Request
from cobalance.member.holding_index import HoldingIndex
from cobalance.member.session import Phase
from cobalance.settings import GroupSettings, MemberSettings
from cobalance_sims.simulate.network import Fate, Network
from proof.consistency import check

SEEDS = (
    [int(os.environ["COBALANCE_SEED"])]
    if "COBALANCE_SEED" in os.environ
    else range(int(os.environ.get("COBALANCE_SEEDS", "60")))
)

USUAL = 15 if os.environ.keys().isdisjoint({"COBALANCE_SEED", "COBALANCE_SEEDS"}) else len(SEEDS) + max(SEEDS)
"""Those below are tried by `make test`; all of them where some are asked for."""

SHAKY = Network(latency_ms=(1, 4), slow=0.2)

MOST_PROCESSES = 5
STEPS = 60


class Churn:
    """One world, and what may happen to it next."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.names = names(self.random.choice([1, 5, 12]))
        self.world = World(self._settings(), seed=seed, created=self.random.random() < 0.5)
        self.world.checks += [records_agree, nothing_is_overlooked]
        self.world.network = SHAKY
        self.trouble = 0.0
        self.world.fate = self._fate
        self._born = 0
        self._outages = 0
        for _ in range(self.random.randint(1, 3)):
            self.join()

    def _settings(self) -> GroupSettings:
        return GroupSettings(
            mode=self.random.choice(["cooperative", "cooperative", "cooperative", "eager"]),
            session_timeout_ms=3_000,
            heartbeat_interval_ms=1_000,
            revocation_timeout_ms=self.random.choice([3_000, 6_000]),
            rejoin_grace_ms=self.random.choice([0, 8_000]),
            gather_ms=self.random.choice([0, 200]),
            moves_per_call=self.random.choice([1, 3, 100]),
        )

    def _fate(self, _process: Process, _request: Request) -> Fate:
        if self.random.random() >= self.trouble:
            return "ok"
        return self.random.choice(["lost", "no_reply", "no_reply", "late"])

    # -- what may happen ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        """Lets one of them happen, and then some time pass."""
        doings: list[tuple[int, Callable[[], None]]] = [
            (4, self.join), (2, self.kill), (2, self.pause), (2, self.stop), (2, self.lose_redis), (1, self.empty_redis),
            (3, self.disturb), (3, self.change_habits), (8, self.commit), (4, self.guard), (3, self.get_busy), (2, self.deafen),
        ]  # fmt: skip
        self.random.choices([do for _, do in doings], [weight for weight, _ in doings])[0]()
        self.world.run(self.random.choice([0, 1, 10, 100, 700, 3_000]))

    def join(self, *, calm: bool = False) -> None:
        """A new process, sometimes with the instance id of a former or a live one."""
        if len(self.world.alive()) >= MOST_PROCESSES:
            return
        self._born += 1
        instance = None if calm else self.random.choice([None, None, "i1", "i2"])
        member = MemberSettings(
            instance_id=instance,
            drain_timeout_ms=2_000,
            max_processing_ms=2_000,
            guarded_outage_ms=self.random.choice([0, 5_000]),
        )
        self.world.start(f"p{self._born}", self.names, member=member)

    def _any(self) -> Process | None:
        running = [process for process in self.world.alive() if process.running]
        return self.random.choice(running) if running else None

    def _any_tenure(self) -> tuple[Process, str] | None:
        working = [(process, name) for process in self.world.alive() for name in sorted(process.works())]
        return self.random.choice(working) if working else None

    def kill(self) -> None:
        """SIGKILL."""
        if process := self._any():
            process.kill()

    def pause(self) -> None:
        """SIGSTOP, and SIGCONT up to two sessions later."""
        if process := self._any():
            process.pause()
            self.world.clock.after(self.random.randrange(7_000), lambda _: process.resume())

    def stop(self) -> None:
        """A graceful leave."""
        if process := self._any():
            process.stop(remain=self.random.random() < 0.5)

    def lose_redis(self) -> None:
        """Unreachable for a while."""
        self.world.redis.up = False
        self._outages += 1
        outage = self._outages
        self.world.clock.after(self.random.choice([100, 2_000, 9_000]), self._redis_returns, outage)

    def _redis_returns(self, outage: int) -> None:
        if outage == self._outages:
            self.world.redis.up = True

    def empty_redis(self) -> None:
        """All data lost."""
        self.world.empty_redis()

    def disturb(self) -> None:
        """The network gets worse, or better."""
        self.trouble = self.random.choice([0.0, 0.0, 0.1, 0.5])

    def change_habits(self) -> None:
        """Handlers become slow, stuck, or fast again."""
        if process := self._any():
            process.habits = steady(
                drain_ms=self.random.choice([0, 10, 500, 2_500, None]), stop_ms=self.random.choice([0, 1, 50, None])
            )

    def commit(self) -> None:
        if found := self._any_tenure():
            process, name = found
            process.commit(name, process.work.tenures[name].done + self.random.randint(0, 3))

    def guard(self) -> None:
        """A broker's guard is proven, or no longer."""
        if found := self._any_tenure():
            process, name = found
            process.work.guard(name, proven=self.random.random() < 0.7)

    def get_busy(self) -> None:
        """A handler begins, ends, or hangs."""
        if found := self._any_tenure():
            process, name = found
            process.busy(name, self.random.choice([None, process.now, process.now - 2_000]))

    def deafen(self) -> None:
        """Hints get lost, or arrive again."""
        if process := self._any():
            process.network = attrs.evolve(SHAKY, hint_lost=1 - process.network.hint_lost)

    # -- calm ----------------------------------------------------------------------------------------------------------

    def calm(self) -> None:
        """All trouble ends, duplicates of an instance id give up, and at least one member is present."""
        self.world.log(None, "calm")
        self.trouble, self.world.redis.up = 0.0, True
        for process in self.world.alive():
            process.habits, process.network = steady(), SHAKY
            if process.paused:
                process.resume()
        self.world.run(5_000)
        for process in self.world.alive():
            if process.session.phase is Phase.JOINING:
                process.kill()
        self.join(calm=True)
        self.world.run(20_000)


def records_agree(world: World) -> None:
    """The coordinator's indices match its records; checked now and then, since it is slow."""
    if world.random.random() < 0.02:
        check(world.records())


def nothing_is_overlooked(world: World) -> None:
    """Each session's index, which is updated by changes, matches a scan of all its tenures."""
    for process in world.alive():
        holdings = process.session.holdings
        kept, found = holdings._filed(), HoldingIndex(holdings._by_name.values())
        for name, pile in vars(found).items():
            if isinstance(pile, dict):
                assert getattr(kept, name) == pile, name
        assert kept.next_clock() == found.next_clock()
        assert kept.token_sum == sum(holdings.tokens())


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=pytest.mark.thorough if seed >= USUAL else ()) for seed in SEEDS]
)
def test_any_churn_ends_in_an_even_group(seed: int) -> None:
    """S2 and increasing tokens hold at every step. When churn stops the group converges (L1), and commits are never
    lost.
    """
    churn = Churn(seed)
    for _ in range(STEPS):
        churn.step()
    churn.calm()
    churn.world.settle(within_ms=120_000)
