"""A key is gone, deleted by hand or evicted: the next call that settles anything notices, and the group repairs
itself.
"""

from __future__ import annotations

from collections import Counter

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names
from tests.coordinator.test_foreign_entries import KEYS, do
from tests.coordinator.torn import settle_down

from cobalance.coordinator.keys import NAMES
from cobalance.coordinator.requests import Header, Request, Tick
from cobalance.coordinator.transport import Script
from proof.stories.of_keys import key_gone, keys_gone


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


@pytest.mark.parametrize("key", ["timers", "owned", "names", "ids", "load", "more", "less", "loose"])
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


@pytest.mark.parametrize("key", ["members", "resources", "declared", "state"])
def test_members_bring_back_what_is_gone(backend: Backend, key: str) -> None:
    """Nobody is given what another one still works: all rejoin, with claims."""
    group, _ = sharing(backend)
    held = group.holders()
    tokens = {name: it.token for member in group.members.values() for name, it in member.holds.items()}
    remove(group, key)
    group.tick()
    come_back(group, 15_000)
    group.is_whole = True
    group.check()
    assert group.holders() == {name: f"{owner}x" for name, owner in held.items()}
    assert {name: it.token for m in group.members.values() for name, it in m.holds.items()} == tokens


@pytest.mark.parametrize("key", ["resources", "state", "names"])
def test_a_newcomer_is_not_given_what_is_not_on_record(backend: Backend, key: str) -> None:
    """Not even if it names everything before anybody else calls; and later everybody has a share."""
    group, old = sharing(backend)
    held = {name: member.id for member in old for name in member.holds}
    remove(group, key)
    newcomer = group.join("d")
    while newcomer.last.status == "REPAIRING":
        newcomer = group.join("d")
    group.set_resources(newcomer, names(6), version=2)
    newcomer.hear()
    assert not newcomer.holds
    come_back(group, 15_000)
    group.is_whole = True
    group.drain()
    group.run(10_000)
    group.drain()
    group.check()
    loads = Counter(owner.rstrip("x") for owner in group.holders().values() if owner)
    assert sorted(loads.values()) == [1, 1, 2, 2]
    assert held.keys() == group.holders().keys()


@pytest.mark.parametrize("verb", ["join", "create"])
def test_a_group_that_is_made_has_nothing_of_one_that_is_gone(backend: Backend, verb: str) -> None:
    """But for its offsets, which are forgotten in time if nobody names their resources."""
    group = Damaged(backend)
    a = group.joined("a")[0]
    group.set_resources(a, names(3))
    group.drain()
    name = min(a.holds)
    a.commit(name, 7)
    remove(group, "state")
    group.members.clear()
    if verb == "join":
        group.join("b")
    else:
        group.coordinator.create(group.settings)
    group.tick()
    records = group.records()
    assert not records.resources
    assert set(records.members) <= {"b"}
    assert records.offsets == {name: 7}
    assert f"o:{name}" in records.zsets["timers"]
    group.check()


@pytest.mark.parametrize("also", sorted(set(NAMES) - {"state", "resources"}))
def test_without_its_state_there_is_no_group_to_repair(backend: Backend, also: str) -> None:
    """Whatever else is gone: a group without settings would grant nothing. Members make it again, with theirs."""
    group, _ = sharing(backend)
    held = {name: f"{owner}x" for name, owner in group.holders().items()}
    for key in ("state", "resources", also):
        remove(group, key)
    assert group.tick().status == "UNKNOWN"
    come_back(group, 15_000)
    group.is_whole = True
    assert group.coordinator.settings() == SETTINGS
    assert group.holders() == held
    group.set_resources(next(iter(group.members.values())), names(8), version=2)
    settle_down(group)


@pytest.mark.parametrize("then", ["join", "tick", "repair"])
def test_members_that_are_gone_are_not_worked_against(backend: Backend, then: str) -> None:
    """A newcomer, or the first caller, gets nothing of theirs before their leases are over."""
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


@pytest.mark.parametrize("instance", [None, "i"])
def test_nothing_is_left_of_a_dead_member_without_record_and_timer(backend: Backend, instance: str | None) -> None:
    """Nobody comes back for what else there is of it."""
    group, (_, b, _) = sharing(backend)
    dead = group.join("d", instance_id=instance)
    group.drain()
    dead.silent = True
    if instance:
        group.run(5_000)
    group.set_resources(b, names(5), version=2)  # news that it never hears
    for key in ("resources", "members", "timers"):
        remove(group, key)
    come_back(group, 15_000)
    group.is_whole = True
    group.check()
    assert not [entry for entry in group.records().zsets["feed"] if entry.startswith("d ")]


KEPT = 20_000
"""The rejoin grace, in ms."""


def waited_for(backend: Backend, count: int) -> Damaged:
    """A service with instance ids is restarted as a whole: everything is kept for its members, and nobody is there."""
    group = Damaged(backend)
    old = [group.join(id_, instance_id=f"i{id_}") for id_ in "ac"]
    group.set_resources(old[0], names(count), version=1)
    group.drain()
    for member in old:
        member.leave(remain=True)
    group.members.clear()
    return group


def begin_anew(group: Damaged, count: int, newcomer: Member, version: int = 1) -> Member:
    """Declares, and again after a recovery; in the end everything is as recorded, and its own."""
    for _ in range(60):
        group.backend.now_ms += group.settings.heartbeat_interval_ms
        if newcomer.is_over:
            newcomer = newcomer.rejoin(newcomer.id + "x")
        group.set_resources(newcomer, names(count), version=version)
        newcomer.hear()
    group.is_whole = True
    group.check()
    assert set(newcomer.holds) == set(names(count))
    return newcomer


@pytest.mark.parametrize("is_heir", [False, True])
@pytest.mark.parametrize("count", [1, 2, 6])
def test_nothing_is_kept_for_members_that_are_not_on_record(backend: Backend, count: int, is_heir: bool) -> None:
    """The first process that comes notices, heir of one of them or not."""
    group = waited_for(backend, count)
    remove(group, "members")
    begin_anew(group, count, group.join("n", instance_id="ia" if is_heir else None))
    assert group.journal("repaired")


@pytest.mark.parametrize("then", ["nobody", "join", "heir"])
def test_nothing_is_kept_for_one_that_is_not_on_record(backend: Backend, then: str) -> None:
    """While others live: it is noticed when somebody is to be asked, when its heir comes, or when its grace is over."""
    group = Damaged(backend)
    a, c = (group.join(id_, instance_id=f"i{id_}") for id_ in "ac")
    group.set_resources(a, names(6), version=1)
    group.drain()
    a.leave(remain=True)
    group.members = {"c": c}
    group.is_whole = False
    do(backend, "HDEL", "members", "a")
    if then != "nobody":
        group.join("n", instance_id="ia" if then == "heir" else None)
    come_back(group, KEPT + 15_000)
    group.set_resources(next(iter(group.members.values())), names(6), version=1)
    group.is_whole = True
    group.drain()
    group.run(10_000)
    group.drain()
    group.check()
    assert set(group.holders().values()) == set(group.members)


@pytest.mark.parametrize("keys", [("timers",), ("members",), ("members", "timers")])
def test_what_a_dead_member_had_is_not_its_for_ever(backend: Backend, keys: tuple[str, ...]) -> None:
    """It was being emptied, a few resources a call, and nobody is there."""
    group = Damaged(backend, attrs.evolve(SETTINGS, moves_per_call=4))
    group.set_resources(group.join("a"), names(12), version=1)
    group.drain()
    group.members.clear()
    backend.now_ms += 2_000
    group.coordinator.tick()
    backend.now_ms += 6_000
    group.coordinator.state()
    while not group.journal("expired"):
        group.execute(Request(Header("-", 0), Tick()))
    assert "a" in group.holders().values()
    for key in keys:
        remove(group, key)
    begin_anew(group, 12, group.join("n"))


def test_a_pause_ends_although_its_timer_is_gone(backend: Backend) -> None:
    """Nobody was there when it went."""
    group = Damaged(backend)
    a = group.join("a")
    group.set_resources(a, names(3), version=1)
    group.drain()
    for _ in range(2):
        a.release("r000", reason="handler")
        a.hear()
    assert group.holders()["r000"] is None
    group.until_left(a)
    group.members.clear()
    remove(group, "timers")
    begin_anew(group, 3, group.join("n"))


def test_a_group_that_waits_for_nothing_misses_no_timers(backend: Backend) -> None:
    """Its last member's tombstone is gone, and so was the key: nobody takes that for a loss."""
    group = Damaged(backend)
    group.until_left(group.join("a"))
    group.members.clear()
    backend.now_ms += 3_600_000
    group.tick()
    assert "timers" not in {key.key.decode().rsplit(":", 1)[1] for key in backend.dump()}
    for look in (group.tick, lambda: list(group.coordinator.members()), lambda: group.join("n"), group.tick):
        look()
    assert not group.journal("repaired")


def _seeds(*quick: int, thorough: range) -> list[object]:
    return [*quick, *(pytest.param(seed, marks=pytest.mark.thorough) for seed in thorough if seed not in quick)]


@pytest.mark.parametrize("seed", _seeds(1, thorough=range(8)))
@pytest.mark.parametrize("key", NAMES)
def test_a_group_gets_over_the_loss_of_any_key(key: str, seed: int) -> None:
    """While its members come, go and crash: nothing is worked twice or by nobody, and in the end all is on record."""
    outcome = key_gone(key, seed).tell()
    assert not outcome.failure, "\n".join(outcome.lines[-60:])


@pytest.mark.parametrize("seed", _seeds(0, 9, 11, 20, 37, thorough=range(120)))
@pytest.mark.thorough
def test_a_group_gets_over_the_loss_of_keys_one_by_one(seed: int) -> None:
    """Some of them or all, in any order, slowly or fast."""
    outcome = keys_gone(seed).tell()
    assert not outcome.failure, "\n".join(outcome.lines[-60:])
