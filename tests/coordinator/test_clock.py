"""The group's clock: steps back and forth, silences, and what must not happen because of them."""

from __future__ import annotations

from random import Random

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, names

from cobalance.settings import GroupSettings, Mode

SESSION_MS = SETTINGS.session_timeout_ms


def test_a_step_back_neither_rewinds_nor_freezes(group: Group) -> None:
    """The group's clock continues from where it was, at the pace of real time."""
    (a,) = group.joined("a")
    before = a.heartbeat().now_ms
    group.step_clock(-3_600_000)
    assert a.heartbeat().now_ms == before
    group.backend.now_ms += 100
    assert a.heartbeat().now_ms == before + 100


def test_a_step_back_does_not_keep_the_dead_alive(group: Group) -> None:
    """A crashed member expires within one more heartbeat although the server's clock was set back an hour."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    group.step_clock(-3_600_000)
    group.run(SESSION_MS + SETTINGS.heartbeat_interval_ms, b)
    assert group.holders() == {"r000": "b", "r001": "b"}


def test_several_steps_back_add_up(group: Group) -> None:
    """The offset only grows."""
    (a,) = group.joined("a")
    before = a.heartbeat().now_ms
    for _ in range(3):
        group.step_clock(-10_000)
        a.heartbeat()
    assert a.heartbeat().now_ms == before
    assert group.records().number("skew") == 30_000


def test_a_step_forward_expires_nobody(group: Group) -> None:
    """An hour passes at once: every member still has half a session timeout to answer."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    group.step_clock(3_600_000)
    assert a.heartbeat().status == "OK"
    group.backend.now_ms += SESSION_MS // 2 - 1
    assert b.heartbeat().status == "OK"


def test_after_a_silence_nobody_is_expired_for_half_a_session_timeout(group: Group) -> None:
    """An outage of Redis, longer than the session timeout, costs no member its place."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    group.backend.now_ms += 10 * SESSION_MS
    assert a.heartbeat().status == "OK"
    group.backend.now_ms += SESSION_MS // 2 - 1
    a.heartbeat()
    assert b.heartbeat().status == "OK"
    assert not group.journal("expired_member")


def test_a_silence_of_a_session_that_begins_half_way_costs_no_third_one(group: Group) -> None:
    """The worst case for a crash: it is still handled two session timeouts after the last heartbeat."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    b.silent = True
    group.run(SESSION_MS // 2, a)
    group.backend.now_ms += SESSION_MS
    a.heartbeat()
    group.run(SESSION_MS // 2, a)
    assert group.holders() == {"r000": "a", "r001": "a"}


def test_after_a_silence_the_dead_still_expire(group: Group) -> None:
    """The extension is half a session timeout, and no longer."""
    a, _b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    group.backend.now_ms += 10 * SESSION_MS
    a.heartbeat()
    group.run(SESSION_MS // 2, a)
    assert group.holders() == {"r000": "a", "r001": "a"}


def test_a_silence_of_half_a_session_is_still_normal(group: Group) -> None:
    """Only a longer one may have made an innocent member late, and means that something is wrong with the server."""
    a, b = group.joined("ab")
    b.silent = True
    for _ in range(2):
        group.backend.now_ms += SESSION_MS // 2
        a.heartbeat()
    assert [entry["member"] for entry in group.journal("expired_member")] == ["b"]


@pytest.mark.parametrize("heartbeat_ms", [50, 100])
def test_a_kill_on_a_busy_machine_is_healed_in_time(backend: Backend, heartbeat_ms: int) -> None:
    """Short heartbeats, and processes that are scheduled up to 300 ms late: that is not a problem with Redis."""
    settings = GroupSettings(session_timeout_ms=5_000, heartbeat_interval_ms=heartbeat_ms, rejoin_grace_ms=0)
    group, random = Group(backend, settings), Random(heartbeat_ms)
    a, _killed = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    killed_at = group.backend.now_ms
    while group.holders() != {"r000": "a", "r001": "a"}:
        assert group.backend.now_ms <= killed_at + 5_000 + heartbeat_ms
        group.backend.now_ms += heartbeat_ms + random.randint(120, 300)
        a.hear()


@pytest.mark.parametrize("silence_ms", [1_400, 1_501, 1_600, 2_300, 2_999, 3_001, 4_400, 60_000])
def test_the_dead_expire_whatever_silences_follow_each_other(group: Group, silence_ms: int) -> None:
    """Counting half a session timeout of each, a dead member is gone after two session timeouts; one that calls never
    is.
    """
    a, b, _c = group.joined("abc")
    group.set_resources(a, names(3))
    group.drain()
    counted_ms = 0
    while "c" in group.loads():
        assert counted_ms <= 2 * SESSION_MS
        group.backend.now_ms += silence_ms
        counted_ms += min(silence_ms, SESSION_MS // 2)
        group.beat(a, b)
    assert group.loads().keys() == {"a", "b"}


@pytest.mark.parametrize("seed", range(5))
def test_silences_of_all_lengths_end_the_dead_and_nobody_else(group: Group, seed: int) -> None:
    """Shorter and longer ones in any order, and a clock that jumps: members that call after each keep their place."""
    random = Random(seed)
    a, b = group.joined("ab")
    for victim in "cdefg":
        group.join(victim)
        counted_ms = 0
        while victim in group.loads():
            assert counted_ms <= 2 * SESSION_MS, f"{victim} is still there"
            ms = random.choice([300, 1_000, 1_490, 1_510, 2_000, 2_990, 3_010, 20_000])
            group.backend.now_ms += ms
            group.clock_offset_ms += random.choice([0, 0, ms])  # it jumped
            counted_ms += min(ms, SESSION_MS // 2)
            group.beat(a, b)
    assert group.loads().keys() == {"a", "b"}


def test_who_was_late_before_a_silence_is_not_excused_by_it(group: Group) -> None:
    """A member that could have called for half a session, and did not, has only the rest of its session left."""
    a, _b = group.joined("ab")
    group.run(SESSION_MS // 2 + 100, a)
    group.backend.now_ms += SESSION_MS
    a.heartbeat()
    assert [entry["member"] for entry in group.journal("expired_member")] == ["b"]


def test_describe_shows_when_a_session_really_ends(group: Group) -> None:
    """Extended by a silence, or kept for the rejoin grace."""
    a, b = group.join("a", instance_id="one"), group.join("b")
    group.backend.now_ms += 2 * SESSION_MS
    b.heartbeat()
    rows = {row.id: row.expires_ms for row in group.coordinator.members()}
    assert rows == {"a": group.backend.now_ms + SESSION_MS // 2, "b": group.backend.now_ms + SESSION_MS}
    a.leave(remain=True)
    rows = {row.id: row.expires_ms for row in group.coordinator.members()}
    assert rows["a"] == group.backend.now_ms + SETTINGS.rejoin_grace_ms


def test_a_silence_does_not_end_a_rejoin_grace(group: Group) -> None:
    """Members kept for the grace get the same extension: their processes could not reach Redis either."""
    a, b = group.join("a", instance_id="one"), group.join("b")
    group.set_resources(a, names(2))
    group.drain()
    assert a.leave(remain=True) == "LEFT"
    group.backend.now_ms += 10 * SETTINGS.rejoin_grace_ms
    b.heartbeat()
    assert group.records().members["a"].status == "graced"
    group.run(SESSION_MS, b)
    assert group.records().members["a"].status == "ended"


@pytest.mark.parametrize("began_after_ms", [0, 1, SESSION_MS // 4])
def test_a_silence_puts_off_no_rejoin_grace_that_begins_after_it(backend: Backend, began_after_ms: int) -> None:
    """A grace shorter than half a session timeout: what is kept is free when it ends, not half a session after the silence."""
    group = Group(backend, attrs.evolve(SETTINGS, rejoin_grace_ms=200))
    a, b = group.join("a", instance_id="one"), group.join("b")
    group.set_resources(a, names(2))
    group.drain()
    group.backend.now_ms += 2 * SESSION_MS
    b.heartbeat()
    group.backend.now_ms += began_after_ms
    assert a.leave(remain=True) == "LEFT"
    (row,) = [it for it in group.coordinator.members() if it.id == "a"]
    assert row.expires_ms == group.backend.now_ms + 200
    group.backend.now_ms += 200
    group.beat()
    assert group.holders() == {"r000": "b", "r001": "b"}


def test_silences_put_off_the_end_of_a_rejoin_grace_once(group: Group) -> None:
    """By the first silence that contains its end; after that a session timeout is left, whatever follows."""
    a, b = group.join("a", instance_id="one"), group.join("b")
    assert a.leave(remain=True) == "LEFT"
    waited_ms = 0
    while group.records().members["a"].status == "graced":
        assert waited_ms <= SETTINGS.rejoin_grace_ms + 2 * SESSION_MS
        group.backend.now_ms += SESSION_MS - 1
        waited_ms += SESSION_MS - 1
        b.heartbeat()


def test_a_step_forward_forces_nobody_before_its_own_deadline(group: Group) -> None:
    """A holder measures its deadline by its own clock; the force waits at least that long after a jump."""
    (a,) = group.joined("a")
    group.set_resources(a, names(2))
    a.hear()
    b = group.join("b")
    a.hear()
    (pending,) = a.pending
    own_deadline = a.holds[pending].local_deadline_ms
    group.step_clock(3_600_000)
    while group.local_ms < own_deadline:
        group.beat()
        assert group.holders()[pending] == "a"
        group.backend.now_ms += 500
    group.run(SETTINGS.revocation_timeout_ms)
    assert group.holders()[pending] == "b"
    assert b.works_on(pending)


def _asked_back(group: Group) -> str:
    """The resources that a holds and is asked to give to b, but never does."""
    (a,) = group.joined("a")
    group.set_resources(a, names(2))
    a.hear()
    group.join("b")
    a.hear()
    return a.pending[0]


@pytest.mark.parametrize("mode", ["cooperative", "eager"])
def test_silences_put_off_a_deadline_once(backend: Backend, mode: Mode) -> None:
    """However the clock jumps, and however often nobody calls: finally it is forced."""
    group = Group(backend, attrs.evolve(SETTINGS, mode=mode))
    _asked_back(group)
    waited_ms = 0
    while not group.journal("forced"):
        assert waited_ms <= 2 * SETTINGS.revocation_timeout_ms + SESSION_MS
        group.backend.now_ms += SESSION_MS - 1
        waited_ms += SESSION_MS - 1
        group.members["b"].heartbeat()
        group.members["a"].heartbeat()


def test_a_deadline_is_put_off_anew_in_the_next_tenure(group: Group) -> None:
    """The extension ends with the revocation."""
    pending = _asked_back(group)
    for waiting in (pending, pending):
        group.step_clock(3_600_000)
        group.beat()
        assert group.records().resources[waiting].deadline == group.backend.now_ms + SETTINGS.revocation_timeout_ms
        group.members["a"].release(pending)
        group.beat()
        group.members["b"].leave()
        group.drain()
        group.members["b"] = group.members["a"].group.join("b" + waiting + str(group.backend.now_ms))
        group.members["a"].hear()


def test_a_postponed_force_shows_its_new_deadline(group: Group) -> None:
    """``describe`` shows when it will happen."""
    (a,) = group.joined("a")
    group.set_resources(a, names(2))
    a.hear()
    group.join("b")
    a.hear()
    (pending,) = a.pending
    group.step_clock(3_600_000)
    now = a.heartbeat().now_ms
    assert group.records().resources[pending].deadline == now + SETTINGS.revocation_timeout_ms


def test_a_crash_is_healed_within_session_timeout_plus_a_heartbeat(group: Group) -> None:
    """With heartbeats of others, the dead member's resources are worked again in time."""
    a, b = group.joined("ab")
    group.set_resources(a, names(10))
    group.drain()
    a.hear()
    group.run(SESSION_MS, b)
    assert len(b.holds) == 10
