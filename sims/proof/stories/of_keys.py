"""Keys of a group are deleted by hand, or evicted, while its members work."""

from __future__ import annotations

from random import Random
from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.keys import NAMES, group_keys
from cobalance.coordinator.transport import Script
from cobalance.ownership import Ownership, Standing
from cobalance_sims.simulate.checks import L1, S1, S2, S5, S8, Check
from cobalance_sims.simulate.run import Run
from cobalance_sims.simulate.scenario import QUICKENED, At, Scenario, Step
from cobalance_sims.simulate.server import GROUP
from proof.consistency import broken_rule
from proof.records import Records
from proof.stories import faults as f
from proof.stories.faults import names

if TYPE_CHECKING:
    from cobalance_sims.simulate.world import World

KEYS = dict(zip(NAMES, group_keys(GROUP), strict=True))
GONE = Script.of("gone", "return redis.call('UNLINK', KEYS[1])")

LOOK_MS, LOOKS = 250, 240


@attrs.frozen
class DeleteKey:
    """One key is gone. The journal does not say what was lost with it, so the ledger goes by the records for a minute."""

    key: str | None = None
    """Its name; by default one at random."""

    def strike(self, world: World) -> None:
        """Nobody is notified; what was recorded there only is lost."""
        key = self.key or NAMES[world.random.randrange(len(NAMES))]
        if world.redis.transport.call(GONE, (KEYS[key],), ()):
            world.log(None, f"the key {key} is gone")
            world.redis.forgot_some()
            _look(world, LOOKS)


@attrs.frozen
class DeleteKeys:
    """All keys are deleted one after the other, in some order, as by a loop over SCAN."""

    every_ms: int = 20
    most: int = len(NAMES)
    """How many of them, before their deletion is interrupted."""

    def strike(self, world: World) -> None:
        """Each as :class:`DeleteKey`."""
        for number, key in enumerate(world.random.sample(NAMES, self.most)):
            world.clock.after(number * self.every_ms, DeleteKey(key).strike, world)


def _look(world: World, times: int) -> None:
    records = Records.read(world.redis.store.dump())
    if not records.is_under_repair:
        world.redis.ledger = ledger_of(records, world.redis.ledger, world.now)
    if times > 0:
        world.clock.after(LOOK_MS, lambda it: _look(it, times - 1), world)


def ledger_of(records: Records, before: Ownership, now: int) -> Ownership:
    """Who owns what on record. What has not changed is as old as it was ``before``."""
    made = Ownership(recovering=records.number("recovering") > 0, barrier=records.number("barrier") > 0)
    made.members = {id_: it.status for id_, it in records.members.items() if it.is_counted}
    for name, it in records.resources.items():
        owner, is_pending = "" if it.owner == "-" else it.owner, it.status == "pending"
        old = before.resources.get(name, Standing(since=now))
        since = old.since if old.owner == owner else now
        pending_since = (now if old.pending_since is None else old.pending_since) if is_pending else None
        is_halted = it.status == "halted"
        made.resources[name] = Standing(
            owner, it.token, since, pending_since, it.removing, is_halted, is_halted and "@" in it.avoid
        )
        if it.status == "free":
            made.free.add(name)
        elif pending_since is not None:
            made.pending[name] = pending_since
        elif owner:
            made.kept[owner] += 1
    return made


class Consistent(Check):
    """Once everything has come to rest, indices and counters agree with the records."""

    promise = "R1"

    def settled(self) -> None:
        """Looks at all rules."""
        rule, culprits = broken_rule(Records.read(self.world.redis.store.dump()))
        if rule:
            self.broken(f"{rule}: {', '.join(culprits)}")


CHECKS: tuple[type[Check], ...] = (S1, S2, S5, S8, L1, Consistent)
"""What holds whatever is deleted. Who owned what is lost with the records, so nothing else can be judged."""


def key_gone(key: str, seed: int) -> Run:
    """One key is gone, while processes with or without lists come, leave and crash."""
    return _run(f"{key} is gone", seed, (At(20_000, DeleteKey(key), jitter_ms=2_000),))


def keys_gone(seed: int) -> Run:
    """All keys go one after the other, or some of them."""
    random = Random(seed)
    most = random.choice([2, 3, 4, len(NAMES)])
    return _run("keys are gone", seed, (At(20_000, DeleteKeys(random.choice([1, 20, 300]), most), jitter_ms=2_000),))


def _run(name: str, seed: int, deletions: tuple[Step, ...]) -> Run:
    random = Random(seed)
    churn = (f.Arrive(), f.Depart(), f.Crash(), f.Restart(), f.Arrive(wants=names(14)))
    plan = [At(random.choice([19_000, 20_100, 20_500, 24_000, 45_000]), fault, jitter_ms=500) for fault in churn]
    scenario = Scenario(
        name=name,
        summary="",
        plan=(*deletions, *random.sample(plan, 3)),
        members=random.choice([2, 4]),
        wants=names(12) if seed % 2 else None,
        instances=seed % 3 == 0,
        settings=attrs.evolve(QUICKENED, rejoin_grace_ms=4_000),
        length_ms=75_000,
    )
    return Run(scenario, seed, checks=CHECKS)
