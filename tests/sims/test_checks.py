"""Each checker sees the violation that is planted for it, and is silent where the promise is kept."""

from __future__ import annotations

from collections.abc import Callable

import attrs
import pytest
from tests.sims.stage import Stage

from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Header, Release, ReleaseItem, Request
from cobalance.member import actions as act
from cobalance_sims.simulate.checks import L1, L2, L3, M1, S1, S2, S3, S4, S5, S6, S7, Check, S6Poison, Violation
from cobalance_sims.simulate.checks.liveness import why_unsettled
from cobalance_sims.simulate.checks.sharing import retained
from cobalance_sims.simulate.scenario import QUICKENED
from cobalance_sims.simulate.server import Silence
from cobalance_sims.simulate.work import SimulatedTenure
from cobalance_sims.simulate.world import World
from proof.stories.faults import Arrive


def _s1_repeats_a_token(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.entry("released", resource="r", member="p1.1", token=5)
    stage.entry("granted", resource="r", member="p2.1", token=5)


def _s1_repeats_a_token_over_data_loss(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.world.redis.empty()
    stage.held("r", "p2.1", 4)


def _s1_takes_a_lower_claim(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.entry("claimed", resource="r", member="p2.1", token=4)


def _s1_has_two_holders(stage: Stage) -> None:
    stage.start(stage.first, 5)
    stage.start(stage.second, 5)


def _s1_starts_again(stage: Stage) -> None:
    stage.start(stage.first, 5)
    stage.start(stage.first, 5)


def _s1_starts_below(stage: Stage) -> None:
    stage.start(stage.first, 5)
    stage.start(stage.second, 4)


def _s2_has_two_at_work(stage: Stage) -> None:
    stage.world.became_active(stage.first, SimulatedTenure("r", 1))
    stage.world.became_active(stage.second, SimulatedTenure("r", 2))


def _s2_releases_what_is_still_worked(stage: Stage) -> None:
    stage.first.work.begin("r", 5, None)
    request = Request(Header("p1.1", 1), Release((ReleaseItem(resource="r", token=5, reason="deadline"),)))
    stage.world.watch.executed(stage.first, request, CoordinatorReply(status="OK", results=("OK",)))


def _s3_frees_for_a_stranger(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.entry("released", resource="r", member="p2.1", token=5)


def _s3_frees_an_old_token(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.entry("released", resource="r", member="p1.1", token=4)


def _s3_takes_a_commit_of_an_old_token(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.commit(1, 4, 10)


def _s3_takes_a_release_of_an_old_token(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.entry("released", resource="r", member="p1.1", token=5)
    request = Request(Header("p1.1", 1), Release((ReleaseItem(resource="r", token=4),)))
    stage.world.watch.executed(stage.first, request, CoordinatorReply(status="OK", results=("OK",)))


def _s4_accepts_less(stage: Stage) -> None:
    stage.commit(1, 5, 10)
    stage.commit(2, 5, 9)


def _s4_forgets(stage: Stage) -> None:
    stage.commit(1, 5, 10)
    stage.start(stage.second, 6, 9)


def _s4_ends_below(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.commit(1, 5, 10)
    stage.entry("expired", resource="r", member="p1.1", token=5, committed=3)


def _s5_leaves_one_free(stage: Stage) -> None:
    stage.entry("joined", member=stage.first.session.member)
    stage.entry("added", resource="r")
    stage.let_pass(8_000)


def _s5_lets_the_dead_hold(stage: Stage) -> None:
    stage.entry("joined", member=stage.first.session.member)
    stage.entry("joined", member="px.1")
    stage.held("r", "px.1", 5)
    stage.entry("expired_member", member="px.1")
    stage.let_pass(8_000)


def _s6_drains_unasked(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.world.watch.asked_back(stage.first, act.Drain("r", 5, 0))


def _s6_moves_too_many(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.entry("joined", member="p2.1")
    for number in range(4):
        stage.held(f"r{number}", "p1.1" if number < 2 else "p2.1", number + 1)
    stage.check.second()
    stage.entry("joined", member="p3.1")
    for number in (0, 2):
        stage.entry("revoking", resource=f"r{number}", member="p1.1", token=number + 1, reason="rebalance")
        stage.entry("released", resource=f"r{number}", member="p1.1", token=number + 1)
        stage.entry("granted", resource=f"r{number}", member="p3.1", token=number + 10)
    stage.check.second()


def _s6_moves_for_nobody(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.entry("joined", member="p2.1")
    stage.held("r0", "p1.1", 1)
    stage.held("r1", "p2.1", 2)
    stage.check.second()
    stage.entry("revoking", resource="r0", member="p1.1", token=1, reason="rebalance")
    stage.entry("released", resource="r0", member="p1.1", token=1)
    stage.entry("granted", resource="r0", member="p1.1", token=3)
    stage.check.second()


def _s6_drains_needlessly(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    for number in range(3):
        stage.held(f"r{number}", "p1.1", number + 1)
    stage.entry("revoking", resource="r0", member="p1.1", token=1, reason="rebalance")
    stage.let_pass(8_000)


def _s6_moves_others_for_what_nobody_can_work(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.held("poison", "p1.1", 1)
    stage.let_pass(30_000)
    for token in range(2, 6):
        stage.entry("abandoned", resource="poison", member="p1.1", token=token - 1, reason="hung")
        stage.entry("granted", resource="poison", member="p1.1", token=token)
        stage.entry("revoking", resource="r", member="p1.1", token=9, reason="rebalance")


def _s6_tries_again_what_nobody_can_work(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.held("poison", "p1.1", 1)
    for token in range(2, 4):
        stage.entry("abandoned", resource="poison", member="p1.1", token=token - 1, reason="cancelled")
        stage.entry("granted", resource="poison", member="p1.1", token=token)


def _pause(stage: Stage, token: int, sessions: int, *, asked_back: bool = False) -> None:
    """It is granted once more, given up, and paused for so many session timeouts."""
    stage.entry("granted", resource="poison", member="p1.1", token=token)
    if asked_back:
        stage.entry("revoking", resource="poison", member="p1.1", token=token)
    stage.entry("abandoned", resource="poison", member="p1.1", token=token, reason="hung")
    deadline_ms = stage.at_ms + sessions * QUICKENED.session_timeout_ms
    stage.entry("halted", resource="poison", reason="paused", deadline_ms=deadline_ms)
    stage.entry("resumed", resource="poison")


def _s6_pauses_no_longer_each_time(stage: Stage) -> None:
    stage.entry("added", resource="poison")
    _pause(stage, 1, 1)
    _pause(stage, 2, 1)


def _s6_forgets_the_pauses_too_soon(stage: Stage) -> None:
    stage.entry("added", resource="poison")
    _pause(stage, 1, 1)
    stage.at_ms += 3 * QUICKENED.session_timeout_ms + 600_000
    _pause(stage, 2, 1)


def _pauses_as_long_as_before(stage: Stage) -> None:
    """What was being asked back anyway is not counted."""
    stage.entry("added", resource="poison")
    _pause(stage, 1, 1, asked_back=True)
    _pause(stage, 2, 2)
    _pause(stage, 3, 2, asked_back=True)
    _pause(stage, 4, 4)


def _s6_pauses_shorter_when_asked_back(stage: Stage) -> None:
    _pauses_as_long_as_before(stage)
    _pause(stage, 5, 3, asked_back=True)


def _s6_pauses_no_longer_after_it_was_asked_back(stage: Stage) -> None:
    _pauses_as_long_as_before(stage)
    _pause(stage, 5, 4, asked_back=True)
    _pause(stage, 6, 4)


def _s6_is_uneven(stage: Stage) -> None:
    stage.world.clock.run(10)
    for number in range(3):
        stage.held(f"r{number}", stage.first.session.member, number + 1)
    stage.world.watch.settled()


def _s7_joins_twice(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.entry("joined", member="p1.1")


def _s7_has_two_of_one_name(stage: Stage) -> None:
    stage.world.redis.create()
    _join_twice_as_i(stage)


def _join_twice_as_i(stage: Stage) -> None:
    first = stage.world.start(instance="i")
    stage.world.clock.run(1_000)
    assert first.session.phase.value == "active"
    stage.world.watch.joined(stage.world.start(instance="i"))


def _s7_has_two_of_one_name_long_after_a_loss(stage: Stage) -> None:
    stage.world.redis.create()
    stage.world.redis.lost_data += 1
    stage.world.watch.data_lost(-1)
    stage.world.clock.run(3 * QUICKENED.session_timeout_ms)
    stage.world.redis.disturbed()
    _join_twice_as_i(stage)


def _l1_never_converges(stage: Stage) -> None:
    stage.world.resources = ("r",)
    stage.world.redis.up = False
    assert isinstance(stage.check, L1)
    stage.check.converge()


def _l1_goes_on_changing(stage: Stage) -> None:
    stage.world.redis.create()
    stage.world.clock.run(1_000)
    stage.world.clock.after(1_000, Arrive().strike, stage.world)
    assert isinstance(stage.check, L1)
    stage.check.stay(5_000)


def _killed_before_a_silence(stage: Stage, *, has_more: bool) -> None:
    """Its session ended in a silence that began too late to be an excuse, and there has been one call since."""
    world = stage.world
    stage.entry("joined", member="p1.1")
    stage.first.kill()
    silence = Silence(QUICKENED.session_timeout_ms - 1_000, 60_000)
    world.redis.silences.append(silence)
    world.redis.lulls.append(silence)
    world.clock.now = world.redis.heard_at = 60_000
    world.redis.has_more = has_more
    stage.check.second()


def _l3_is_not_noticed_by_the_call_after_a_silence(stage: Stage) -> None:
    _killed_before_a_silence(stage, has_more=False)


def _l3_is_noticed_by_none_of_the_calls_after_a_silence(stage: Stage) -> None:
    _killed_before_a_silence(stage, has_more=True)
    stage.let_pass(4_000)


def _graced_until_a_lull(stage: Stage) -> None:
    """Its rejoin grace ended in a lull, and the call after that made the one move that it may."""
    world, grace_ms = stage.world, 20_000
    world.settings = attrs.evolve(QUICKENED, rejoin_grace_ms=grace_ms)
    stage.entry("joined", member="p1.1")
    stage.held("r", "p1.1", 5)
    stage.held("s", "p1.1", 6)
    stage.first.kill()
    stage.let_pass(QUICKENED.session_timeout_ms)
    stage.entry("graced", member="p1.1", reason="expired")
    stage.let_pass(grace_ms - 1_000)
    lull = Silence(world.now, world.now + 3 * QUICKENED.heartbeat_interval_ms)
    world.redis.lulls.append(lull)
    world.clock.now = world.redis.heard_at = lull.ended
    world.redis.has_more = True
    stage.entry("expired_member", member="p1.1", reason="grace")
    stage.entry("expired", resource="r", member="p1.1", token=5)
    stage.check.second()


def _l3_is_healed_of_half_after_a_grace(stage: Stage) -> None:
    _graced_until_a_lull(stage)
    stage.let_pass(QUICKENED.heartbeat_interval_ms + 2_000)


def _killed_behind_others(stage: Stage) -> None:
    """Each call makes one move, and leaves more to the next one."""
    stage.world.settings = attrs.evolve(QUICKENED, moves_per_call=1)
    stage.world.redis.has_more = True
    stage.entry("joined", member="p1.1")
    stage.first.kill()
    stage.let_pass(QUICKENED.session_timeout_ms + 4 * QUICKENED.heartbeat_interval_ms)


def _l3_is_healed_by_none_of_many_calls(stage: Stage) -> None:
    _killed_behind_others(stage)
    stage.let_pass(2 * QUICKENED.heartbeat_interval_ms)


def _l2_stays_pending(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.entry("revoking", resource="r", member="p1.1", token=5)
    stage.let_pass(30_000)


def _l3_is_never_healed(stage: Stage) -> None:
    stage.held("r", "p1.1", 5)
    stage.first.kill()
    stage.let_pass(30_000)


def _l3_is_healed_of_a_former_member_only(stage: Stage) -> None:
    stage.entry("joined", member="p1.1")
    stage.entry("joined", member="p1.2")
    stage.held("r", "p1.2", 5)
    stage.first.kill()
    stage.entry("expired_member", member="p1.1")
    stage.let_pass(30_000)


def _m1_skips(stage: Stage) -> None:
    stage.world.watch.handled(stage.first, "q", 1, 1)
    stage.world.watch.handled(stage.first, "q", 1, 3)


def _m1_reorders(stage: Stage) -> None:
    for seq in (1, 2, 1):
        stage.world.watch.handled(stage.first, "q", 1, seq)


def _m1_begins_too_far_on(stage: Stage) -> None:
    stage.world.watch.handled(stage.first, "q", 1, 1)
    stage.world.watch.handled(stage.second, "q", 2, 3)


def _m1_repeats_what_was_acknowledged(stage: Stage) -> None:
    stage.world.watch.handled(stage.first, "q", 1, 1)
    stage.world.watch.acked("q", 1)
    stage.world.watch.handled(stage.second, "q", 2, 1)


def _m1_loses(stage: Stage) -> None:
    assert stage.world.broker is not None
    stage.world.broker.publish("q")
    stage.world.watch.settled()


PLANTED: list[tuple[type[Check], Callable[[Stage], None]]] = [
    (S1, _s1_repeats_a_token),
    (S1, _s1_repeats_a_token_over_data_loss),
    (S1, _s1_takes_a_lower_claim),
    (S1, _s1_has_two_holders),
    (S1, _s1_starts_again),
    (S1, _s1_starts_below),
    (S2, _s2_has_two_at_work),
    (S2, _s2_releases_what_is_still_worked),
    (S3, _s3_frees_for_a_stranger),
    (S3, _s3_frees_an_old_token),
    (S3, _s3_takes_a_commit_of_an_old_token),
    (S3, _s3_takes_a_release_of_an_old_token),
    (S4, _s4_accepts_less),
    (S4, _s4_forgets),
    (S4, _s4_ends_below),
    (S5, _s5_leaves_one_free),
    (S5, _s5_lets_the_dead_hold),
    (S6, _s6_drains_unasked),
    (S6, _s6_moves_too_many),
    (S6, _s6_moves_for_nobody),
    (S6, _s6_drains_needlessly),
    (S6, _s6_is_uneven),
    (S6Poison, _s6_moves_others_for_what_nobody_can_work),
    (S6Poison, _s6_tries_again_what_nobody_can_work),
    (S6Poison, _s6_pauses_no_longer_each_time),
    (S6Poison, _s6_forgets_the_pauses_too_soon),
    (S6Poison, _s6_pauses_shorter_when_asked_back),
    (S6Poison, _s6_pauses_no_longer_after_it_was_asked_back),
    (S7, _s7_joins_twice),
    (S7, _s7_has_two_of_one_name),
    (S7, _s7_has_two_of_one_name_long_after_a_loss),
    (L1, _l1_never_converges),
    (L1, _l1_goes_on_changing),
    (L2, _l2_stays_pending),
    (L3, _l3_is_never_healed),
    (L3, _l3_is_healed_of_a_former_member_only),
    (L3, _l3_is_not_noticed_by_the_call_after_a_silence),
    (L3, _l3_is_noticed_by_none_of_the_calls_after_a_silence),
    (L3, _l3_is_healed_of_half_after_a_grace),
    (L3, _l3_is_healed_by_none_of_many_calls),
    (M1, _m1_skips),
    (M1, _m1_reorders),
    (M1, _m1_begins_too_far_on),
    (M1, _m1_repeats_what_was_acknowledged),
    (M1, _m1_loses),
]


@pytest.mark.parametrize(("check", "plant"), PLANTED, ids=[plant.__name__[1:] for _, plant in PLANTED])
def test_a_planted_violation_is_seen(check: type[Check], plant: Callable[[Stage], None]) -> None:
    """The checker of that promise, and no other, objects."""
    stage = Stage(check, partitions=check is M1)
    with pytest.raises(Violation) as caught:
        plant(stage)
    assert caught.value.promise == check.promise


def test_who_was_asked_to_leave_is_waited_for() -> None:
    """A group is not at rest while somebody who cannot reach Redis still has to leave it."""
    stage = Stage(L1)
    stage.world.redis.create()
    stage.world.clock.run(1_000)
    assert why_unsettled(stage.world) == ""
    stage.second.reaches_redis = False
    stage.second.stop()
    assert why_unsettled(stage.world) == "p2 is leaving"
    stage.second.reaches_redis = True
    assert isinstance(stage.check, L1)
    stage.check.converge()
    assert list(stage.world.living) == ["p1"]
    stage.check.stay(20_000)


def test_what_a_call_left_to_the_next_one_is_waited_for() -> None:
    """A barrier stands before all that it stops has been asked back: between the two calls the group is not at rest."""
    world = World(attrs.evolve(QUICKENED, mode="eager", moves_per_call=1))
    world.resources = ("a", "b", "c")
    for capacity in (1, 0):
        world.start(capacity=capacity)
    world.redis.create()
    world.clock.run(10_000)
    assert why_unsettled(world) == ""
    world.living["p2"].kill()
    while why_unsettled(world):
        world.clock.run(1)
    L1(world).stay(20_000)


def test_whose_lease_is_about_to_end_is_waited_for_among_standbys() -> None:
    """Nobody has a share, and still the group changes when one of them expires."""
    world = World(QUICKENED)
    world.redis.create()
    for _ in range(2):
        world.start(capacity=0)
    world.clock.run(1_000)
    assert why_unsettled(world) == ""
    world.living["p2"].reaches_redis = False
    world.clock.run(QUICKENED.session_timeout_ms - 2_000)
    assert "lease is about to end" in why_unsettled(world)


def test_the_calls_after_a_silence_share_their_work() -> None:
    """A call makes so many moves: a session that ended in a silence may be left to the calls of the next heartbeat."""
    stage = Stage(L3)
    _killed_before_a_silence(stage, has_more=True)
    stage.let_pass(3_000)
    stage.entry("expired_member", member="p1.1")
    stage.let_pass(3_000)


def test_a_member_is_healed_after_others() -> None:
    """Its session is one of several things that are due, of which each call does one."""
    stage = Stage(L3)
    _killed_behind_others(stage)
    stage.world.redis.has_more = False
    stage.entry("expired_member", member="p1.1")
    stage.let_pass(3_000)


def test_the_calls_after_a_grace_share_their_work() -> None:
    """Likewise what is left of a member whose rejoin grace ended in a lull."""
    stage = Stage(L3)
    _graced_until_a_lull(stage)
    stage.let_pass(QUICKENED.heartbeat_interval_ms)
    stage.entry("expired", resource="s", member="p1.1", token=6)
    stage.let_pass(QUICKENED.session_timeout_ms)


def test_the_count_of_pauses_is_forgotten() -> None:
    """Ten minutes after its last giver may have it again, and where a script died that had counted it."""
    stage = Stage(S6Poison)
    stage.entry("added", resource="poison")
    _pause(stage, 1, 1)
    stage.at_ms += 3 * QUICKENED.session_timeout_ms + 600_001
    _pause(stage, 2, 1)
    stage.entry("repaired", resource="poison", reason="held")
    _pause(stage, 3, 1)


def test_what_was_asked_back_is_paused_as_long_as_before() -> None:
    """Its pause does not double, and the next one does."""
    _pauses_as_long_as_before(Stage(S6Poison))


@pytest.mark.parametrize("check", [S5, L3])
def test_of_several_the_first_is_named(check: type[Check]) -> None:
    """So that the same seed gives the same verdict, in whatever order this process keeps a set."""
    stage = Stage(check)
    stage.entry("joined", member=stage.second.session.member)
    for number in range(10, 30):
        stage.entry("added", resource=f"r{number}")
        stage.entry("joined", member=f"p1.{number}")
    stage.first.kill()
    with pytest.raises(Violation, match=r" (r10 has been free|p1\.10 was killed)"):
        stage.let_pass(30_000)


@pytest.mark.parametrize(
    ("kept", "total", "members", "expected"),
    [
        ({"a": 4}, 4, 2, 2),
        ({"a": 3, "b": 2}, 5, 3, 4),
        ({"a": 2, "b": 2, "c": 2}, 6, 3, 6),
        ({"a": 3, "b": 3}, 9, 2, 6),
        ({"a": 12}, 12, 5, 3),
        ({}, 3, 1, 0),
        ({"a": 1}, 1, 0, 0),
    ],
)
def test_what_may_stay_is_counted_right(kept: dict[str, int], total: int, members: int, expected: int) -> None:
    """Floors for all, and as many ceilings as there are for the members that have them."""
    assert retained(kept, total, members) == expected
