"""A key is gone, deleted by hand or evicted: the next call that settles anything notices, and the group repairs
itself.
"""

from __future__ import annotations

import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import Group, Member, names
from tests.coordinator.test_foreign_entries import KEYS, do
from tests.coordinator.torn import settle_down

from cobalance.coordinator.transport import Script


class Damaged(Group):
    """Its data is checked while nothing is gone."""

    is_whole = True

    def check(self) -> None:
        if self.is_whole:
            super().check()


def remove(group: Damaged, key: str) -> None:
    group.is_whole = False
    group.backend.call(Script.of("gone", "return redis.call('UNLINK', KEYS[1])"), (KEYS[key],), ())


def sharing(backend: Backend) -> tuple[Damaged, list[Member]]:
    group = Damaged(backend)
    members = group.joined("abc")
    group.set_resources(members[0], names(6))
    group.drain()
    return group, members


def come_back(group: Group, ms: int) -> None:
    """Time passes; who is told to rejoin does, under a new id."""
    end = group.backend.now_ms + ms
    while group.backend.now_ms < end:
        group.backend.now_ms += group.settings.heartbeat_interval_ms
        for member in tuple(group.members.values()):
            if not member.silent and not member.is_over:
                member.hear()
            if member.last.status in {"REJOIN", "UNKNOWN"} and not member.silent:
                member.rejoin(member.id + "x")


@pytest.mark.parametrize("key", ["timers", "owned"])
@pytest.mark.parametrize("then", ["crash", "join", "leave", "tick"])
def test_an_index_that_is_gone_is_noticed(backend: Backend, key: str, then: str) -> None:
    """Whatever happens next: a crash is healed, a newcomer gets its share, and who leaves is emptied."""
    group, (a, b, c) = sharing(backend)
    remove(group, key)
    if then == "crash":
        c.silent = True
    elif then == "join":
        group.join("d")
    elif then == "leave":
        group.until_left(b)
    else:
        group.tick()
    group.run(10_000)
    group.is_whole = True
    group.drain()
    assert a.holds
    assert set(group.loads().values()) <= ({2} if then == "tick" else {1, 2} if then == "join" else {3})
    assert [it["reason"].split()[0] for it in group.journal("repaired")][-1:] == ["gone"]
    settle_down(group)


def test_members_that_are_gone_bring_back_what_they_hold(backend: Backend) -> None:
    """Nobody is given what another one still works: all rejoin, with claims."""
    group, _ = sharing(backend)
    held = group.holders()
    tokens = {name: it.token for member in group.members.values() for name, it in member.holds.items()}
    remove(group, "members")
    come_back(group, 15_000)
    group.is_whole = True
    group.check()
    assert group.holders() == {name: f"{owner}x" for name, owner in held.items()}
    assert {name: it.token for m in group.members.values() for name, it in m.holds.items()} == tokens


@pytest.mark.parametrize("then", ["join", "tick", "repair"])
def test_members_that_are_gone_are_not_worked_against(backend: Backend, then: str) -> None:
    """A newcomer, or whoever calls first, gets nothing of theirs before their leases are over."""
    group, _ = sharing(backend)
    old = list(group.members.values())
    remove(group, "members")
    if then == "join":
        group.join("d")
    elif then == "tick":
        group.tick()
    else:
        group.coordinator.repair()
    for _ in range(3):
        assert {row.owner for row in group.coordinator.resources()} <= {None}
        group.backend.now_ms += 200
        group.tick()
    for member in old:
        member.silent = True
    if then != "join":
        group.join("d")
    come_back(group, 20_000)
    group.is_whole = True
    group.check()
    assert len(set(group.holders().values())) == 1


@pytest.mark.parametrize("left_ms", [200, 1, 0])
def test_members_that_are_gone_as_a_recovery_ends_are_not_worked_against(backend: Backend, left_ms: int) -> None:
    """What is left of the recovery is too little for them to come back with their claims."""
    group, _ = sharing(backend)
    group.is_whole = False
    group.lose_data()
    come_back(group, 600)
    backend.now_ms += group.tick().recovering_ms - left_ms
    held = {name: member.id for member in group.members.values() for name in member.holds}
    remove(group, "members")
    newcomer = group.join("d")
    for _ in range(10):
        backend.now_ms += 100
        group.tick()
        newcomer.hear()
        assert not newcomer.holds
    come_back(group, 15_000)
    assert set(group.holders().values()) >= {f"{name}x" for name in held.values()}


def test_a_member_whose_record_is_gone_rejoins_with_what_it_holds(backend: Backend) -> None:
    """Not only where all are."""
    group, (_, b, _) = sharing(backend)
    held = group.holders()
    do(backend, "HDEL", "members", "b")
    group.is_whole = False
    b.silent = True
    come_back(group, 15_000)
    group.is_whole = True
    group.check()
    assert None not in group.holders().values()
    assert "b" in held.values()
    assert "b" not in group.holders().values()
