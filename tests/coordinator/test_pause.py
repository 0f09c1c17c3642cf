"""A resource that is given up again and again waits in growing pauses, and moves nothing else."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.test_subscriptions import member

SESSION_MS = SETTINGS.session_timeout_ms
PAUSE_MS, MEMORY_MS, AVOID_MS = 300_000, 600_000, 3 * SESSION_MS


def give_up(group: Group, name: str = "r000", reason: str = "hung") -> Member:
    """Its holder reports that it cannot work it."""
    owner = group.holders()[name]
    assert owner is not None
    giver = group.members[owner]
    giver.hear()
    assert giver.release(name, delivered=1, reason=reason) == ("OK",)
    return giver


def paused_until(group: Group, name: str = "r000") -> int:
    """According to describe; 0 if it is not paused."""
    return {row.name: row.paused_until_ms for row in group.coordinator.resources()}[name]


def shared(group: Group, ids: str, count: int) -> list[Member]:
    """Members that share this many resources evenly."""
    members = group.joined(ids)
    group.set_resources(members[0], names(count))
    group.drain()
    return members


def test_the_second_giver_in_a_row_ends_the_round(group: Group) -> None:
    """The first time it goes to another member, like a hung handler's resource; then it waits, in no share."""
    shared(group, "abc", 7)
    first = give_up(group)
    group.drain()
    assert group.holders()["r000"] not in (None, first.id)
    give_up(group)
    group.drain()
    assert paused_until(group) == group.backend.now_ms + SESSION_MS
    assert sorted(group.loads().values()) == [2, 2, 2]
    assert [it["reason"] for it in group.journal("halted")] == ["paused"]
    assert int(group.journal("halted")[0]["deadline"]) == paused_until(group)


def test_pauses_grow_to_a_bound(group: Group) -> None:
    """From a session timeout, twice as long each time, up to five minutes."""
    shared(group, "ab", 4)
    give_up(group)
    lengths: list[int] = []
    while len(lengths) < 10:
        give_up(group)
        lengths.append(paused_until(group) - group.backend.now_ms)
        group.backend.now_ms += lengths[-1]
        group.beat()
    assert lengths == [min(SESSION_MS * 2**number, PAUSE_MS) for number in range(10)]


@pytest.mark.thorough
def test_what_nobody_can_work_moves_nobody_elses(group: Group) -> None:
    """Given up by all members, for ten minutes: two others have moved, however often it was tried."""
    shared(group, "abc", 9)
    revoked = len(group.journal("revoking"))
    until = group.backend.now_ms + 600_000
    while group.backend.now_ms < until:
        if group.holders()["r000"] is not None:
            give_up(group)
            group.drain()
        group.run(max(paused_until(group) - group.backend.now_ms, 100))
        group.drain()
    assert len(group.journal("abandoned")) < 12
    assert len(group.journal("revoking")) - revoked <= 2


def test_alone_it_is_paused_as_well(group: Group) -> None:
    """No other member could try; the same one does not try it a thousand times."""
    (a,) = shared(group, "a", 1)
    give_up(group)
    give_up(group)
    assert group.holders() == {"r000": None}
    group.run(SESSION_MS, a)
    assert group.holders() == {"r000": "a"}


def test_where_lists_differ_what_was_paused_is_granted_once(group: Group) -> None:
    """Its last giver has least, but is avoided: the member that has it instead is not asked for it at once."""
    a, b = member(group, "a", names(3)), member(group, "b", names(12))
    group.drain()
    assert [give_up(group).id, give_up(group).id] == ["a", "b"]
    group.run(SESSION_MS)
    group.drain()
    assert give_up(group) is a
    group.backend.now_ms = paused_until(group)
    assert not [a.heartbeat().more for _ in range(20)][-1]
    assert not group.journal("withdrawn")
    group.drain()
    assert len(a.holds) + len(b.holds) == 12


OWN_TROUBLE = ["fenced", "unconnected", "resigned", "deadline", "left", "blocked"]


@pytest.mark.parametrize("reason", OWN_TROUBLE)
def test_a_givers_own_trouble_pauses_nothing(group: Group, reason: str) -> None:
    """Cut off from a server, or willing to stop: the resource is fine, and worked again at once."""
    shared(group, "abc", 3)
    for _ in range(5):
        give_up(group, reason=reason)
        group.drain()
        assert group.holders()["r000"] is not None


@pytest.mark.parametrize("reason", ["resigned", "unconnected"])
def test_a_role_that_is_resigned_goes_to_somebody_else_each_time(group: Group, reason: str) -> None:
    """And one that a member without RabbitMQ cannot work goes to one that may have it."""
    shared(group, "ab", 2)
    for _ in range(6):
        giver = group.holders()["r000"]
        give_up(group, reason=reason)
        group.drain()
        assert group.holders()["r000"] not in (giver, None)
        group.run(4 * group.settings.session_timeout_ms)


@pytest.mark.parametrize("reason", ["fenced", "deadline", "left", "cancelled", "hung", "failed"])
def test_whatever_its_givers_say_nothing_else_moves(group: Group, reason: str) -> None:
    """Four have two each, and every holder of one of them gives it up at once, as often as it is tried."""
    shared(group, "abcd", 8)
    revoked = len(group.journal("revoking"))
    for _ in range(20):
        group.backend.now_ms += 300
        if group.holders()["r000"] is not None:
            give_up(group, reason=reason)
        group.drain()
    assert len(group.journal("revoking")) - revoked <= 2


def test_in_an_eager_group_nobody_stops_for_a_pause(backend: Backend) -> None:
    """Neither at its start nor at its end: no member joined or left."""
    group = Group(backend, attrs.evolve(SETTINGS, mode="eager"))
    shared(group, "abcd", 8)
    before = len(group.journal("barrier")), len(group.journal("revoking"))
    until = group.backend.now_ms + 10 * SESSION_MS
    while group.backend.now_ms < until:
        if group.holders()["r000"] is not None:
            give_up(group)
        group.run(1_000)
        group.drain()
    assert len(group.journal("halted")) > 2
    assert len(group.journal("barrier")) == before[0]
    assert len(group.journal("revoking")) - before[1] <= 2


def test_own_trouble_makes_no_pause_long(group: Group) -> None:
    """However often nobody was connected, the first pause is a short one."""
    shared(group, "ab", 2)
    for _ in range(6):
        give_up(group, reason="unconnected")
        group.drain()
    give_up(group)
    assert paused_until(group) <= group.backend.now_ms + 2 * SESSION_MS


def test_what_was_asked_back_is_not_held_against_it_either(group: Group) -> None:
    """A drain cut short by its deadline says nothing about the resource."""
    (a,) = shared(group, "a", 2)
    for other in "bcd":
        group.join(other)
        a.hear()
        (pending,) = a.pending
        give_up(group, pending, "deadline")
        assert group.holders()[pending] == other
        group.run(AVOID_MS, *group.members.values())
        group.until_left(group.members[other])
        group.drain(a)
    assert not group.journal("halted")


def test_given_back_in_order_it_begins_anew(group: Group) -> None:
    """It could be worked after all."""
    a, b = shared(group, "ab", 2)
    give_up(group)
    group.drain()
    holder = group.members[str(group.holders()["r000"])]
    holder.release("r000")
    group.drain()
    give_up(group)
    group.drain()
    assert paused_until(group) == 0
    assert group.holders()["r000"] in (a.id, b.id)


@pytest.mark.thorough
def test_worked_for_long_it_begins_anew(group: Group) -> None:
    """A failure ten minutes ago does not count."""
    members = shared(group, "ab", 2)
    give_up(group)
    group.drain()
    group.run(AVOID_MS + MEMORY_MS + 1_000, *members)
    assert group.records().resources["r000"].avoid == "-"
    give_up(group)
    assert paused_until(group) == 0


@pytest.mark.thorough
def test_an_operator_need_not_wait(group: Group) -> None:
    """Resuming tries it now, and clears its history."""
    (a,) = shared(group, "a", 1)
    give_up(group)
    give_up(group)
    assert group.coordinator.resume("r000") == {"r000": "OK"}
    give_up(group)
    assert group.holders() == {"r000": "a"}
    group.run(2 * PAUSE_MS, a)
    assert group.holders() == {"r000": "a"}


def test_a_paused_resource_can_be_removed(group: Group) -> None:
    """It returns as a new one; what was scheduled for the old one has no effect."""
    (a,) = shared(group, "a", 2)
    give_up(group)
    give_up(group)
    group.set_resources(a, ("r001",))
    assert set(group.holders()) == {"r001"}
    group.set_resources(a, names(2))
    group.run(2 * SESSION_MS, a)
    assert group.loads() == {"a": 2}


def test_what_is_being_removed_is_not_paused(group: Group) -> None:
    """It is going anyway."""
    a, b = shared(group, "ab", 2)
    give_up(group)
    group.drain()
    for it in (a, b):
        it.hear()
    holder = group.members[str(group.holders()["r000"])]
    group.set_resources(holder, ("r001",))
    holder.hear()
    holder.release("r000", delivered=1, reason="hung")
    assert set(group.holders()) == {"r001"}
