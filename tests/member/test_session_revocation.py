"""Revocations: handed over, cancelled, aborted, forced."""

import attrs
from tests.harness import DEAF, SETTINGS, Process, World, names, steady

from cobalance.member import events as ev
from cobalance.settings import MemberSettings
from cobalance_sims.simulate.habits import Habits


def two(count: int = 4, *, habits: Habits | None = None, revocation_timeout_ms: int = 5_000) -> tuple[World, Process]:
    """A process that holds everything and drains on request."""
    world = World(attrs.evolve(SETTINGS, gather_ms=0, revocation_timeout_ms=revocation_timeout_ms))
    a = world.start("A", names(count), member=MemberSettings(max_processing_ms=20_000))
    a.habits = habits or steady(drain_ms=2_000)
    world.settle()
    return world, a


def kinds(world: World, *wanted: str) -> list[str]:
    """The kinds of the journal entries, limited to these."""
    return [entry["kind"] for entry in world.records().journal if entry["kind"] in wanted]


def test_only_the_surplus_moves_and_nothing_else_is_touched() -> None:
    """A second member gets half; the other half is never interrupted."""
    world, a = two(6)
    world.start("B", names(6))
    world.run(50)
    kept = {name: it.token for name, it in a.work.tenures.items() if it.state == "working"}
    assert len(kept) == 3
    world.settle()
    assert a.works() == kept
    assert len(a.started) == 6


def test_the_successor_starts_only_after_the_holder_has_drained() -> None:
    """Held → pending → released → held by another one, under a higher token."""
    world, a = two(1)
    b = world.start("B", names(1))
    a.stop()
    world.run_until(lambda: bool(b.started))
    assert a.works() == {}
    assert b.started[0][1] > a.started[0][1]


def test_a_needless_revocation_is_cancelled_and_the_tenure_goes_on() -> None:
    """The new member dies while its share is being drained: same token, no interruption."""
    world, a = two()
    b = world.start("B", names(4))
    world.run_until(lambda: any(it.state == "draining" for it in a.work.tenures.values()))
    b.stop()
    world.run_until(lambda: b.left)
    world.settle()
    assert len(a.started) == 4
    assert kinds(world, "cancelled") == ["cancelled", "cancelled"]


def test_a_revocation_cancelled_after_on_revoked_ran_ends_the_tenure() -> None:
    """It returns under a new token: what on_revoked has settled cannot be undone."""
    world, a = two(2, habits=steady(drain_ms=10, close_ms=3_000))
    b = world.start("B", names(2))
    world.run_until(lambda: any(it.state == "closing" for it in a.work.tenures.values()))
    b.stop()
    world.run_until(lambda: b.left)
    assert kinds(world, "cancelled") == ["cancelled"]
    a.habits = steady()
    world.settle()
    assert len(a.started) == 3


def test_a_revocation_after_a_cancelled_one_counts_anew() -> None:
    """Its deadline is its own, not the rest of the first one."""
    world, a = two()
    b = world.start("B", names(4))
    world.run_until(lambda: any(it.state == "draining" for it in a.work.tenures.values()))
    world.run(1_500)
    b.stop()
    world.run_until(lambda: b.left)
    world.run(1_000)
    world.start("C", names(4))
    world.run_until(lambda: any(it.state == "draining" for it in a.work.tenures.values()))
    draining = [it for it in a.session.holdings._by_name.values() if it.abort_at is not None]
    assert len(draining) == 2
    assert all(it.abort_at is not None and it.abort_at - a.now > 4_400 for it in draining)
    world.settle()
    assert a.aborted == []


def test_a_holder_that_does_not_finish_aborts_ahead_of_the_deadline() -> None:
    """By its own clock, before the coordinator moves anything by force."""
    world, a = two(2, habits=steady(drain_ms=None))
    b = world.start("B", names(2))
    world.run_until(lambda: bool(a.aborted))
    assert [reason for _, reason in a.aborted] == ["deadline"]
    world.settle()
    assert kinds(world, "forced", "abandoned") == ["abandoned"]
    assert len(b.works()) == 1


def test_a_forced_move_takes_that_resource_and_never_the_member() -> None:
    """Work that cannot be stopped is overtaken at the deadline. Its holder hears of the loss, and keeps the rest."""
    world, a = two(2, habits=steady(drain_ms=None, stop_ms=None))
    b = world.start("B", names(2))
    world.run_until(lambda: bool(b.started))
    assert kinds(world, "forced") == ["forced"]
    assert a.session.member == "A.1"
    assert len(a.works()) == 1
    a.habits = steady()
    world.run(2_000)
    assert len(a.works()) == len(b.works()) == 1


def test_a_holder_cut_off_while_draining_is_overtaken_at_the_deadline() -> None:
    """L2: a revocation ends by its timeout even if the holder never answers."""
    world, a = two(2, habits=steady(drain_ms=None), revocation_timeout_ms=3_000)
    b = world.start("B", names(2))
    world.run_until(lambda: any(it.state == "draining" for it in a.work.tenures.values()))
    began = world.now
    world.fate = lambda process, _: "lost" if process is a else "ok"
    world.run_until(lambda: bool(b.started))
    assert world.now - began <= 3_000 + 1_000


def test_what_was_lost_is_not_given_back() -> None:
    """The late holder's commit and release are refused, in whatever order it learns of the loss."""
    world, a = two(2, habits=steady(drain_ms=None, stop_ms=None))
    world.start("B", names(2))
    world.run_until(lambda: bool(a.aborted))
    lost = a.aborted[0][0]
    a.fates.extend(["lost"] * 6)
    world.run_until(lambda: world.records().resources[lost].owner != a.session.member)
    ticket = a.commit(lost, 7)
    world.run_until(lambda: a.commits[ticket] is not None)
    assert a.commits[ticket] == "FENCED"


def test_a_hung_handler_costs_its_resource_and_not_the_member() -> None:
    """After ``max_processing_ms`` that tenure is given up, and another process gets the resource."""
    world = World()
    a = world.start("A", names(4), member=MemberSettings(max_processing_ms=2_000))
    b = world.start("B", names(4))
    world.settle()
    stuck = next(iter(a.works()))
    a.busy(stuck, a.now - 1_999)
    assert a.aborted == []
    a.busy(stuck, a.now - 2_000)
    assert a.aborted == [(stuck, "hung")]
    world.run_until(lambda: stuck in b.works())
    assert a.session.member == "A.1"


def test_an_abort_that_never_ends_is_not_waited_for_for_ever() -> None:
    """Cut off, fenced, reconnected, but the handler hangs: after ``max_processing_ms`` the resource is given up."""
    world = World()
    a = world.start("A", names(1), member=MemberSettings(max_processing_ms=8_000))
    world.settle()
    a.habits = steady(stop_ms=None)
    world.redis.up = False
    world.run_until(lambda: bool(a.aborted))
    aborted_at = world.now
    world.run(1_000)
    world.redis.up = True
    world.run_until(lambda: len(a.started) == 2)
    assert world.now - aborted_at >= 8_000
    assert [entry["reason"] for entry in world.records().journal if entry["kind"] == "abandoned"] == ["overlap"]
    assert "overlap" in a.problems


def test_a_busy_resource_is_not_the_first_to_go() -> None:
    """Resources with idle handlers move first; heartbeats report which are busy."""
    world, a = two(2)
    a.busy("r1", a.now)
    world.run(1_100)
    world.start("B", names(2))
    world.run_until(lambda: any(it.state == "draining" for it in a.work.tenures.values()))
    assert [name for name, it in a.work.tenures.items() if it.state == "draining"] == ["r0"]


def test_news_of_many_handlers_travels_in_parts() -> None:
    """One heartbeat carries no more than fits into a call."""
    world, a = two(250)
    for name in names(250):
        a.busy(name, a.now)
    world.run(2_100)
    assert {it.rank for it in world.records().resources.values()} == {"1"}


def test_a_grant_that_is_taken_back_before_it_is_heard_never_starts() -> None:
    """Granted and revoked in one reply, or withdrawn: nothing starts."""
    world, a = two(2, habits=steady(drain_ms=10))
    b = world.start("B", names(2))
    world.run_until(lambda: b.session.member == "B.1" and len(b.sent) > 1)
    b.fates.extend(["lost"] * 3)
    b.network = DEAF
    world.run(100)
    b.stop()
    world.settle()
    assert b.aborted == []
    assert len(a.works()) == 2


def test_a_callback_that_returns_after_it_was_given_up_ends_nothing() -> None:
    """Redis is away, and ``on_revoked`` blocks until after the resource was given up: its result is ignored."""
    world = World()
    a = world.start("A", names(2), member=MemberSettings(max_processing_ms=2_000))
    world.settle()
    token = a.work.tenures["r0"].token
    a.session.handle(ev.DrainBegun("r0", token), a.now)
    world.redis.up = False
    a.habits = steady(stop_ms=None)
    world.run_until(lambda: "overlap" in a.problems)
    assert a.session.holdings.snapshot()["r0"] == (token, "ended")
    a.deliver(ev.DrainBegun("r0", token))
    a.deliver(ev.Drained("r0", token, 5, 5, 9))
    world.redis.up = True
    a.habits = steady()
    world.run_until(lambda: len(a.started) == 4)
    assert {entry["reason"] for entry in world.records().journal if entry["kind"] == "abandoned"} <= {"overlap"}
    assert world.records().offsets == {}


def test_a_callback_that_nobody_waits_for_has_as_long_as_a_handler() -> None:
    """A role was returned, or a revocation cancelled after it began: no deadline is set, but it must not be kept
    forever.
    """
    world = World()
    a = world.start("A", names(2), member=MemberSettings(max_processing_ms=2_000))
    world.settle()
    token = a.work.tenures["r0"].token
    a.deliver(ev.DrainBegun("r0", token))
    begun_at = world.now
    world.run_until(lambda: bool(a.aborted))
    assert world.now - begun_at == 2_000
    world.run_until(lambda: a.works().get("r0", token) != token)
    assert "r1" in a.works()


def test_a_hung_handler_is_released_when_it_has_stopped() -> None:
    """Its cleanup may take a while; no other member works the resource before it ends."""
    world = World()
    a = world.start("A", names(2), member=MemberSettings(max_processing_ms=5_000))
    b = world.start("B", names(2))
    world.settle()
    stuck = next(iter(a.works()))
    a.habits = steady(stop_ms=3_000)
    a.busy(stuck, a.now - 5_000)
    aborted_at = world.now
    world.run_until(lambda: stuck in b.works())
    assert world.now - aborted_at >= 3_000
    assert a.problems == ["hung"]


def test_a_hung_handler_that_does_not_stop_is_named_as_an_overlap() -> None:
    """It gets as much time as in a leave, and then others continue."""
    world = World()
    a = world.start("A", names(2), member=MemberSettings(max_processing_ms=60_000, drain_timeout_ms=4_000))
    b = world.start("B", names(2))
    world.settle()
    stuck = next(iter(a.works()))
    a.habits = steady(stop_ms=None)
    a.busy(stuck, a.now - 60_000)
    aborted_at = world.now
    world.run_until(lambda: stuck in b.works())
    assert 4_000 <= world.now - aborted_at < 4_100
    assert a.problems == ["hung", "overlap"]
