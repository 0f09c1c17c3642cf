"""The checkers for members that name different resources see the violation that is planted for them, and no other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.sims.stage import Stage

from cobalance_sims.simulate.checks import S5, S6, S8, Check, S6Lists, S6Returns, Violation
from cobalance_sims.simulate.checks.liveness import why_unsettled
from cobalance_sims.simulate.process import Process
from cobalance_sims.simulate.run import Run
from proof.stories.scenarios import SCENARIOS


def _joined(stage: Stage, *wants: str) -> Process:
    """A member whose code names these, and which the group knows about."""
    process = stage.world.start(wants=wants)
    stage.world.clock.run(1_000)
    return process


def _two(stage: Stage) -> tuple[str, str]:
    """Two members: one works a and b, the other b and c."""
    stage.first.kill()
    stage.second.kill()
    stage.world.redis.create()
    one, other = _joined(stage, "a", "b"), _joined(stage, "b", "c")
    stage.world.clock.run(2_000)
    return one.session.member, other.session.member


def _s8_grants_what_is_not_named(stage: Stage) -> None:
    one, _ = _two(stage)
    stage.entry("granted", resource="c", member=one, token=5)


def _s8_leaves_what_is_not_named(stage: Stage) -> None:
    one, _ = _two(stage)
    stage.entry("claimed", resource="c", member=one, token=5)
    stage.entry("revoking", resource="c", member=one, token=5)
    stage.entry("cancelled", resource="c", member=one, token=5)


def _s8_keeps_what_nobody_names(stage: Stage) -> None:
    _two(stage)
    stage.entry("added", resource="d")
    stage.let_pass(8_000)


def _s8_keeps_what_nobody_names_after_a_barrier(stage: Stage) -> None:
    one, _ = _two(stage)
    stage.entry("barrier")
    stage.let_pass(8_000)
    stage.entry("granted", resource="a", member=one, token=5)
    stage.entry("added", resource="d")
    stage.let_pass(8_000)


def _s8_grants_what_the_groups_own_list_does_not_name(stage: Stage) -> None:
    stage.world.redis.create()
    stage.world.declare(("r",))
    stage.world.clock.run(2_000)
    stage.entry("granted", resource="s", member=stage.first.session.member, token=5)


def _s5_leaves_free_what_one_of_two_names(stage: Stage) -> None:
    _, other = _two(stage)
    stage.entry("released", resource="c", member=other)
    stage.let_pass(8_000)


def _s6_asks_back_for_nobody(stage: Stage) -> None:
    one, _ = _two(stage)
    stage.entry("revoking", resource="a", member=one, token=5, reason="rebalance")


def _s6_gives_back_to_the_giver(stage: Stage) -> None:
    one, other = _two(stage)
    holder = stage.world.redis.ledger.resources["b"].owner
    assert holder in (one, other)
    stage.entry("abandoned", resource="b", member=holder, token=5, reason="deadline")
    stage.entry("granted", resource="b", member=holder, token=6)


def _s6_is_uneven(stage: Stage) -> None:
    one, _ = _two(stage)
    for name in "def":
        stage.held(name, one, 5)
    stage.world.watch.settled()


PLANTED: list[tuple[type[Check], Callable[[Stage], None]]] = [
    (S8, _s8_grants_what_is_not_named),
    (S8, _s8_leaves_what_is_not_named),
    (S8, _s8_keeps_what_nobody_names),
    (S8, _s8_keeps_what_nobody_names_after_a_barrier),
    (S8, _s8_grants_what_the_groups_own_list_does_not_name),
    (S5, _s5_leaves_free_what_one_of_two_names),
    (S6Lists, _s6_asks_back_for_nobody),
    (S6Returns, _s6_gives_back_to_the_giver),
    (S6, _s6_is_uneven),
]


@pytest.mark.parametrize(("check", "plant"), PLANTED, ids=[plant.__name__[1:] for _, plant in PLANTED])
def test_a_planted_violation_is_seen(check: type[Check], plant: Callable[[Stage], None]) -> None:
    """The checker of that promise objects."""
    stage = Stage(check)
    with pytest.raises(Violation) as caught:
        plant(stage)
    assert caught.value.promise == check.promise


def test_nothing_else_is_asked_of_a_group_whose_members_differ() -> None:
    """A member keeps what only it can work, and what no member can work waits."""
    stage = Stage(S5)
    _two(stage)
    assert why_unsettled(stage.world) == ""
    stage.world.start(wants=("z",), capacity=0)
    stage.world.clock.run(8_000)
    stage.world.watch.settled()
    assert stage.world.redis.ledger.free == {"z"}
    assert why_unsettled(stage.world) == ""


@pytest.mark.parametrize("name", sorted(it for it in SCENARIOS if it.startswith("deploy_")))
def test_a_deploy_that_changes_the_lists_keeps_every_promise(name: str) -> None:
    """And members with different lists were in the group at the same time."""
    seed = 2 if name == "deploy_static" else 1  # with which something is let go of
    outcome = Run(SCENARIOS[name], seed, verbose=False).tell()
    assert not outcome.failure
    assert outcome.reached.counts["different lists"]
    assert outcome.reached.counts["let go of"] or name == "deploy_adds"
