"""Requests: repeats, stale numbers, tombstones, renewed sessions."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names

from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.requests import Describe, Header, Heartbeat, Request, Tick
from cobalance.coordinator.scripts import VERBS, load
from cobalance.errors import ProtocolMismatch


def session_end(group: Group, member: Member) -> int:
    """When a member's session ends in group time."""
    return int(group.records().scalars[f"r:{member.id}"].split()[1])


def test_a_repeated_release_gets_the_same_answer(group: Group) -> None:
    """The reply to a release was lost; the repeat says OK again although the resource is long free or held by another
    member.
    """
    a, b = group.joined("ab")
    group.set_resources(a, names(1))
    a.hear()
    token = a.holds["r000"].token
    assert a.release("r000") == ("OK",)
    assert a.repeat().results == ("OK",)
    assert group.records().resources["r000"].token > token
    assert b.heartbeat().status == "OK"


def test_a_repeated_commit_gets_the_same_answer(group: Group) -> None:
    """A refusal is remembered as well as an acceptance."""
    (a,) = group.joined("a")
    group.set_resources(a, names(1))
    a.hear()
    a.commit("r000", 5)
    assert a.commit("r000", 4) == "REGRESSED"
    assert a.repeat().results == ("REGRESSED",)
    assert group.records().offsets == {"r000": 5}


def test_a_repeated_page_of_a_list_gets_the_same_answer(group: Group) -> None:
    """DONE stays DONE, and nothing is added twice."""
    (a,) = group.joined("a")
    assert group.set_resources(a, names(3)) == "DONE"
    assert a.repeat().results == ("DONE",)
    assert len(group.records().resources) == 3


def test_a_repeated_heartbeat_brings_the_same_changes(group: Group) -> None:
    """A lost reply took its changes with it; the repeat brings them again, with the same deadline."""
    (a,) = group.joined("a")
    group.set_resources(a, names(2))
    a.hear()
    group.join("b")
    lost = a.heartbeat(lose_reply=True)
    assert [change.kind for change in lost.changes] == ["revoke"]
    group.backend.now_ms += 10
    assert a.repeat().changes == lost.changes


def test_a_repeated_join_makes_one_member(group: Group) -> None:
    """The join ran, its reply was lost, and the repeat finds the member there."""
    a = group.join("a", lose_reply=True)
    assert a.repeat().status == "OK"
    assert list(group.records().members) == ["a"]
    assert len(group.journal("joined")) == 1


def test_every_repeat_renews_the_session(group: Group) -> None:
    """A repeat is a sign of life like any other, for the fast heartbeat and for the others."""
    (a,) = group.joined("a")
    group.set_resources(a, names(1))
    for ask in (a.heartbeat, lambda: a.release("r000"), a.heartbeat, a.hear):
        ask()
        group.backend.now_ms += 100
        a.repeat()
        assert session_end(group, a) == group.backend.now_ms + SETTINGS.session_timeout_ms


def test_every_accepted_verb_renews_the_session(group: Group) -> None:
    """Commits, releases, lists, ticks and leaves count as heartbeats."""
    (a,) = group.joined("a")
    group.set_resources(a, names(2))
    a.hear()
    asks = (
        lambda: a.commit("r000", 1),
        lambda: a.release("r000"),
        lambda: group.set_resources(a, names(3)),
        lambda: a.ask(Tick()),
        a.leave,
    )
    for ask in asks:
        group.backend.now_ms += 100
        ask()
        assert session_end(group, a) == group.backend.now_ms + SETTINGS.session_timeout_ms


def test_a_lower_number_is_stale_and_changes_nothing(group: Group) -> None:
    """A request that was overtaken on the way is refused, whatever it asks, and renews nothing."""
    (a,) = group.joined("a")
    group.set_resources(a, names(1))
    a.hear()
    end = session_end(group, a)
    group.backend.now_ms += 100
    late = Header("a", 1, a.incarnation, a.seen, a.cursor)
    assert group.execute(Request(late, Heartbeat())).status == "STALE"
    a.number -= 2
    assert a.leave() == "STALE"
    assert session_end(group, a) == end
    assert group.holders() == {"r000": "a"}


def test_a_late_join_makes_no_ghost(group: Group) -> None:
    """A join delivered after its member has ended finds the tombstone."""
    a, b = group.joined("ab")
    assert a.leave() == "LEFT"
    b.hear()
    late = Member(group, "a")
    assert late.join().status == "ENDED"
    assert set(group.loads()) == {"b"}


def test_a_tombstone_is_removed_in_the_end(group: Group) -> None:
    """After ten minutes nothing is left of the member, so the store does not grow forever."""
    a, b = group.joined("ab")
    a.leave()
    group.run(599_000, b)
    assert group.records().members["a"].status == "ended"
    group.run(2_000, b)
    assert set(group.records().members) == {"b"}


def test_a_member_whose_session_ended_is_told_so(group: Group) -> None:
    """It may neither heartbeat, commit nor release any more."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    a.hear()
    held = sorted(a.holds)
    group.run(4_000, b)
    for ask in (a.heartbeat, a.leave):
        ask()
        assert a.last.status == "ENDED"
    a.holds = dict.fromkeys(held, next(iter(b.holds.values())))
    a.is_over = False
    assert a.release(held[0]) == ("ENDED",)


def test_a_stranger_is_unknown(group: Group) -> None:
    """A process that never joined is told to."""
    stranger = Member(group, "x")
    stranger.incarnation = int(group.coordinator.state()["incarnation"])
    assert stranger.heartbeat().status == "UNKNOWN"


def test_another_protocol_is_refused_by_every_verb(backend: Backend) -> None:
    """Scripts of an incompatible version write nothing."""
    Group(backend)
    before = backend.dump()
    for verb in VERBS:
        reply = backend.call(load(verb), group_keys("g"), ["1", "a", "1", "0", "0", "0", "x", "y", "z"])
        assert isinstance(reply, list)
        assert reply[0] == b"PROTOCOL"
    assert backend.dump() == before


def test_the_client_names_the_mismatch(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    """The message says that all members must run compatible versions."""
    monkeypatch.setattr("cobalance.coordinator.requests.PROTOCOL", 1)
    with pytest.raises(ProtocolMismatch, match="compatible versions"):
        group.coordinator.execute(Request(Header("-", 0), Describe("state")))


def test_a_group_that_is_not_there(backend: Backend) -> None:
    """A former member is told to rejoin, any other one that the group is unknown; nothing is written."""
    group = Group(backend, create=False)
    known, stranger = Member(group, "a"), Member(group, "b")
    known.seen = 7
    assert known.heartbeat().status == "REJOIN"
    assert stranger.heartbeat().status == "UNKNOWN"
    assert backend.dump() == ()


def test_the_fast_heartbeat_answers_like_the_slow_one(group: Group) -> None:
    """The shortcut only saves effort: same reply and data; the confirmed feed is just cleaned up later."""
    a, _b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    group.backend.now_ms += 50
    before = group.backend.dump()
    fast = a.heartbeat()
    after = group.records()
    group.restore(before)
    a.number -= 1
    slow = a.ask(Tick())
    assert fast == slow
    a.number -= 1
    assert a.heartbeat() == slow
    assert group.records().scalars == after.scalars


def test_each_condition_of_the_fast_heartbeat_is_needed(group: Group) -> None:
    """If any of them fails the full path is taken, with the right answer."""
    a, _b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    number = a.number
    right = Header("a", number + 1, a.incarnation, a.seen, a.cursor)
    wrong = {
        "REJOIN": attrs.evolve(right, incarnation=right.incarnation - 1),
        "STALE": attrs.evolve(right, number=number - 1),
    }
    for status, header in wrong.items():
        assert group.execute(Request(header, Heartbeat())).status == status
    behind = group.execute(Request(attrs.evolve(right, cursor=0), Heartbeat()))
    assert {change.resource for change in behind.changes} == set(a.holds)
