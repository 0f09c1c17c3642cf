"""Halted resources: out of circulation until an operator resumes them, and not counted in any share meanwhile."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.requests import Claim, Header, Request, Resume
from cobalance.errors import UnknownGroup


def halt(member: Member, name: str, reason: str = "halted:ValueError") -> None:
    """Its holder cannot work it."""
    assert member.release(name, delivered=3, committed=1, reason=reason) == ("OK",)


def status(group: Group, name: str) -> str:
    """Its status according to describe."""
    return {row.name: row.status for row in group.coordinator.resources()}[name]


def test_nobody_is_given_a_halted_resource(group: Group) -> None:
    """Neither the member that halted it nor any other, however long it takes and no matter who joins or leaves."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    halt(a, min(a.holds))
    (name,) = [it for it, owner in group.holders().items() if owner is None]
    group.run(10 * SETTINGS.session_timeout_ms)
    c = group.join("c")
    group.drain()
    group.until_left(b)
    group.drain(a, c)
    assert status(group, name) == "halted"
    assert {it for it, owner in group.holders().items() if owner is None} == {name}


def test_the_others_share_what_is_left(group: Group) -> None:
    """A halted resource is in no share: three of four are two and one, and nobody waits for the fourth."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    halt(a, min(a.holds))
    halt(a, min(a.holds))
    group.drain()
    assert group.loads() == {"a": 1, "b": 1}
    assert len(b.holds) == 1


def test_describe_and_the_journal_say_why(group: Group) -> None:
    """The reason is one word, chosen by the member that halted it."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    halt(a, "r000", "halted:ValueError")
    (row,) = group.coordinator.resources()
    assert (row.status, row.owner, row.halted) == ("halted", None, "ValueError")
    assert [(it["kind"], it["reason"]) for it in group.journal("abandoned", "halted")] == [
        ("abandoned", "halted:ValueError"),
        ("halted", "halted:ValueError"),
    ]


def test_resuming_gives_it_out_again_under_a_higher_token(group: Group) -> None:
    """To the member furthest below its quota; the one that halted it is not avoided."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    token = a.holds["r000"].token
    halt(a, "r000")
    assert group.coordinator.resume("r000") == {"r000": "OK"}
    a.hear()
    assert a.holds["r000"].token > token
    assert [it["resource"] for it in group.journal("resumed")] == ["r000"]


def test_only_what_is_halted_is_resumed(group: Group) -> None:
    """Repeating it is harmless, and a wrong name is reported."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    halt(a, "r000")
    answers = group.coordinator.resume("r000", "r000", "r001", "nothing")
    assert answers == {"r000": "NOT_HALTED", "r001": "NOT_HALTED", "nothing": "UNKNOWN"}


def test_many_are_resumed_in_as_many_calls_as_the_budget_wants(backend: Backend) -> None:
    """No call moves more than the group allows, and each name has its answer."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=5))
    a = group.join("a")
    group.set_resources(a, names(12))
    group.drain()
    for name in names(12):
        halt(a, name)
    answers = group.coordinator.resume("r000", *names(12), "nothing")
    assert answers == {**dict.fromkeys(names(12), "OK"), "r000": "NOT_HALTED", "nothing": "UNKNOWN"}
    group.drain()
    assert group.loads() == {"a": 12}


def test_one_call_resumes_what_its_budget_allows(backend: Backend) -> None:
    """The others are named in the next call."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=5))
    a = group.join("a")
    group.set_resources(a, names(8))
    group.drain()
    for name in names(8):
        halt(a, name)
    reply = group.execute(Request(Header("-", 0), Resume(names(8))))
    assert reply.results == ("OK",) * 5 + ("NEXT",) * 3
    assert reply.more


def test_whoever_changes_something_is_journalled(group: Group) -> None:
    """If it says who it is: of settings, offsets, and what is resumed, also by a reset; a retry by itself is nobody's."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    for name in names(2):
        halt(a, name)
    alice = Coordinator(group.backend, group.coordinator.group, by="alice")
    alice.configure(gather_ms=7)
    alice.resume("r000")
    alice.reset_offsets({"r001": 4})
    group.coordinator.configure(gather_ms=8)
    found = [(it["kind"], it.get("reason", ""), it["by"]) for it in group.journal("configured", "resumed", "reset")[1:]]
    assert found == [
        ("configured", "gather_ms 7", "alice"),
        ("resumed", "", "alice"),
        ("resumed", "", "alice"),
        ("reset", "was -", "alice"),
        ("configured", "gather_ms 8", "-"),
    ]


def test_the_late_holder_is_fenced(group: Group) -> None:
    """The token increases with the halt, as with every abandoned tenure."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    token = a.holds["r000"].token
    halt(a, "r000")
    assert a.commit("r000", 7, token) == "FENCED"


def test_a_halted_resource_can_be_removed(group: Group) -> None:
    """The list decides; added again, it is a new one."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    halt(a, "r000")
    group.set_resources(a, ("r001",))
    assert set(group.holders()) == {"r001"}
    group.set_resources(a, names(2))
    a.hear()
    assert set(a.holds) == {"r000", "r001"}


def test_halting_what_is_being_removed_removes_it(group: Group) -> None:
    """There is nothing to resume."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    group.set_resources(a, ("r001",))
    a.hear()
    halt(a, "r000")
    assert set(group.holders()) == {"r001"}


def test_an_avoided_resource_can_be_halted(group: Group) -> None:
    """The scheduled end of the avoidance does not affect a halted resource."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    a.release("r000", reason="hung")
    a.hear()
    halt(a, "r000")
    group.run(10 * SETTINGS.session_timeout_ms)
    assert status(group, "r000") == "halted"


def test_a_claim_from_after_an_older_snapshot_wins(group: Group) -> None:
    """Redis returned from before the resource was resumed: its holder under a higher token continues."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    halt(a, "r000")
    old = group.records().raw
    group.coordinator.resume("r000")
    a.hear()
    token = a.holds["r000"].token
    group.restore(old)
    a.hear()
    again = a.rejoin("a2", claims=(Claim("r000", token),))
    assert again.last.results == ("KEPT",)
    assert status(group, "r000") == "held"


def test_eager_groups_deal_around_it(backend: Backend) -> None:
    """The barrier does not wait for a resource that nobody holds."""
    group = Group(backend, attrs.evolve(SETTINGS, mode="eager"))
    a = group.join("a")
    group.set_resources(a, names(3))
    group.drain()
    halt(a, "r001")
    group.join("b")
    group.drain()
    assert group.loads() == {"a": 1, "b": 1}
    assert status(group, "r001") == "halted"


def test_an_unknown_group_has_nothing_to_resume(backend: Backend) -> None:
    """Like every command about a group."""
    group = Group(backend, create=False)
    with pytest.raises(UnknownGroup):
        group.coordinator.resume("r000")
