"""Pending revocations: which are picked, late-bound targets, cancellations, deadlines, force."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, Member, names

TIMEOUT_MS = SETTINGS.revocation_timeout_ms


def owner_and_newcomer(group: Group, count: int = 2) -> tuple[Member, Member]:
    """One member that holds everything and was asked to give half to another one."""
    a = group.join("a")
    group.set_resources(a, names(count))
    a.hear()
    b = group.join("b")
    a.hear()
    return a, b


def test_a_held_resource_is_handed_over_only_when_released(group: Group) -> None:
    """Held → pending → released → held by another one, under a higher token."""
    a, b = owner_and_newcomer(group)
    (pending,) = a.pending
    token = a.holds[pending].token
    group.beat()
    assert group.holders()[pending] == "a"
    assert not b.holds
    a.release(pending)
    b.hear()
    assert b.holds[pending].token > token


def test_idle_ones_are_taken_first(group: Group) -> None:
    """What is being worked stays, as long as something is idle."""
    a = group.join("a")
    group.set_resources(a, names(4))
    a.hear()
    for name in ("r002", "r003"):
        a.busy(name)
    group.join("b")
    a.hear()
    assert a.pending == ["r000", "r001"]


def test_then_the_most_recently_acquired(group: Group) -> None:
    """Among equals, the newest tenures go."""
    a = group.join("a")
    group.set_resources(a, names(2))
    group.set_resources(a, names(4))
    a.hear()
    newest = sorted(a.holds, key=lambda name: a.holds[name].token)[2:]
    group.join("b")
    a.hear()
    assert a.pending == sorted(newest)


def test_idle_again_counts_as_idle(group: Group) -> None:
    """Progress is a state, not a history."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    for name in names(2):
        a.busy(name)
    a.busy("r000", busy=False)
    group.join("b")
    a.hear()
    assert a.pending == ["r000"]


def test_progress_of_another_tenure_is_ignored(group: Group) -> None:
    """A late report about a former tenure says nothing about this one."""
    a = group.join("a")
    group.set_resources(a, names(1))
    a.hear()
    a.heartbeat(("r000", a.holds["r000"].token - 1, True))
    assert group.records().resources["r000"].rank == "2"


def test_settling_again_never_picks_anew(group: Group) -> None:
    """What was asked for once stays asked for; a second new member only adds to it."""
    a = group.join("a")
    group.set_resources(a, names(12))
    a.hear()
    group.join("b")
    a.hear()
    first = set(a.pending)
    for name in sorted(set(a.holds) - first)[:3]:
        a.busy(name)
    group.join("c")
    a.hear()
    assert set(a.pending) > first
    assert len(a.pending) == 8


def test_the_target_is_bound_when_released(group: Group) -> None:
    """A resource revoked for one new member goes to the one that needs it most by the time it is free."""
    a, b = owner_and_newcomer(group, 4)
    assert b.leave() == "LEFT"
    c = group.join("c")
    a.hear()
    a.release(*a.pending)
    c.hear()
    assert group.loads() == {"a": 2, "c": 2}


def test_joins_leaves_and_expiries_during_a_drain_never_leave_it_uneven(group: Group) -> None:
    """All three at once, with everything in flight."""
    a = group.join("a")
    group.set_resources(a, names(24))
    a.hear()
    b, c, d = group.joined("bcd")
    group.beat(a, b, c)
    c.leave()
    d.silent = True
    group.run(SETTINGS.session_timeout_ms + 1000, a, b)
    group.join("e")
    group.drain()
    assert group.loads() == {"a": 8, "b": 8, "e": 8}


def test_what_is_no_longer_surplus_is_cancelled(group: Group) -> None:
    """The new member leaves before the drain has ended: the same tenure continues under the same token."""
    a, b = owner_and_newcomer(group)
    (pending,) = a.pending
    token = a.holds[pending].token
    b.leave()
    a.hear()
    assert a.pending == []
    assert a.holds[pending].token == token
    assert not group.journal("forced", "released")
    group.run(2 * TIMEOUT_MS, a)
    assert group.holders()[pending] == "a"


def test_the_newest_revocation_is_cancelled_first(group: Group) -> None:
    """The oldest one's drain has come furthest."""
    a = group.join("a")
    group.set_resources(a, names(12))
    a.hear()
    group.join("b")
    a.hear()
    oldest = set(a.pending)
    group.backend.now_ms += 10
    c = group.join("c")
    a.hear()
    assert len(a.pending) == 8
    c.leave()
    a.hear()
    assert set(a.pending) == oldest


def test_a_drain_that_has_begun_may_end_although_cancelled(group: Group) -> None:
    """The member had stopped work already: it releases, and gets the resource back under a new token."""
    a, b = owner_and_newcomer(group)
    (pending,) = a.pending
    token = a.holds[pending].token
    b.leave()
    assert a.release(pending) == ("OK",)
    a.hear()
    assert a.holds[pending].token > token


def test_both_due_in_one_call_cancels(backend: Backend) -> None:
    """A session and a deadline that end in the same silence: nothing is forced that nobody needs any more."""
    settings = attrs.evolve(SETTINGS, session_timeout_ms=5000, revocation_timeout_ms=5000, heartbeat_interval_ms=1600)
    group = Group(backend, settings)
    a, _ = owner_and_newcomer(group)
    for _ in range(3):
        group.backend.now_ms += 1600
        a.heartbeat()
    assert a.pending
    group.backend.now_ms += 300  # both have passed now
    a.hear()
    assert [entry["kind"] for entry in group.journal("expired_member", "cancelled", "forced")] == [
        "expired_member",
        "cancelled",
    ]


def test_a_grant_that_no_reply_carried_is_taken_back_at_once(group: Group) -> None:
    """Its member does not know of it, so it need not drain it."""
    standby = group.join("s", capacity=0)
    group.join("a")
    group.set_resources(standby, names(4))
    group.join("b")
    assert group.loads() == {"a": 2, "b": 2, "s": 0}
    assert len(group.journal("withdrawn")) == 2
    assert not group.journal("revoking")


def test_a_grant_whose_reply_was_lost_is_not_taken_back_at_once(group: Group) -> None:
    """The reply may have arrived, so this one has to be drained."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.heartbeat(lose_reply=True)
    group.join("b")
    assert not group.journal("withdrawn")
    a.repeat()
    assert len(a.pending) == 1


def test_a_deadline_runs_from_the_reply_that_carried_it(group: Group) -> None:
    """A holder that has not been notified yet is not timed."""
    a = group.join("a")
    group.set_resources(a, names(2))
    a.hear()
    b = group.join("b")
    for _ in range(2):
        group.backend.now_ms += 1400
        b.hear()
    assert group.records().zsets["deadlines"] == {}
    a.hear()
    (pending,) = a.pending
    assert a.holds[pending].deadline_ms == group.backend.now_ms + TIMEOUT_MS


def test_a_deadline_is_armed_once(group: Group) -> None:
    """Hearing of it again does not postpone it."""
    a, _ = owner_and_newcomer(group)
    (pending,) = a.pending
    deadline = a.holds[pending].deadline_ms
    group.backend.now_ms += 500
    a.cursor = 0
    a.hear()
    assert a.holds[pending].deadline_ms == deadline


def test_at_the_deadline_it_moves_by_force_and_only_that(group: Group) -> None:
    """The late holder loses this resource, not the others, nor its membership."""
    a, b = owner_and_newcomer(group, 4)
    first, second = a.pending
    a.release(first)
    group.run(TIMEOUT_MS - 1)
    assert group.holders()[second] == "a"
    group.run(1)
    assert group.holders()[second] == "b"
    assert [change.resource for change in a.lost] == [second]
    assert a.heartbeat().status == "OK"
    assert len(a.holds) == 2
    b.hear()
    assert b.works_on(second)


@pytest.mark.parametrize("verb", ["commit", "release"])
def test_after_a_force_commit_and_release_are_fenced(group: Group, verb: str) -> None:
    """The token increased before anything else could happen."""
    a, b = owner_and_newcomer(group)
    (pending,) = a.pending
    token = a.holds[pending].token
    group.run(TIMEOUT_MS)
    if verb == "commit":
        assert a.commit(pending, 1, token) == "FENCED"
    else:
        a.holds[pending] = b.holds[pending].__class__(token)
        assert a.release(pending) == ("FENCED",)
    assert group.holders()[pending] == "b"
    assert group.journal("refused")[-1]["token"] == str(token)


def test_a_forced_token_is_above_the_old_one_before_it_is_granted(group: Group) -> None:
    """Even if no member takes it, the late holder is fenced."""
    a, b = owner_and_newcomer(group)
    a.leave()
    a.hear()
    b.leave()
    assert b.is_over
    tokens = {name: tenure.token for name, tenure in a.holds.items()}
    for _ in range(12):
        group.backend.now_ms += 500
        a.heartbeat()
    for name, record in group.records().resources.items():
        assert record.status == "free"
        assert record.token > tokens[name]


def test_a_revocation_ends_even_if_the_holder_never_answers(group: Group) -> None:
    """A holder that was notified and fell silent: its session ends first, and with it the revocation."""
    a, b = owner_and_newcomer(group)
    a.silent = True
    group.run(SETTINGS.session_timeout_ms + 1000, b)
    assert set(group.holders().values()) == {"b"}


def test_revocations_come_first_in_any_reply(group: Group) -> None:
    """What must stop is read before what may start."""
    standby = group.join("s", capacity=0)
    a = group.join("a")
    group.set_resources(standby, names(6))
    a.heartbeat(lose_reply=True)
    group.join("b")
    kinds = [change.kind for change in a.heartbeat().changes]
    assert kinds == sorted(kinds, key=lambda kind: kind == "hold")
    assert "revoke" in kinds
    assert "hold" in kinds
