"""Redis lost its data, went back in time, or is another server: members return with claims."""

from collections.abc import Callable

import attrs
import pytest
from tests.harness import SETTINGS, Process, World, names, steady

from cobalance.coordinator.requests import Claim, Join, SetResources
from cobalance.member import events as ev
from cobalance.settings import MemberSettings
from proof.stories.faults import Stale


def three(count: int = 6) -> tuple[World, list[Process]]:
    """Three settled processes."""
    world = World()
    processes = [world.start(name, names(count)) for name in "ABC"]
    world.settle()
    world.run(1_000)
    return world, processes


def joins(process: Process) -> list[Join]:
    """Its joins, one per line, without repeats."""
    seen: dict[tuple[str, int], Join] = {}
    for request in process.sent:
        if isinstance(request.payload, Join):
            seen[request.header.member, request.header.number] = request.payload
    return list(seen.values())


def lists(process: Process) -> int:
    """How many pages of lists it has declared."""
    return sum(isinstance(request.payload, SetResources) for request in process.sent)


def works(processes: list[Process]) -> list[dict[str, int]]:
    """What all processes work on."""
    return [process.works() for process in processes]


def test_an_emptied_redis_interrupts_nobody() -> None:
    """All members claim what they hold, under the same tokens; nothing is stopped or moved."""
    world, processes = three()
    before = works(processes)
    world.empty_redis()
    world.run(8_000)
    assert works(processes) == before
    assert [process.aborted for process in processes] == [[], [], []]
    world.settle()
    assert works(processes) == before
    assert {process.session.member for process in processes} == {"A.2", "B.2", "C.2"}


def test_an_outdated_list_takes_nothing_from_anybody() -> None:
    """Two processes, one of which holds nothing, know the list of before; the member with the one that counts brings it."""
    world = World()
    newest = world.start("A", names(4), version=2)
    processes = [newest, world.start("B", names(2), version=1), world.start("C", names(2), version=1)]
    world.settle()
    before = works(processes)
    world.empty_redis()
    world.run(8_000)
    world.settle()
    assert works(processes) == before
    assert [process.aborted for process in processes] == [[], [], []]
    assert {row.status for row in world.records().resources.values()} == {"held"}


@pytest.mark.parametrize("loss", [World.empty_redis, lambda world: world.redis.replace()], ids=["emptied", "replaced"])
def test_a_list_that_was_looked_for_is_not_declared_again(loss: Callable[[World], None]) -> None:
    """What was found before may be out of date. While there is no list everybody goes on; then the head brings one."""
    world = World()
    processes = [world.start(name, names(2), subscription="~topic") for name in "AB"]
    world.settle()
    before = works(processes)
    declared = [lists(process) for process in processes]
    loss(world)
    world.run(8_000)
    assert works(processes) == before
    assert [lists(process) for process in processes] == declared
    head = next(process for process in processes if process.session.is_head)
    head.deliver(ev.ResourcesDeclared(5, names(3)))
    world.run_until(lambda: sum(map(len, works(processes))) == 3)
    assert [process.aborted for process in processes] == [[], []]


def test_committed_offsets_come_back_with_the_claims() -> None:
    """The coordinator has only what the members remember."""
    world, processes = three()
    a = processes[0]
    name = min(a.works())
    ticket = a.commit(name, 42)
    world.run_until(lambda: a.commits[ticket] == "OK")
    world.empty_redis()
    world.settle()
    world.run_until(lambda: world.records().offsets.get(name) == 42)


def test_another_server_is_noticed_by_its_identity() -> None:
    """A replica that took over with all data does not prove what was granted meanwhile."""
    world, processes = three()
    before = works(processes)
    world.redis.replace()
    world.run(2_000)
    assert {process.session.member for process in processes} == {"A.2", "B.2", "C.2"}
    world.settle()
    assert works(processes) == before


def test_an_older_redis_is_noticed_by_its_version() -> None:
    """Restored from a snapshot with other holders: the actual holders claim their resources."""
    world, processes = three(4)
    world.redis.remember()
    processes[2].stop()
    world.run_until(lambda: processes[2].left)
    world.settle()
    world.run(2_000)
    before = works(processes[:2])
    Stale(restarted=False).strike(world)
    world.run(20_000)
    world.settle()
    assert works(processes[:2]) == before


def test_claims_travel_in_pages_and_are_exhaustive() -> None:
    """450 tenures take nine joins under one id, and only the last one completes the membership."""
    world = World(attrs.evolve(SETTINGS, moves_per_call=500))
    a = world.start("A", names(450))
    world.run_until(lambda: len(a.works()) == 450)
    before = a.works()
    world.empty_redis()
    world.run(8_000)
    pages = joins(a)[1:]
    assert [(len(page.claims), page.last_page) for page in pages] == [(50, False)] * 8 + [(50, True)]
    assert len({claim.resource for page in pages for claim in page.claims}) == 450
    assert a.works() == before


def test_a_page_of_claims_renews_nothing_that_is_not_claimed_yet() -> None:
    """The first page is answered, the second is not: what the second would have claimed stops with the old lease, since
    whatever is not claimed in time becomes free.
    """
    world = World(attrs.evolve(SETTINGS, moves_per_call=500))
    a = world.start("A", names(250))
    world.run_until(lambda: len(a.works()) == 250)
    world.run(1_000)
    until = a.session.lease.until
    world.empty_redis()
    world.fate = lambda _, request: "lost" if request.header.number == 2 and isinstance(request.payload, Join) else "ok"
    world.run_until(lambda: bool(a.aborted))
    assert a.now == until
    b = world.start("B", names(250))
    world.run(10_000)
    world.fate = lambda _process, _request: "ok"
    world.settle()
    assert len(b.works()) == 125


def test_what_was_aborted_is_never_claimed() -> None:
    """First it is cut off, then the data is lost: a fenced tenure is over, whatever its token."""
    world = World()
    a = world.start("A", names(3))
    world.settle()
    a.work.guard("r1")
    world.redis.up = False
    world.run(4_000)
    world.empty_redis()
    world.redis.up = True
    world.run_until(lambda: a.session.member == "A.2")
    assert [claim.resource for claim in joins(a)[-1].claims] == ["r1"]
    world.settle()


def test_a_fence_while_a_rejoin_is_unanswered_leads_to_another_join_without_the_aborted() -> None:
    """The current join claims what is aborted now, so another one that does not replaces it."""
    world = World()
    a = world.start("A", names(3))
    world.settle()
    a.work.guard("r1")
    world.empty_redis()
    world.fate = lambda _, request: "no_reply" if isinstance(request.payload, Join) else "ok"
    world.run_until(lambda: bool(a.aborted))
    world.run(2_000)
    assert [[claim.resource for claim in join.claims] for join in joins(a)[1:]] == [["r0", "r1", "r2"], ["r1"]]
    assert joins(a)[-1].previous == "A.2"
    world.fate = lambda _process, _request: "ok"
    world.settle()
    assert [name for name, _, _ in a.started] == ["r0", "r1", "r2", "r0", "r2"]


def test_a_join_that_was_given_up_and_arrives_late_makes_no_lasting_ghost() -> None:
    """The old join runs after the new one: what it took is free again after a session timeout at the latest."""
    world = World()
    a = world.start("A", names(3))
    world.settle()
    world.empty_redis()
    a.habits = steady()
    world.fate = lambda _, request: "late" if isinstance(request.payload, Join) else "ok"
    world.run_until(lambda: bool(a.aborted))
    world.fate = lambda _process, _request: "ok"
    world.settle(within_ms=15_000)
    assert len(a.works()) == 3


def test_a_refused_claim_is_lost() -> None:
    """Frozen while the data was lost, and for longer than the others waited: its claims come too late."""
    world, processes = three()
    a = processes[0]
    for name in a.works():
        a.work.guard(name)
    held = set(a.works())
    a.pause()
    world.empty_redis()
    world.run(12_000)
    a.resume()
    world.run_until(lambda: a.session.member == "A.2" and a.session.phase.value == "active")
    assert {name for name, reason in a.aborted if reason == "lost"} == held
    world.settle()


def test_nothing_is_given_out_before_everybody_could_claim() -> None:
    """A new member that comes first to an empty Redis gets nothing for one session timeout."""
    world, _ = three()
    world.empty_redis()
    d = world.start("D", names(6))
    world.run(SETTINGS.session_timeout_ms - 100)
    assert d.works() == {}
    world.settle()


def test_the_window_for_claims_is_as_long_as_the_leases_that_run() -> None:
    """The group's session timeout was raised. A Redis that has lost it learns it from the first join."""
    world = World()
    a, b = world.start("A", names(4)), world.start("B", names(4))
    world.settle()
    world.redis.coordinator.configure(session_timeout_ms=12_000, revocation_timeout_ms=12_000)
    world.run(3_000)
    world.empty_redis()
    world.fate = lambda process, _: "lost" if process is b else "ok"
    world.run(9_000)
    assert len(b.works()) == 2
    assert len(a.works()) == 2
    world.fate = lambda _process, _request: "ok"
    world.run(5_000)
    world.settle()
    assert world.records().number("session_ms") == 12_000


def test_commits_under_way_are_asked_again_under_the_new_id() -> None:
    """The tenure lives on, and so does the commit."""
    world = World()
    a = world.start("A", names(1))
    world.settle()
    world.empty_redis()
    ticket = a.commit("r0", 5)
    world.run_until(lambda: a.commits[ticket] is not None)
    assert a.commits[ticket] == "OK"
    assert a.session.member == "A.2"


def test_a_drain_that_finished_is_claimed_and_then_released() -> None:
    """Its release was answered with REJOIN: the offset is part of the claim, then it is released again."""
    world = World()
    a = world.start("A", names(2))
    world.settle()
    a.habits = steady(drain_ms=500)
    a.work.tenures["r0"].done = a.work.tenures["r1"].done = 9
    b = world.start("B", names(2))
    world.run_until(lambda: any(it.state == "closing" for it in a.work.tenures.values()))
    drained = next(name for name, it in a.work.tenures.items() if it.state == "closing")
    world.empty_redis()
    world.settle()
    assert world.records().offsets[drained] == 9
    assert len(a.works()) == len(b.works()) == 1


def test_a_member_whose_session_ended_starts_anew_with_nothing() -> None:
    """ENDED: it has lost everything, and joins again as another member."""
    world = World()
    a, b = world.start("A", names(2)), world.start("B", names(2))
    world.settle()
    a.pause()
    world.run_until(lambda: len(b.works()) == 2)
    a.resume()
    world.settle()
    assert a.session.member == "A.2"
    assert [len(join.claims) for join in joins(a)] == [0, 0]
    assert joins(a)[-1].previous == "A.1"


def test_an_unknown_member_starts_anew() -> None:
    """UNKNOWN: it was away for so long that even its tombstone is gone."""
    world = World()
    a, b = world.start("A", names(2)), world.start("B", names(2))
    world.settle()
    a.pause()
    world.run(700_000)
    assert "A.1" not in world.records().members
    a.resume()
    world.settle()
    assert any("UNKNOWN" in line for line in world.trace.lines)
    assert a.session.member == "A.2"
    assert len(b.works()) == 1


def test_a_stale_number_starts_anew() -> None:
    """STALE: another request used its id with a higher number, so nothing is certain."""
    world = World()
    a = world.start("A", names(1))
    world.settle()
    for _ in range(100):
        a.session.line.send(Join(settings=SETTINGS))
    high = a.session.line.outstanding
    assert high is not None
    world.redis.coordinator.execute(high)
    a.session.line._number = 1
    a.session.line.outstanding = None
    world.settle()
    world.run_until(lambda: a.session.member == "A.2")
    world.settle()


def test_new_tokens_lie_above_everything_a_process_has_seen() -> None:
    """Even if the server's clock went back with its data."""
    world = World()
    a = world.start("A", names(1))
    world.settle()
    token = a.work.tenures["r0"].token
    world.redis.store.clock_us = lambda: 1_000_000 + world.now * 1_000
    world.empty_redis()
    a.work.guard("r0")
    world.run(8_000)
    b = world.start("B", names(1))
    a.stop()
    world.run_until(lambda: bool(b.started))
    assert b.started[0][1] > token


def test_claims_carry_token_and_offset() -> None:
    """The contents of a claim."""
    world = World()
    a = world.start("A", names(1), member=MemberSettings())
    world.settle()
    ticket = a.commit("r0", 3)
    world.run_until(lambda: a.commits[ticket] == "OK")
    world.empty_redis()
    world.run_until(lambda: len(joins(a)) == 2)
    assert joins(a)[-1].claims == (Claim("r0", a.started[0][1], 3),)
