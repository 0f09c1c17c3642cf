"""What members hear: cursors, pages, lost replies, hints."""

from __future__ import annotations

import attrs
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, names

from cobalance.coordinator.keys import hint_channel


def test_a_change_is_told_until_the_cursor_has_passed_it(group: Group) -> None:
    """Until the member confirms it, every reply repeats it."""
    a = group.join("a")
    group.set_resources(a, names(3))
    b = group.join("b")
    first = a.heartbeat(lose_reply=True)
    second = a.heartbeat(lose_reply=True)
    assert first.changes == second.changes
    assert a.heartbeat().changes == second.changes
    assert a.heartbeat().changes == ()
    assert b.last.status == "OK"


def test_a_reply_carries_the_present_state(group: Group) -> None:
    """What changed twice is reported once, with its current state."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    b = group.join("b")
    assert group.records().owned_by("a")
    b.leave()
    changes = a.heartbeat().changes
    assert [change.kind for change in changes] == ["hold"]
    assert changes[0].token == a.holds[changes[0].resource].token


def test_changes_come_in_pages(backend: Backend) -> None:
    """A reply carries a limited number of them and says that there are more; the cursor advances page by page."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=3))
    standby = group.join("s", capacity=0)
    a = group.join("a")
    group.set_resources(standby, names(10))
    standby.hear()
    sizes: list[int] = []
    while a.heartbeat().more or not sizes:
        sizes.append(len(a.last.changes))
    sizes.append(len(a.last.changes))
    assert max(sizes) == 3
    assert len(a.holds) == 10
    assert len({change.resource for change in a.heard}) == len(a.heard)


def test_a_lost_page_is_told_again(backend: Backend) -> None:
    """The same page, not the next one."""
    group = Group(backend, attrs.evolve(SETTINGS, moves_per_call=3))
    standby = group.join("s", capacity=0)
    a = group.join("a")
    group.set_resources(standby, names(10))
    standby.hear()
    lost = a.heartbeat(lose_reply=True)
    assert a.repeat().changes == lost.changes
    while a.heartbeat().more:
        pass
    assert len(a.holds) == 10


def test_a_resource_that_is_gone_is_told_as_lost(group: Group) -> None:
    """Whatever became of it: assigned to another member, free, or removed."""
    a, b = group.joined("ab")
    group.set_resources(a, names(6))
    group.drain()
    group.join("c")
    a.hear()
    group.set_resources(b, tuple(sorted(b.holds)))
    group.run(SETTINGS.revocation_timeout_ms + 1000)
    assert len(a.lost) == 3
    assert all(change.token > 0 for change in a.lost)


def test_a_refusal_carries_no_changes_and_moves_no_cursor(group: Group) -> None:
    """A refused member must not act on anything."""
    a = group.join("a")
    standby = group.join("s", capacity=0)
    group.set_resources(standby, names(2))
    a.number -= 2
    reply = a.heartbeat()
    assert reply.status == "STALE"
    assert reply.changes == ()
    assert reply.cursor == a.cursor


def test_what_was_heard_is_forgotten(group: Group) -> None:
    """The feed does not accumulate what members already know."""
    a, b = group.joined("ab")
    for count in range(2, 12):
        group.set_resources(a, names(count))
        group.drain()
    for member in (a, b):
        member.busy(min(member.holds))
    assert group.records().zsets["feed"] == {}


def test_the_others_are_hinted(group: Group) -> None:
    """A message on the member's channel carries the version it will find."""
    a = group.join("a")
    a.watch()
    standby = group.join("s", capacity=0)
    assert group.backend.hints() == []
    group.set_resources(standby, names(2))
    assert group.backend.hints() == [(hint_channel("g", "a"), a.heartbeat().version)]
    assert group.backend.hints() == []


def test_the_caller_is_not_hinted_about_its_own_reply(group: Group) -> None:
    """It already has the changes."""
    a = group.join("a")
    a.watch()
    group.set_resources(a, names(2))
    assert len(a.holds) == 2
    assert group.backend.hints() == []


def test_a_refused_caller_is_hinted(group: Group) -> None:
    """Its reply carried nothing, but its refused request settled something for it."""
    a, b = group.joined("ab")
    group.set_resources(a, names(4))
    group.drain()
    a.watch()
    b.silent = True
    for _ in range(2):
        group.backend.now_ms += 1490
        a.heartbeat()
    group.backend.now_ms += 100
    a.number -= 2
    assert a.heartbeat().status == "STALE"
    assert group.records().kept_by("a") == 4
    assert len(group.backend.hints()) == 1


def test_without_any_hint_everything_is_heard_by_heartbeats(group: Group) -> None:
    """Hints only make it faster."""
    a = group.join("a")
    group.set_resources(a, names(4))
    a.hear()
    b = group.join("b")
    group.run(1000)
    a.release_pending()
    group.run(1000)
    assert len(b.holds) == 2
