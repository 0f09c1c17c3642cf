"""The group's clock: steps back and forth, silences, and what they must not do to anybody."""

from __future__ import annotations

from tests.coordinator.driver import SETTINGS, Group, names

SESSION_MS = SETTINGS.session_timeout_ms


def test_a_step_back_neither_rewinds_nor_freezes(group: Group) -> None:
    """The group's clock goes on from where it was, at the pace of real time."""
    (a,) = group.joined("a")
    before = a.heartbeat().now_ms
    group.step_clock(-3_600_000)
    assert a.heartbeat().now_ms == before
    group.backend.now_ms += 100
    assert a.heartbeat().now_ms == before + 100


def test_a_step_back_does_not_keep_the_dead_alive(group: Group) -> None:
    """A crashed member expires within a heartbeat more although the server's clock was set back an hour."""
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
    """An hour appears at once: every member still has a whole session timeout to answer."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    group.step_clock(3_600_000)
    assert a.heartbeat().status == "OK"
    group.backend.now_ms += SESSION_MS - 1
    assert b.heartbeat().status == "OK"


def test_after_a_silence_nobody_is_expired_for_one_session_timeout(group: Group) -> None:
    """An outage of Redis, longer than the session timeout, costs no member its place."""
    a, b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    group.backend.now_ms += 10 * SESSION_MS
    assert a.heartbeat().status == "OK"
    group.backend.now_ms += SESSION_MS - 1
    a.heartbeat()
    assert b.heartbeat().status == "OK"
    assert not group.journal("expired_member")


def test_after_a_silence_the_dead_still_expire(group: Group) -> None:
    """The patience lasts one session timeout and not longer."""
    a, _b = group.joined("ab")
    group.set_resources(a, names(2))
    group.drain()
    group.backend.now_ms += 10 * SESSION_MS
    a.heartbeat()
    group.run(SESSION_MS, a)
    assert group.holders() == {"r000": "a", "r001": "a"}


def test_a_silence_of_two_heartbeats_is_still_normal(group: Group) -> None:
    """Only more than two heartbeats without anybody heard means that something is wrong with the server."""
    a, b = group.joined("ab")
    b.silent = True
    for _ in range(2):
        group.backend.now_ms += 2 * SETTINGS.heartbeat_interval_ms
        a.heartbeat()
    assert [entry["member"] for entry in group.journal("expired_member")] == ["b"]


def test_a_silence_does_not_end_a_rejoin_grace(group: Group) -> None:
    """Who is kept for the grace gets the same patience: its process could not reach Redis either."""
    a, b = group.join("a", instance_id="one"), group.join("b")
    group.set_resources(a, names(2))
    group.drain()
    assert a.leave(remain=True) == "LEFT"
    group.backend.now_ms += 10 * SETTINGS.rejoin_grace_ms
    b.heartbeat()
    assert group.records().members["a"].status == "graced"
    group.run(SESSION_MS, b)
    assert group.records().members["a"].status == "ended"


def test_a_step_forward_forces_nobody_before_its_own_deadline(group: Group) -> None:
    """A holder counts its deadline by its own clock; the force waits at least that long after a jump."""
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


def test_a_postponed_force_shows_its_new_deadline(group: Group) -> None:
    """What describe shows is when it will happen."""
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
    """With others heartbeating, the dead one's resources are at work again in time."""
    a, b = group.joined("ab")
    group.set_resources(a, names(10))
    group.drain()
    a.hear()
    group.run(SESSION_MS, b)
    assert len(b.holds) == 10
