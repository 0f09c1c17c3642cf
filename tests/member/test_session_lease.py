"""How long a member trusts its session: fencing by its own clock, and recovery."""

from itertools import pairwise

import attrs
import pytest
from tests.harness import SETTINGS, Process, World, names, steady

from cobalance.coordinator.requests import Heartbeat
from cobalance.member import events as ev
from cobalance.member.session import Phase
from cobalance.settings import MemberSettings

SESSION_MS = SETTINGS.session_timeout_ms


def settled(count: int = 2, *, member: MemberSettings | None = None) -> tuple[World, Process]:
    """A process that works everything."""
    world = World()
    a = world.start("A", names(count), member=member)
    world.settle()
    world.run(1_500)
    return world, a


def last_answered_send(world: World, a: Process) -> int:
    """Runs until just after an answer, and returns when its request was first sent."""
    sent = len(a.sent)
    world.run_until(lambda: len(a.sent) > sent)
    at = world.now
    world.run(5)
    return at


def test_a_member_that_is_cut_off_stops_before_its_session_ends() -> None:
    """It stops a tenth of the session timeout before the coordinator may reassign anything."""
    world, a = settled()
    sent_at = last_answered_send(world, a)
    world.redis.up = False
    world.run_until(lambda: bool(a.aborted))
    assert world.now == sent_at + SESSION_MS * 9 // 10
    assert a.aborted == [("r0", "fenced"), ("r1", "fenced")]
    assert a.session.phase is Phase.CUT
    assert "cut_off" in a.problems


def test_the_lease_counts_from_the_first_send() -> None:
    """Three attempts whose replies are lost, then an answer: the coordinator may have counted from the first one."""
    world, a = settled()
    sent = len(a.sent)
    a.fates.extend(["no_reply", "no_reply", "no_reply", "ok"])
    world.run_until(lambda: len(a.sent) > sent)
    first_sent_at = world.now
    world.run_until(lambda: len(a.sent) == sent + 4)
    world.run_until(lambda: a.session.lease.retry_at is None and a.session.line.outstanding is not a.sent[sent])
    assert a.session.lease.until == first_sent_at + a.offset_ms + SESSION_MS * 9 // 10
    assert a.session.phase is Phase.ACTIVE


def test_retries_come_within_a_third_of_the_session_timeout() -> None:
    """Time spent waiting for an answer counts too, so that no claim misses the window of a recovering group."""
    world, a = settled()
    world.redis.up = False
    sent_at: list[int] = []
    for _ in range(8):
        sent = len(a.sent)
        world.run_until(lambda sent=sent: len(a.sent) > sent)  # type: ignore[misc]
        sent_at.append(world.now)
    gaps = [later - earlier for earlier, later in pairwise(sent_at)]
    assert max(gaps) <= SESSION_MS // 3
    assert len({request.header.number for request in a.sent[-8:]}) == 1


def test_back_in_time_it_goes_on_as_if_nothing_had_been() -> None:
    """An outage shorter than the lease stops nothing."""
    world, a = settled()
    world.redis.up = False
    world.run(1_500)
    world.redis.up = True
    world.run(1_000)
    assert a.aborted == []
    assert a.session.member == "A.1"


def test_after_a_cut_the_member_is_the_same_and_what_it_aborted_is_given_back() -> None:
    """An outage for all members ends no session: the id stays; the tenures end as fenced and return."""
    world, a = settled()
    world.redis.up = False
    world.run(2 * SESSION_MS)
    assert a.works() == {}
    world.redis.up = True
    world.settle()
    assert a.session.member == "A.1"
    assert a.session.phase is Phase.ACTIVE
    abandoned = [entry["reason"] for entry in world.records().journal if entry["kind"] == "abandoned"]
    assert abandoned == ["fenced", "fenced"]


def test_an_answer_older_than_its_own_lease_begins_nothing() -> None:
    """The first answer after a long outage brings grants, but proves nothing about now: they are requested again."""
    world, a = settled(1)
    world.redis.up = False
    world.run(2 * SESSION_MS)
    world.redis.up = True
    world.settle()
    assert [reason for _, reason in a.aborted] == ["fenced"]
    assert len(a.started) == 2


def test_others_take_over_only_after_the_cut_off_member_has_stopped() -> None:
    """Only this member is cut off: its session expires, and its successors start after it has stopped."""
    world = World()
    a, b = world.start("A", names(4)), world.start("B", names(4))
    world.settle()
    world.fate = lambda process, _: "lost" if process is a else "ok"
    world.run_until(lambda: len(b.works()) == 4)
    assert sorted({reason for _, reason in a.aborted}) == ["fenced"]
    world.fate = lambda _process, _request: "ok"
    world.settle()
    assert a.session.member == "A.2"


def test_a_guarded_resource_is_kept_while_cut_off() -> None:
    """The broker admits one consumer, so no other member can work it. What is not guarded stops."""
    world, a = settled()
    a.work.guard("r0")
    world.redis.up = False
    world.run(5 * SESSION_MS)
    assert sorted(a.works()) == ["r0"]
    assert a.session.phase is Phase.CUT


def test_a_guard_that_is_lost_while_cut_off_stops_the_work() -> None:
    """A guard counts only while it is proven."""
    world, a = settled()
    a.work.guard("r0")
    world.redis.up = False
    world.run(5 * SESSION_MS)
    a.work.guard("r0", proven=False)
    assert a.works() == {}


@pytest.mark.parametrize("outage_ms", [0, 4_000])
def test_guarded_resources_are_kept_for_no_longer_than_chosen(outage_ms: int) -> None:
    """``guarded_outage_ms`` limits it, by the member's own clock."""
    world, a = settled(1, member=MemberSettings(guarded_outage_ms=outage_ms))
    a.work.guard("r0")
    sent_at = last_answered_send(world, a)
    world.redis.up = False
    world.run_until(lambda: bool(a.aborted))
    assert world.now == sent_at + SESSION_MS * 9 // 10 + outage_ms


def test_a_guarded_holder_that_comes_back_too_late_has_lost_it() -> None:
    """Its session expired meanwhile; it learns that, and stops."""
    world = World()
    a = world.start("A", names(2))
    world.settle()
    b = world.start("B", names(2))
    world.run(50)
    world.settle()
    kept = next(iter(a.works()))
    a.work.guard(kept)
    world.fate = lambda process, _: "lost" if process is a else "ok"
    world.run(3 * SESSION_MS)
    assert sorted(a.works()) == [kept]
    assert sorted(b.works()) == ["r0", "r1"]
    world.fate = lambda _process, _request: "ok"
    world.run_until(lambda: (kept, "lost") in a.aborted)
    world.settle()


def test_a_frozen_process_stops_before_it_does_anything_else() -> None:
    """SIGSTOP beyond its session: on waking up, it checks its own clock first."""
    world = World()
    a, b = world.start("A", names(4)), world.start("B", names(4))
    world.settle()
    a.pause()
    world.run_until(lambda: len(b.works()) == 4)
    a.resume()
    assert a.works() == {}
    world.settle()
    assert len(a.works()) == 2


def test_the_session_timeout_is_the_groups_and_not_the_processs() -> None:
    """A process with different settings of its own uses the group's."""
    world = World()
    a = world.start("A", names(1))
    world.settle()
    world.redis.coordinator.configure(session_timeout_ms=6_000, revocation_timeout_ms=6_000)
    sent_at = last_answered_send(world, a)
    world.redis.up = False
    world.run_until(lambda: bool(a.aborted))
    assert world.now == sent_at + 5_400


LONG = attrs.evolve(SETTINGS, session_timeout_ms=30_000, heartbeat_interval_ms=10_000, revocation_timeout_ms=30_000)


def made_quick(count: int = 2) -> tuple[World, Process, Process]:
    """Two processes with long timeouts. The group has short ones now; the second is cut off after a call."""
    world = World(LONG)
    a, b = world.start("A", names(count)), world.start("B", names(count))
    world.settle()
    world.run(24_000 - world.now)
    world.redis.coordinator.configure(
        session_timeout_ms=3_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=3_000
    )
    b.fates.append("no_reply")
    world.fate = lambda process, _: "lost" if process is b else "ok"
    b.deliver(ev.Hinted(-1))
    return world, a, b


def test_a_lease_that_runs_is_not_made_shorter_by_a_shorter_session_timeout() -> None:
    """A member cut off while the timeouts are lowered relies on the long one, and the group respects that."""
    world, a, b = made_quick()
    world.run_until(lambda: bool(b.aborted))
    world.run_until(lambda: len(a.works()) == 2)


def test_a_revocation_is_not_forced_on_a_lease_that_runs() -> None:
    """Nor by a shorter revocation timeout if the answer that carried it was lost."""
    world, _, b = made_quick(8)
    c = world.start("C", names(8))
    world.run_until(lambda: bool(b.aborted))
    world.run_until(lambda: "r7" in c.works() or "r5" in c.works())


def test_shorter_timeouts_stop_nobody() -> None:
    """A member that learns of them calls again at the new interval, not at the old one."""
    world = World(LONG)
    a = world.start("A", names(2))
    world.settle()
    world.redis.coordinator.configure(
        session_timeout_ms=3_000, heartbeat_interval_ms=1_000, revocation_timeout_ms=3_000
    )
    world.run(60_000)
    assert a.aborted == []


def test_a_barrier_that_is_old_is_not_forced_on_a_lease_that_runs() -> None:
    """Redis fails over behind the barrier. Members that learn of it later, or would, were members all the while."""
    world = World(attrs.evolve(SETTINGS, mode="eager", session_timeout_ms=5_000))
    a, b = world.start("A", names(4)), world.start("B", names(4))
    world.settle()
    world.run(2_000)
    for process in (a, b):
        process.habits = steady(drain_ms=None)
    world.start("C", names(4))
    world.run(3_900)
    world.redis.replace()
    world.run_until(lambda: world.records().number("recovering") > 0)
    a.habits = steady()
    world.run_until(lambda: world.records().number("recovering") == 0)
    b.fates.append("no_reply")
    world.fate = lambda process, _: "lost" if process is b else "ok"
    world.run_until(lambda: bool(b.aborted))
    world.run(10_000)


def test_one_heartbeat_an_interval_is_enough() -> None:
    """An idle member requests nothing but its session."""
    world = World()
    world.start("A", names(4))
    b = world.start("B", names(4))
    world.settle()
    world.run(1_000)
    sent = len(b.sent)
    world.run(10_000)
    assert [type(request.payload) for request in b.sent[sent:]] == [Heartbeat] * 10


def test_a_timer_that_fires_early_does_nothing() -> None:
    """Time is checked, not assumed."""
    _, a = settled()
    sent = len(a.sent)
    a.deliver(ev.TimerFired())
    assert len(a.sent) == sent
