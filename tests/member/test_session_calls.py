"""One request at a time: repeats, hints, commits and the resource list."""

import attrs
import pytest
from tests.harness import DEAF, SETTINGS, Process, World, names, steady

from cobalance.coordinator.requests import Commit, CommitItem, Heartbeat, Release, Request, SetResources
from cobalance.member import events as ev
from cobalance.member.actions import CommitDone
from cobalance.settings import MemberSettings
from cobalance_sims.simulate.network import Network


def settled(count: int = 2) -> tuple[World, Process]:
    """A process that works everything."""
    world = World()
    a = world.start("A", names(count))
    world.settle()
    world.run(1_000)
    return world, a


def sent_since(process: Process, start: int, kind: type) -> list[Request]:
    """The attempts of one kind."""
    return [request for request in process.sent[start:] if isinstance(request.payload, kind)]


# -- repeats -------------------------------------------------------------------------------------------------------------


def test_a_lost_reply_is_asked_for_with_the_very_same_request() -> None:
    """Same number, same arguments. The coordinator repeats its answer, and does nothing twice."""
    world, a = settled()
    sent = len(a.sent)
    a.fates.extend(["no_reply", "no_reply"])
    ticket = a.commit("r0", 5)
    world.run_until(lambda: a.commits[ticket] is not None)
    attempts = sent_since(a, sent, Commit)
    assert len(attempts) == 3
    assert len({tuple(request.args()) for request in attempts}) == 1
    assert a.commits[ticket] == "OK"


def test_a_lost_reply_to_a_release_frees_once() -> None:
    """The repeat gets the same results, even if another member holds the resource by then."""
    world, a = settled()
    b = world.start("B", names(2))
    sent = len(a.sent)
    world.fate = lambda process, request: (
        "no_reply" if isinstance(request.payload, Release) and len(sent_since(process, sent, Release)) < 3 else "ok"
    )
    world.run(3_000)
    assert len(sent_since(a, sent, Release)) == 3
    assert [entry["kind"] for entry in world.records().journal].count("released") == 1
    assert len(b.started) == 1


def test_a_lost_reply_that_brought_a_grant_brings_it_again() -> None:
    """Changes are repeated until they are confirmed."""
    world = World()
    a = world.start("A", names(3))
    world.fate = lambda _, request: (
        "no_reply" if isinstance(request.payload, SetResources) and len(sent_since(a, 0, SetResources)) < 3 else "ok"
    )
    world.settle()
    assert [name for name, _, _ in a.started] == ["r0", "r1", "r2"]


def test_a_late_answer_to_a_question_that_was_given_up_is_no_news() -> None:
    """A join that was replaced by another one is not awaited any more."""
    world, a = settled()
    old = a.session.line.send(Heartbeat())
    a.session.line.outstanding = None
    reply = world.redis.coordinator.execute(old)
    holdings = a.session.holdings.snapshot()
    a.deliver(ev.Replied(old, reply, a.now))
    assert a.session.holdings.snapshot() == holdings
    world.settle()


# -- hints ---------------------------------------------------------------------------------------------------------------


def test_a_hint_makes_a_handover_a_matter_of_milliseconds() -> None:
    """It does not wait for a heartbeat."""
    world, a = settled()
    b = world.start("B", names(2))
    asked = world.now
    world.settle()
    assert world.now - asked < 50
    assert len(a.works()) == len(b.works()) == 1


def test_a_lost_hint_costs_one_heartbeat() -> None:
    """The version in the next reply is authoritative."""
    world, a = settled()
    a.network = DEAF
    world.start("B", names(2))
    asked = world.now
    world.settle()
    assert 50 < world.now - asked <= SETTINGS.heartbeat_interval_ms + 50


def test_a_hint_during_an_outstanding_call_is_not_lost() -> None:
    """The call may have run before the change, so another request follows it."""
    world, a = settled()
    sent = len(a.sent)
    a.fates.append("no_reply")
    world.run_until(lambda: len(a.sent) > sent)
    version = int(world.records().scalars["version"])
    a.deliver(ev.Hinted(version + 1))
    assert len(a.sent) == sent + 1
    world.run_until(lambda: len(a.sent) == sent + 2)
    assert a.sent[-1] is a.sent[-2]
    answered = world.now
    world.run_until(lambda: len(a.sent) == sent + 3)
    assert world.now - answered <= 5
    assert a.sent[-1] is not a.sent[-2]


def test_a_stale_hint_asks_nothing() -> None:
    """It brings nothing new."""
    _, a = settled()
    sent = len(a.sent)
    a.deliver(ev.Hinted(1))
    assert len(a.sent) == sent


def test_a_hint_of_a_future_that_was_lost_is_asked_about_once() -> None:
    """Redis lost the change between the hint and the request: its version may not come for a long time."""
    world, a = settled()
    sent = len(a.sent)
    a.deliver(ev.Hinted(1_000_000))
    world.run(500)
    assert len(a.sent) == sent + 1


def test_a_resubscription_asks_once() -> None:
    """Hints may have been missed."""
    world, a = settled()
    sent = len(a.sent)
    a.deliver(ev.Hinted(-1))
    world.run(500)
    assert len(a.sent) == sent + 1


# -- commits -------------------------------------------------------------------------------------------------------------


def test_commits_of_one_tenure_travel_as_one() -> None:
    """They accumulate while a request is outstanding, and the highest is sent."""
    world, a = settled()
    sent = len(a.sent)
    tickets = [a.commit("r0", offset) for offset in (1, 2, 3, 4)]
    world.run_until(lambda: all(a.commits[ticket] for ticket in tickets))
    assert [request.payload.items[0].offset for request in sent_since(a, sent, Commit)] == [1, 4]  # type: ignore[union-attr]
    assert {a.commits[ticket] for ticket in tickets} == {"OK"}


def test_an_offset_never_falls() -> None:
    """A lower one is refused, and the higher one stays."""
    world, a = settled()
    a.commit("r0", 9)
    world.run(50)
    ticket = a.commit("r0", 3)
    world.run_until(lambda: a.commits[ticket] is not None)
    assert a.commits[ticket] == "REGRESSED"
    assert world.records().offsets["r0"] == 9


def test_a_commit_after_the_loss_is_refused_without_asking() -> None:
    """The session knows already."""
    world, a = settled()
    token = a.work.tenures["r0"].token
    a.stop()
    world.run_until(lambda: a.left)
    assert a.session.handle(ev.CommitAsked(7, "r0", token, 5), a.now) == [CommitDone(7, "FENCED")]


def test_a_commit_whose_session_ended_has_an_unknown_outcome_if_it_was_sent() -> None:
    """It may have been stored; those that still waited certainly were not."""
    world = World()
    a, b = world.start("A", names(1)), world.start("B", names(1))
    world.settle()
    world.run(500)
    a.fates.append("late")
    sent, waiting = a.commit("r0", 1), a.commit("r0", 2)
    a.pause()
    world.run_until(lambda: len(b.works()) == 1)
    a.resume()
    world.run_until(lambda: a.commits[waiting] is not None)
    assert (a.commits[sent], a.commits[waiting]) == ("UNKNOWN", "FENCED")


def test_a_late_commit_of_the_old_holder_is_fenced() -> None:
    """S3: only the current token of the current member may commit."""
    world, a = settled(1)
    b = world.start("B", names(1))
    a.habits = steady(close_ms=1)
    token = a.work.tenures["r0"].token
    a.stop()
    world.run_until(lambda: len(b.works()) == 1)
    late = Request(attrs.evolve(a.sent[-1].header, number=99), Commit((CommitItem("r0", token, 5),)))
    assert world.redis.coordinator.execute(late).status == "ENDED"
    wrong = Request(attrs.evolve(b.sent[-1].header, number=99), Commit((CommitItem("r0", token, 5),)))
    assert world.redis.coordinator.execute(wrong).results == ("FENCED",)


# -- the resource list -----------------------------------------------------------------------------------------------------


def test_a_long_list_travels_in_pages() -> None:
    """And is complete."""
    world = World(attrs.evolve(SETTINGS, moves_per_call=150))
    a = world.start("A", names(1_000))
    world.run_until(lambda: len(a.works()) == 1_000)
    assert len(sent_since(a, 0, SetResources)) >= 5


def test_the_list_is_declared_again_when_the_group_has_recovered() -> None:
    """Nothing is removed while claims may still arrive; afterwards the list decides."""
    world = World()
    a = world.start("A", names(3))
    world.settle()
    world.empty_redis()
    a.deliver(ev.ResourcesDeclared(2, names(2)))
    world.run(1_500)
    assert set(a.works()) == {"r0", "r1", "r2"}
    world.run_until(lambda: set(world.records().resources) == {"r0", "r1"})
    world.settle()


def test_lists_that_disagree_are_a_clear_error() -> None:
    """Same version, different list: the new member is refused, and no other one is disturbed."""
    world, a = settled()
    b = world.start("B", ("r0", "other"))
    world.run_until(lambda: b.left)
    assert "list_disagrees" in b.problems
    world.settle()
    assert set(a.works()) == {"r0", "r1"}


def test_a_lower_version_is_ignored() -> None:
    """A rolling update with two lists does not flip-flop."""
    world = World()
    world.start("A", names(3), version=2)
    world.settle()
    b = world.start("B", names(1), version=1)
    world.run(50)
    world.settle()
    assert "list_disagrees" not in b.problems
    assert set(world.records().resources) == {"r0", "r1", "r2"}


def test_the_same_list_under_a_higher_version_is_declared() -> None:
    """An answer about the old version says nothing about the new one."""
    world, a = settled()
    sent = len(a.sent)
    a.fates.append("no_reply")
    a.deliver(ev.ResourcesDeclared(2, names(2)))
    a.deliver(ev.ResourcesDeclared(3, names(2)))
    world.run_until(lambda: world.records().number("list_version") == 3)
    assert len(sent_since(a, sent, SetResources)) >= 2


@pytest.mark.parametrize("members", [1, 2])
def test_lists_that_are_replaced_faster_than_they_are_sent_are_known_all_the_same(members: int) -> None:
    """A list that has been begun is sent to its end; the newest one is next. Whose turn it is takes turns."""
    world = World(attrs.evolve(SETTINGS, moves_per_call=2))
    processes = [world.start(name, names(40), version=1) for name in "AB"[:members]]
    world.run_until(lambda: all("r39" in world.records().resources for _ in processes))
    for version in range(2, 800):
        for it in processes:
            it.deliver(ev.ResourcesDeclared(version, names(41)))
        world.run(3)
        if "r40" in world.records().resources:
            break
    assert version < 700
    world.settle()


def test_removing_a_held_resource_revokes_it_first() -> None:
    """Its holder finishes. If it is added again meanwhile, holder and token stay."""
    world, a = settled(3)
    token = a.work.tenures["r2"].token
    a.habits = steady(drain_ms=2_000)
    a.deliver(ev.ResourcesDeclared(2, names(2)))
    world.run_until(lambda: a.work.tenures["r2"].state == "draining")
    a.deliver(ev.ResourcesDeclared(3, names(3)))
    world.settle()
    assert a.work.tenures["r2"].token == token


def test_the_elected_coordinator_ticks_at_the_next_deadline() -> None:
    """A crash is handled when the session ends, not at the next heartbeat of any member."""
    world = World(
        attrs.evolve(SETTINGS, session_timeout_ms=9_000, heartbeat_interval_ms=3_000, revocation_timeout_ms=9_000)
    )
    a = world.start("A", names(2), member=MemberSettings())
    b = world.start("B", names(2))
    world.settle()
    world.run(1_000)
    sent = len(b.sent)
    world.run_until(lambda: len(b.sent) > sent)
    last = world.now + 1
    b.kill()
    world.run_until(lambda: len(a.works()) == 2)
    assert world.now - last <= 9_000 + 10
    assert a.session.is_coordinator


# -- taking turns ----------------------------------------------------------------------------------------------------------


def committing(world: World, process: Process, ms: int, every_ms: int = 3) -> None:
    """Commits more often than calls are answered, for this long."""

    def commit(_: object) -> None:
        process.commit("r0", process.work.tenures["r0"].done + 1)

    process.network = Network(latency_ms=(5, 5), slow=0.0)
    for at in range(0, ms, every_ms):
        world.clock.after(at, commit)


def test_commits_do_not_keep_a_resource_list_waiting() -> None:
    """Its pages alternate with commits, so the list is complete while they go on."""
    world, a = settled()
    committing(world, a, 3_000)
    a.deliver(ev.ResourcesDeclared(2, names(700)))
    sent = len(a.sent)
    world.run_until(lambda: len(a.works()) == 700, 3_000)
    assert len(sent_since(a, sent, Commit)) > 5
    world.run(3_000)
    assert {*a.commits.values()} == {"OK"}


def test_commits_do_not_keep_what_changed_from_being_heard() -> None:
    """A revocation arrives with the reply to a commit too. What did not fit into its page does not wait until commits
    end.
    """
    world, a = settled(300)
    a.habits = steady(drain_ms=100_000)
    committing(world, a, 3_000)
    world.start("B", names(300))
    world.run_until(lambda: sum(it.state == "draining" for it in a.work.tenures.values()) == 150, 1_000)


def test_commits_do_not_keep_back_who_is_busy() -> None:
    """They renew the session like a heartbeat, but report no progress."""
    world, a = settled()
    committing(world, a, 3_000, every_ms=200)
    a.busy("r0", a.now)
    sent = len(a.sent)
    world.run(2 * SETTINGS.heartbeat_interval_ms)
    assert any(isinstance(it.payload, Heartbeat) and it.payload.progress for it in a.sent[sent:])


def test_releases_go_before_anything_of_ours() -> None:
    """A member that waits for a resource gets it before a list is complete, or another commit is stored."""
    world, a = settled(4)
    committing(world, a, 500)
    a.deliver(ev.ResourcesDeclared(2, names(3)))
    world.run_until(lambda: any(it.state == "closing" for it in a.work.tenures.values()))
    world.run_until(lambda: "r3" not in a.work.tenures)
    sent = len(a.sent)
    world.run_until(lambda: len(a.sent) > sent)
    assert isinstance(a.sent[sent].payload, Release)
