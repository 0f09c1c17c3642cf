"""Leaving: gracefully, temporarily, and without an answer."""

import attrs
import pytest
from tests.harness import DEAF, SETTINGS, Process, World, names, steady

from cobalance.coordinator.requests import Commit, Header, Join, Leave, Request
from cobalance.member import events as ev
from cobalance.member.joining import CLAIMS_A_PAGE
from cobalance.member.session import Phase
from cobalance.settings import MemberSettings

DRAIN_MS = 4_000
STATIC = MemberSettings(instance_id="pod-0", drain_timeout_ms=DRAIN_MS)


def pair(
    count: int = 4, *, member: MemberSettings | None = None, grace_ms: int = 20_000
) -> tuple[World, Process, Process]:
    """Two settled processes, the second of which will leave."""
    world = World(attrs.evolve(SETTINGS, rejoin_grace_ms=grace_ms))
    a, b = world.start("A", names(count)), world.start("B", names(count), member=member)
    world.settle()
    world.run(1_000)
    return world, a, b


def kinds(world: World) -> list[str]:
    """The kinds of all journal entries so far."""
    return [entry["kind"] for entry in world.records().journal]


def test_a_graceful_leave_drains_and_hands_over() -> None:
    """Everything is finished and released before the member leaves; nothing expires or is forced."""
    world, a, b = pair()
    b.stop()
    world.run_until(lambda: b.left)
    world.settle(within_ms=200)
    assert len(a.works()) == 4
    assert b.aborted == []
    assert kinds(world).count("released") == kinds(world).count("revoking")


def test_the_leave_is_told_before_anything_is_released() -> None:
    """Otherwise the first released resources would be assigned back to it."""
    world, _, b = pair()
    sent = len(b.sent)
    b.stop()
    world.run_until(lambda: b.left)
    verbs = [request.payload.verb for request in b.sent[sent:]]
    assert verbs[0] == "leave"
    assert verbs[-1] == "leave"
    assert "release" in verbs
    assert len(b.started) == 2


def test_work_hears_of_a_deadline_that_is_moved_forward() -> None:
    """Work paces itself by it: first the member's own long drain timeout, then the group's short revocation timeout."""
    world, _, b = pair(member=MemberSettings(drain_timeout_ms=60_000))
    b.habits = attrs.evolve(b.habits, drain_ms=(2_000, 2_000))
    b.stop()
    world.run_until(lambda: b.left)
    told = [(line.split()[3], line.split()[-2]) for line in world.trace.lines if "hastens" in line]
    assert len(told) == 2


def test_leaving_twice_is_leaving_once() -> None:
    """A second request changes nothing."""
    world, _, b = pair()
    b.stop()
    b.stop(remain=True)
    world.run_until(lambda: b.left)
    assert kinds(world).count("left") == 1


@pytest.mark.parametrize("after_ms", [0, 1, 500, 990])
def test_who_is_to_remain_may_still_be_told_to_leave_for_good(after_ms: int) -> None:
    """Such as by a program that scales in, after a SIGTERM: what has drained is released, too, and nothing is kept."""
    world, a, b = pair(member=STATIC)
    first, second = sorted(b.works())
    b.habits = attrs.evolve(b.habits, drain_ms_of={first: (10, 10), second: (1_000, 1_000)})
    b.stop(remain=True)
    world.run(after_ms)
    b.stop(remain=False)
    world.run_until(lambda: b.left)
    world.settle(within_ms=500)
    assert len(a.works()) == 4
    assert "graced" not in kinds(world)
    assert kinds(world).count("left") == 1


def test_who_leaves_while_it_joins_may_still_be_told_to_leave_for_good() -> None:
    """Once the join is answered."""
    world, _, _ = pair()
    c = world.start("C", names(4), member=STATIC)
    c.stop(remain=True)
    c.stop(remain=False)
    world.run_until(lambda: c.left)
    assert "graced" not in kinds(world)


@pytest.mark.parametrize("fate", ["no_reply", "lost", "late"])
def test_lost_replies_do_not_keep_it_from_leaving(fate: str) -> None:
    """Every second attempt fails."""
    world, a, b = pair()
    b.fates.extend([fate, "ok"] * 10)  # type: ignore[list-item]
    b.stop()
    world.run_until(lambda: b.left)
    world.settle()
    assert kinds(world).count("left") == 1
    assert "expired_member" not in kinds(world)
    assert len(a.works()) == 4


def test_a_slow_drain_is_aborted_at_the_drain_timeout() -> None:
    """Unfinished work is given up then, and the leave goes on."""
    world, _, b = pair()
    b.habits = steady(drain_ms=None)
    b.stop()
    asked = world.now
    world.run_until(lambda: b.left)
    assert world.now - asked <= DRAIN_MS + 50
    assert {reason for _, reason in b.aborted} == {"deadline"}
    world.settle()


def test_without_the_coordinator_it_ends_by_itself() -> None:
    """The session ends once the work has stopped and its lease is over."""
    world, _, b = pair()
    world.redis.up = False
    b.stop()
    asked = world.now
    world.run_until(lambda: b.left)
    assert world.now - asked <= SETTINGS.session_timeout_ms


def test_without_the_coordinator_and_with_stuck_work_it_ends_within_both_timeouts() -> None:
    """Drain timeout plus session timeout, whatever happens."""
    world, _, b = pair()
    b.habits = steady(drain_ms=None, stop_ms=None)
    world.redis.up = False
    b.stop()
    asked = world.now
    world.run_until(lambda: b.left)
    assert world.now - asked <= DRAIN_MS + SETTINGS.session_timeout_ms
    assert b.session.handle(ev.TimerFired(), b.now) == []


def test_a_grant_that_crosses_the_leave_never_starts() -> None:
    """The coordinator granted something before it received the leave: it is returned unworked."""
    world, a, b = pair(3)
    b.network = DEAF
    b.fates.append("lost")
    a.stop()
    world.run_until(lambda: a.left)
    started = len(b.started)
    b.stop()
    world.run_until(lambda: b.left)
    assert len(b.started) == started
    assert b.aborted == []
    assert {it.status for it in world.records().resources.values()} == {"free"}


def test_stopping_while_joining_leaves_no_ghost() -> None:
    """It waits for the answer to its join, and then leaves."""
    world, _, _ = pair()
    c = world.start("C", names(4))
    world.run_until(lambda: bool(c.sent))
    c.stop()
    assert c.session.phase is Phase.JOINING
    world.run_until(lambda: c.left)
    assert "C.1" in {id_ for id_, it in world.records().members.items() if it.status == "ended"}
    assert c.started == []
    world.settle()


def test_stopping_while_joining_an_unreachable_coordinator_ends_within_a_session_timeout() -> None:
    """There is nothing to drain, and the coordinator cannot be notified."""
    world, _, _ = pair()
    world.redis.up = False
    c = world.start("C", names(4))
    world.run(500)
    c.stop()
    asked = world.now
    world.run_until(lambda: c.left)
    assert world.now - asked <= SETTINGS.session_timeout_ms


def test_the_data_may_be_lost_while_leaving() -> None:
    """It claims what it still drains, hands it over and leaves."""
    world, a, b = pair()
    b.habits = steady(drain_ms=2_000)
    b.stop()
    world.run(500)
    world.empty_redis()
    world.run_until(lambda: b.left)
    world.settle()
    assert len(a.works()) == 4


@pytest.mark.parametrize("member", [None, STATIC], ids=["for good", "to come back"])
def test_whoever_claims_page_by_page_while_it_leaves_goes_on_with_nothing(member: MemberSettings | None) -> None:
    """Until its last page is answered it is not a member that could say that it leaves; what it drains stays so."""
    world, _, b = pair(2 * CLAIMS_A_PAGE + 50, member=member)
    b.habits = steady(drain_ms=2_000)
    b.stop(remain=member is not None)
    asked = world.now
    world.run(500)
    world.empty_redis()
    world.run_until(lambda: b.left)
    assert world.now - asked < DRAIN_MS
    assert (b.aborted, [line for line in world.trace.lines if " keeps " in line]) == ([], [])


def test_a_session_that_ends_while_leaving_is_over() -> None:
    """Frozen while leaving: others have long had its resources when it wakes up."""
    world, a, b = pair()
    b.habits = steady(drain_ms=2_000)
    b.stop()
    world.run(500)
    b.pause()
    world.run_until(lambda: len(a.works()) == 4)
    b.resume()
    world.run_until(lambda: b.left)
    assert len([request for request in b.sent if isinstance(request.payload, Join)]) == 1


# -- with an instance id ---------------------------------------------------------------------------------------------------


def test_a_static_restart_moves_nothing() -> None:
    """What the process held waits for it, and returns under new tokens."""
    world, a, b = pair(member=STATIC)
    held, others = sorted(b.works()), a.works()
    b.stop(remain=True)
    world.run_until(lambda: b.left)
    world.run(5_000)
    c = world.start("C", names(4), member=STATIC)
    world.settle()
    assert sorted(c.works()) == held
    assert a.works() == others
    assert "revoking" not in kinds(world)[kinds(world).index("graced") :]


def test_remaining_commits_what_was_drained() -> None:
    """Nothing is released, so the offsets are committed separately."""
    world, _, b = pair(member=STATIC)
    for it in b.work.tenures.values():
        it.done = 11
    b.stop(remain=True)
    world.run_until(lambda: b.left)
    assert [type(request.payload) for request in b.sent[-2:]] == [Commit, Leave]
    assert set(world.records().offsets.values()) == {11}


def test_remaining_commits_even_what_was_drained_before_it_was_asked() -> None:
    """A drain that ended during another call is parked like the rest."""
    world, _, b = pair(member=STATIC)
    name, it = next(iter(b.work.tenures.items()))
    sent = len(b.sent)
    b.fates.append("lost")
    world.run_until(lambda: len(b.sent) > sent)
    b.work._forget(it)
    b.deliver(ev.Drained(name, it.token, offset=23))
    b.stop(remain=True)
    world.run_until(lambda: b.left)
    assert world.records().offsets[name] == 23


def test_an_offset_refused_while_parking_does_not_hold_up_the_leave() -> None:
    """A higher one was committed by hand, and stays."""
    world, _, b = pair(member=STATIC)
    name, it = next(iter(b.work.tenures.items()))
    ticket = b.commit(name, 50)
    world.run_until(lambda: b.commits[ticket] == "OK")
    it.done = 7
    b.stop(remain=True)
    world.run_until(lambda: b.left)
    assert world.records().offsets[name] == 50


def test_remaining_where_nothing_is_kept_is_leaving_for_good() -> None:
    """The group's rejoin grace is 0: what is parked is released after all, without an endless loop of requests."""
    world, a, b = pair(member=STATIC, grace_ms=0)
    sent = len(b.sent)
    b.stop(remain=True)
    world.run_until(lambda: b.left)
    assert len(b.sent) - sent < 10
    world.settle()
    assert len(a.works()) == 4


def test_giving_up_for_good_keeps_nothing() -> None:
    """``remain=False``, for scaling in."""
    world, a, b = pair(member=STATIC)
    b.stop()
    world.run_until(lambda: b.left)
    world.settle(within_ms=200)
    assert len(a.works()) == 4


def test_without_an_instance_id_there_is_nothing_to_come_back_to() -> None:
    """``remain`` has no effect then."""
    world, a, b = pair()
    b.stop(remain=True)
    world.run_until(lambda: b.left)
    world.settle(within_ms=200)
    assert len(a.works()) == 4


def test_a_crash_of_a_static_member_is_waited_for_as_well() -> None:
    """Its successor inherits what it held; no other member is affected."""
    world, a, b = pair(member=STATIC)
    held, others = sorted(b.works()), a.works()
    b.kill()
    world.run(6_000)
    c = world.start("C", names(4), member=STATIC)
    world.settle()
    assert sorted(c.works()) == held
    assert a.works() == others


def test_a_grace_that_ends_gives_everything_to_the_others() -> None:
    """It never returned."""
    world, a, b = pair(member=STATIC)
    b.stop(remain=True)
    world.run_until(lambda: b.left)
    world.run(19_000)
    assert len(a.works()) == 2
    world.settle(within_ms=3_000)
    assert len(a.works()) == 4


def test_an_instance_id_in_use_is_waited_for_until_its_session_ends() -> None:
    """The predecessor crashed. Its successor is refused, retries, and joins when the old session has ended."""
    world, _, b = pair(member=STATIC)
    b.kill()
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: "instance_in_use" in c.problems)
    assert c.session.member == "C.1"
    world.settle(within_ms=5_000)
    assert len({request.header.number for request in c.sent if isinstance(request.payload, Join)}) == 1
    assert c.problems == ["instance_in_use"]


def test_an_heir_that_was_refused_for_long_has_a_lease_to_work_by() -> None:
    """A refusal admits nobody, so no session began before it: what the heir is given is not stopped at once."""
    world, _, b = pair(member=STATIC)
    b.habits = attrs.evolve(b.habits, drain_ms=(2_500, 2_500))
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: "instance_in_use" in c.problems)
    b.stop()
    world.run_until(lambda: c.session.phase is Phase.ACTIVE)
    until = c.session.lease.until
    assert until is not None
    assert until - c.offset_ms - world.now > SETTINGS.session_timeout_ms // 2
    world.settle()
    assert (c.aborted, c.problems) == ([], ["instance_in_use"])


def test_an_instance_id_comes_back_when_nobody_else_is_left() -> None:
    """Only the waiting member calls, and a session of many heartbeats still ends."""
    settings = attrs.evolve(SETTINGS, session_timeout_ms=25_000, revocation_timeout_ms=25_000)
    world = World(settings)
    first = world.start("A", names(4), member=STATIC)
    world.settle()
    first.kill()
    world.run(3_000)
    again = world.start("B", names(4), member=STATIC)
    world.settle(within_ms=30_000)
    assert len(again.works()) == 4


def test_an_outage_while_waiting_for_an_instance_id_makes_nobody_alive() -> None:
    """No session can end while Redis is away, so the wait counts from its return."""
    world, _, b = pair(member=STATIC)
    b.kill()
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: "instance_in_use" in c.problems)
    world.redis.up = False
    world.run(3 * SETTINGS.session_timeout_ms)
    world.redis.up = True
    world.settle()
    assert c.problems == ["instance_in_use"]
    assert len(c.works()) == 2


def test_a_double_that_is_alive_is_a_clear_error() -> None:
    """Two processes with one instance id: the second one gives up without disturbing the first."""
    world, _, b = pair(member=STATIC)
    before = b.works()
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: c.left)
    assert c.problems == ["instance_in_use", "instance_in_use"]
    assert world.now < 20_000
    assert b.works() == before


def test_a_double_whose_code_has_a_longer_session_timeout_goes_by_the_group_s() -> None:
    """Its calls would be too rare to tell a session that ended from one that was renewed."""
    world, _, _ = pair(member=STATIC)
    world.settings = attrs.evolve(SETTINGS, session_timeout_ms=60_000, revocation_timeout_ms=60_000)
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: c.left)
    assert c.problems[-1] == "instance_in_use"
    assert world.now < 20_000


def test_a_session_that_was_shortened_meanwhile_is_waited_for_as_it_was_said() -> None:
    """The dead one was promised 20 s. Two of the new, short sessions say nothing about it."""
    long = attrs.evolve(SETTINGS, session_timeout_ms=20_000, revocation_timeout_ms=20_000, rejoin_grace_ms=60_000)
    world = World(long)
    world.start("A", names(4))
    b = world.start("B", names(4), member=STATIC)
    world.settle()
    b.kill()
    world.redis.coordinator.configure(session_timeout_ms=2_000, heartbeat_interval_ms=400)
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: bool(c.works()))
    assert c.problems == ["instance_in_use"]


def test_a_live_owner_whose_session_was_shortened_meanwhile_is_found_out() -> None:
    """Its session ends later than its latest calls alone would say; after that end it is renewed."""
    long = attrs.evolve(SETTINGS, session_timeout_ms=20_000, revocation_timeout_ms=20_000)
    world = World(long)
    b = world.start("B", names(4), member=STATIC)
    world.settle()
    world.redis.coordinator.configure(session_timeout_ms=2_000, heartbeat_interval_ms=400)
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: c.left)
    assert c.problems == ["instance_in_use", "instance_in_use"]
    assert world.now < 30_000
    assert len(b.works()) == 4


def test_a_call_of_the_dead_that_comes_late_makes_nobody_alive() -> None:
    """Its last heartbeat was still under way when it died and the next one with its instance id came."""
    world, a, b = pair(member=STATIC)
    b.kill()
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: "instance_in_use" in c.problems)
    world.run(SETTINGS.heartbeat_interval_ms)
    world.redis.coordinator.execute(attrs.evolve(b.sent[-1]))
    world.run_until(lambda: bool(c.works()))
    assert c.problems == ["instance_in_use"]
    assert a.works()


@pytest.mark.parametrize("restarts", [1, 5])
def test_a_restart_that_overtakes_it_and_dies_makes_nobody_alive(restarts: int) -> None:
    """The owner dies, and so does each restart of it that has the instance id next: every session ends later than the
    one before, and none was renewed.
    """
    world, _, b = pair(member=STATIC)
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: "instance_in_use" in c.problems)
    world.run(SETTINGS.heartbeat_interval_ms)
    b.kill()
    for number in range(restarts):
        overtake(world, Request(Header(f"D{number}.1", 1), Join(settings=SETTINGS, instance_id="pod-0")))
    world.run_until(lambda: bool(c.works()))
    assert c.problems == ["instance_in_use"]


def overtake(world: World, join: Request) -> None:
    """Joins in the first moment in which the instance id has no owner."""
    while world.redis.coordinator.execute(join).status != "OK":
        world.run(1)


def test_it_asks_again_when_the_owner_s_session_ends() -> None:
    """Rather than when its pause between attempts is over, a sixth of a session: that would let others overtake it."""
    long = attrs.evolve(SETTINGS, session_timeout_ms=20_000, revocation_timeout_ms=20_000)
    world = World(long)
    b = world.start("B", names(4), member=STATIC)
    world.settle()
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: "instance_in_use" in c.problems)
    b.kill()
    reply = world.redis.coordinator.execute(c.sent[-1])
    assert reply.owner_until_ms is not None
    ends = world.now + reply.owner_until_ms - reply.now_ms
    world.run_until(lambda: c.session.phase is Phase.ACTIVE)
    assert ends <= world.now <= ends + 10


def test_stopping_a_double_ends_it_at_once() -> None:
    """It was never a member."""
    world, _, _ = pair(member=STATIC)
    c = world.start("C", names(4), member=STATIC)
    world.run_until(lambda: "instance_in_use" in c.problems)
    c.stop()
    asked = world.now
    world.run_until(lambda: c.left)
    assert world.now - asked <= SETTINGS.session_timeout_ms // 3


def test_who_names_something_else_than_a_group_has_room_for_is_refused_at_once() -> None:
    """It was never a member either. Thirty-two different lists are declared already."""
    world = World()
    for number in range(32):
        join = Join(settings=SETTINGS, subscription=f"list-{number}")
        assert world.redis.coordinator.execute(Request(Header(f"m{number}", 1), join)).status == "OK"
    late = world.start("late", names(4))
    world.run_until(lambda: late.left)
    assert late.problems == ["subscriptions"]
    assert world.now <= SETTINGS.heartbeat_interval_ms


def test_stopping_while_joining_again_leaves_no_ghost_either() -> None:
    """Its session and the old lease had ended. The new join is awaited, since it may have run."""
    world, a, b = pair()
    b.pause()
    world.run_until(lambda: len(a.works()) == 4)
    b.fates.extend(["ok", "no_reply", "ok"])
    b.resume()
    world.run_until(lambda: b.session.member == "B.2" and bool(b.sent[-1].header.member == "B.2"))
    b.stop()
    world.run_until(lambda: b.left)
    assert world.records().members["B.2"].status == "ended"
