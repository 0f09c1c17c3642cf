"""Promise R1: whatever script dies at whatever write, the next call makes the group consistent, and everything is
worked.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from typing import Any

import attrs
import pytest
from tests.coordinator.driver import SETTINGS, names
from tests.coordinator.test_foreign_entries import do
from tests.coordinator.test_subscriptions import member
from tests.coordinator.torn import Death, Story, TornGroup, settle_down, tell

from cobalance.coordinator.transport import Reply, Script
from cobalance.errors import ScriptFailed
from cobalance.settings import GroupSettings


def coming_and_going(group: TornGroup) -> None:
    """Two members share, a third joins, one commits and leaves, one crashes."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    group.beat()  # a repair in the last of these calls stops everything again in eager mode: they do not know of it yet
    group.drain()
    b.busy(min(b.holds))
    a.commit(min(a.holds), 7)
    group.join("c")
    group.drain()
    group.until_left(a)
    group.drain()
    b.silent = True
    group.run(5_000)


def giving_back(group: TornGroup) -> None:
    """Resources are given up, halted, reset and resumed; one revocation passes its deadline."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    one, two = sorted(a.holds)
    a.release(one, reason="handler", delivered=3, committed=1, offset=5)
    a.release(two, reason="halted:poison")
    group.drain()
    group.coordinator.reset_offsets({two: 2})
    group.coordinator.resume(two)
    group.drain()
    group.join("c")
    group.run(6_000)
    group.drain()
    b.silent = True
    group.run(12_000)


def changing_lists(group: TornGroup) -> None:
    """The list shrinks while everything is held, and grows again; a removed resource returns while it drains."""
    a, b = group.joined("ab")
    group.set_resources(a, names(5))
    group.drain()
    for name in sorted(b.holds):
        b.commit(name, 3)
    group.set_resources(a, names(2))
    b.hear()
    group.set_resources(a, names(4))
    group.drain()
    group.set_resources(b, names(6)[2:])
    group.drain()


def coming_back(group: TornGroup) -> None:
    """Members with instance ids restart within their grace, and after it."""
    a, b = group.join("a", instance_id="ia"), group.join("b", instance_id="ib")
    group.set_resources(a, names(4))
    group.drain()
    a.leave(remain=True)
    del group.members["a"]
    group.run(2_000)
    again = group.join("a2", instance_id="ia")
    group.drain()
    b.silent = True
    group.run(8_000)
    other = again.rejoin("a3", instance_id="ia")
    group.run(2_000)
    group.drain()
    other.leave(remain=True)
    del group.members["a3"]
    group.join("d")
    group.run(25_000)


def losing_data(group: TornGroup) -> None:
    """Redis is empty, and all members return with claims, except for one."""
    a, b, _ = group.joined("abc")
    group.set_resources(a, names(4))
    group.drain()
    a.commit(min(a.holds), 9)
    group.lose_data()
    group.members["c"].silent = True
    a2 = a.rejoin("a2")
    b2 = b.rejoin("b2")
    group.run(4_000, a2, b2)
    group.set_resources(a2, names(4))


def naming_different_things(group: TornGroup) -> None:
    """Three lists, of which one is the group's own; one goes with its member, another comes."""
    a, own = member(group, "a", names(4)), group.join("b")
    group.set_resources(own, names(6)[3:], version=7)
    c = member(group, "c", ["x", "y"])
    group.drain()
    a.commit(min(a.holds), 5)
    group.until_left(c)
    group.drain()
    member(group, "d", ["y", *names(2)])
    group.drain()


STORIES = (coming_and_going, giving_back, changing_lists, coming_back, losing_data, naming_different_things)
FEW = attrs.evolve(SETTINGS, moves_per_call=1)
EAGER = attrs.evolve(SETTINGS, mode="eager")


TRIED = 8
"""How many deaths of each story are tried, spread over all its calls and writes."""


def deaths(story: Story, settings: GroupSettings, *, create: bool = True) -> list[Death]:
    """Every write of every call of a story in which nothing goes wrong."""
    calls = tell(story, settings, None, create=create).calls
    return [Death(at, write) for at, (_, writes) in enumerate(calls) for write in range(1, writes + 1)]


@pytest.mark.parametrize("settings", [SETTINGS, FEW, EAGER], ids=["usual", "few", "eager"])
@pytest.mark.parametrize("story", STORIES, ids=lambda it: it.__name__)
def test_a_script_that_dies_at_any_write(story: Story, settings: GroupSettings) -> None:
    """The failed call is repeated, at once or after another member's: everything is as recorded, and worked."""
    every = deaths(story, settings)
    step = len(every) // TRIED
    first = (STORIES.index(story) * 3 + (settings is FEW) + 2 * (settings is EAGER)) % step
    for number, death in enumerate(every[first::step]):
        group = tell(story, settings, attrs.evolve(death, other_first=number % 2 == 1))
        assert "can't run this command" in group.died, death


def beginning(group: TornGroup) -> None:
    """The group was not created: its first member does that, and it recovers first."""
    a = group.join("a")
    group.run(4_000)
    group.set_resources(a, names(3))
    group.drain()


def test_the_first_call_of_a_group_may_die() -> None:
    """There are no settings yet."""
    calls = tell(beginning, SETTINGS, None, create=False).calls
    for death in [Death(0, write) for write in range(1, calls[0][1] + 1)]:
        tell(beginning, SETTINGS, death, create=False)


def test_a_large_group_is_repaired_page_by_page() -> None:
    """No call checks more records than its share; the caller repeats it until everything is done."""
    group = TornGroup(attrs.evolve(FEW, journal_length=1_000))
    a, b = group.joined("ab")
    group.set_resources(a, names(250))
    group.drain()
    before, replies = group.records(), 0
    run = group.memory.call

    def count(*call: Any) -> Reply:
        nonlocal replies
        replies += 1
        return run(*call)

    group.poke("pulse", "torn 0 0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.memory, "call", count)
        group.tick()
    assert replies >= 252 // 100
    after = group.records()
    assert (after.resources, after.zsets["owned"]) == (before.resources, before.zsets["owned"])
    assert (after.zsets["load"], after.number("total")) == (before.zsets["load"], before.number("total"))
    assert group.journal("repaired")[0]["reason"] == "torn"
    settle_down(group)
    assert {len(a.holds), len(b.holds)} == {125}


@pytest.mark.thorough
def test_a_repair_that_dies_begins_anew() -> None:
    """At any of its own writes, and twice in a row."""
    group = TornGroup(attrs.evolve(SETTINGS, moves_per_call=5))
    a, _ = group.joined("ab")
    group.set_resources(a, names(120))
    group.drain()
    store = group.memory.store
    for write in range(1, 400, 13):
        group.poke("pulse", "torn 0 0")
        for again in (0, 7):
            store.die_at(write + again)
            with suppress(ScriptFailed):
                group.coordinator.tick()
        store.die_at(0)
        group.tick()
        group.check()
    settle_down(group)


def test_a_repair_that_dies_again_and_again_says_everything_once() -> None:
    """At whichever of its own writes: an attempt adds what the ones before it had yet to say, and nothing else."""
    group = TornGroup()
    a, _ = group.joined("ab")
    group.set_resources(a, names(8))
    group.drain()
    a.silent = True
    group.run(SETTINGS.session_timeout_ms - 100)
    group.memory.now_ms += 200
    group.coordinator.tick()  # a has expired; the next call gives b what it had
    store, before = group.memory.store, group.records().raw

    def tick(dies_at: int) -> list[dict[str, str]]:
        store.die_at(dies_at)
        with suppress(ScriptFailed):
            group.coordinator.tick()
        return group.journal()

    tick(0)
    last = store.writes
    group.restore(before)
    assert [it["kind"] for it in tick(last)].count("expired") == 4
    tick(0)
    for write in range(1, store.writes + 1):
        group.restore(before)
        tick(last)
        for _ in range(4):
            tick(write)
        said = [it for it in tick(0) if it["kind"] == "repaired"]
        assert said[-1]["reason"].startswith("torn after "), write
        times = Counter((it.get("resource"), it.get("member"), it["reason"]) for it in said)
        assert set(times.values()) == {1}, write


@pytest.mark.parametrize("pages", range(1, 24, 4))
def test_a_repair_that_comes_to_another_server_begins_anew(pages: int) -> None:
    """Each server visits a hash in an order of its own, so how far another one had come says nothing."""
    group = TornGroup(attrs.evolve(SETTINGS, moves_per_call=5))
    a, _ = group.joined("ab")
    group.set_resources(a, names(120))
    group.drain()
    before = group.records()
    run, calls = group.memory.call, Counter[str]()

    def move(script: Script, *call: Any) -> Reply:
        calls["made"] += 1
        if calls["made"] == pages + 1:
            group.memory.identity = "redis-2"
        return run(script, *call)

    group.poke("pulse", "torn 0 0")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(group.memory, "call", move)
        group.tick()
    assert calls["made"] > pages
    after = group.records()
    assert (after.zsets["names"], after.zsets["owned"]) == (before.zsets["names"], before.zsets["owned"])
    group.check()


def made_anew(death: Death | None) -> TornGroup:
    """A group with a history has lost its scalars when a member joins."""
    group = TornGroup(SETTINGS, death)
    a, b = group.joined("ab")
    group.set_resources(a, names(40))
    group.drain()
    group.until_left(b)
    do(group.memory, "UNLINK", "state")
    group.join("c")
    return group


def test_a_group_that_is_made_anew_has_its_history_left_alone() -> None:
    """Its maker dies: the next call takes back what that one has written, and neither reads nor trims the whole journal."""
    unharmed = made_anew(None)
    calls, history = unharmed.calls, [it for it in unharmed.journal() if it.get("member") != "c"]
    for write in range(1, calls[-1][1] + 1):
        group = made_anew(Death(len(calls) - 1, write))
        assert group.died
        assert group.journal()[:100] == history[:100], write
        told = group.journal("repaired")
        assert {it.get("member", "-") for it in told} <= {"-", "c"}, write
        assert not [it for it in told if "resource" in it], write


def test_a_repair_is_no_excuse() -> None:
    """A member that is silent while a group is repaired expires soon after; one that is not stays."""
    group = TornGroup()
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    b.silent = True
    group.run(1_000)
    group.poke("pulse", "torn 0 0")
    group.run(3 * SETTINGS.session_timeout_ms)
    assert set(group.records().members) == {"a", "b"}
    assert group.records().members["b"].status in {"dead", "ended"}
    assert len(a.holds) == 4


def test_a_grace_ends_once() -> None:
    """Whichever write the script that ends it dies at: a repair does not restart it."""
    for write in range(1, 20):
        group = TornGroup()
        a, _ = group.join("a", instance_id="ia"), group.join("b")
        group.set_resources(a, names(2))
        group.drain()
        a.leave(remain=True)
        group.run(SETTINGS.rejoin_grace_ms - SETTINGS.heartbeat_interval_ms)
        assert group.records().members["a"].status == "graced"
        group.memory.now_ms += SETTINGS.heartbeat_interval_ms
        group.memory.store.die_at(write)
        with suppress(ScriptFailed):
            group.coordinator.tick()
        group.memory.store.die_at(0)
        group.tick()
        assert group.records().members["a"].status in {"dead", "ended"}, write


def test_lists_stay_known_while_members_are_counted_anew() -> None:
    """None is taken for one that nobody has, and what is named stays with those who name it."""
    group = TornGroup()
    a, b, c = (member(group, id_, [f"{id_}-1", f"{id_}-2"]) for id_ in "abc")
    own = group.join("d")
    group.set_resources(own, ("d-1", "d-2"), version=7)
    group.drain()
    group.coordinator.repair()
    assert all(row.known for row in group.coordinator.subscriptions())
    group.until_left(c)
    settle_down(group)
    assert [sorted(it.holds) for it in (a, b, own)] == [["a-1", "a-2"], ["b-1", "b-2"], ["d-1", "d-2"]]
    assert set(group.holders()) == {"a-1", "a-2", "b-1", "b-2", "d-1", "d-2"}


def test_everything_derived_is_made_anew_on_demand() -> None:
    """Whatever happened to the indices and totals."""
    group = TornGroup()
    a, _ = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    group.poke("total", 9)
    group.poke("classes", "1=7")
    group.restore(tuple(key for key in group.records().raw if not key.key.endswith((b":owned", b":free", b":load"))))
    group.coordinator.repair()
    group.check()
    assert [it["reason"] for it in group.journal("repaired")] == ["gone", "asked"]
    settle_down(group)
