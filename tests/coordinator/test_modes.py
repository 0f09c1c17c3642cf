"""Eager mode's barrier, the batching of changes, and the election of a coordinator."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.backends import Backend
from tests.coordinator.driver import SETTINGS, Group, names

TIMEOUT_MS = SETTINGS.revocation_timeout_ms
GATHER_MS = 400


@pytest.fixture
def eager(backend: Backend) -> Group:
    """A group in eager mode."""
    return Group(backend, attrs.evolve(SETTINGS, mode="eager"))


@pytest.fixture
def gathering(backend: Backend) -> Group:
    """A group that batches changes."""
    return Group(backend, attrs.evolve(SETTINGS, gather_ms=GATHER_MS))


def test_in_eager_mode_everything_stops_then_everything_is_dealt(eager: Group) -> None:
    """A join revokes everything; nothing is assigned before the last resource is back."""
    a = eager.join("a")
    eager.set_resources(a, names(6))
    a.hear()
    b = eager.join("b")
    a.hear()
    assert len(a.pending) == 6
    a.release(*a.pending[:5])
    b.hear()
    assert not b.holds
    a.release(*a.pending)
    eager.beat()
    assert eager.loads() == {"a": 3, "b": 3}


def test_the_barrier_has_one_deadline_that_joins_do_not_extend(eager: Group) -> None:
    """A member that joins while everything stops gets its share at the end, and delays nothing."""
    a = eager.join("a")
    eager.set_resources(a, names(6))
    a.hear()
    eager.join("b")
    a.hear()
    barrier = eager.records().number("barrier")
    assert barrier == eager.backend.now_ms + TIMEOUT_MS
    eager.run(2000)
    eager.join("c")
    eager.run(2000)
    assert eager.records().number("barrier") == barrier
    eager.run(1000)
    assert eager.loads() == {"a": 2, "b": 2, "c": 2}
    assert len(eager.journal("forced")) == 6
    assert len(eager.journal("barrier")) == 1


def test_nobody_is_timed_by_a_barrier_it_has_not_heard_of(eager: Group) -> None:
    """A holder that hears of it at the last moment still has a heartbeat to answer."""
    a = eager.join("a")
    eager.set_resources(a, names(2))
    a.hear()
    b = eager.join("b")
    barrier = eager.records().number("barrier")
    eager.run(2000, b)
    a.hear()
    eager.run(barrier - 100 - eager.backend.now_ms, b)
    c = eager.join("c")
    assert c.last.status == "OK"
    assert all(tenure.deadline_ms == barrier for tenure in a.holds.values())


def test_leaves_crashes_and_lists_are_changes_too(eager: Group) -> None:
    """Each of them stops everything once."""
    a, b, c = eager.joined("abc")
    eager.set_resources(a, names(6))
    eager.drain()
    for change in (b.leave, lambda: setattr(c, "silent", True), lambda: eager.set_resources(a, names(7))):
        count = len(eager.journal("barrier"))
        change()
        eager.run(SETTINGS.session_timeout_ms + 1000)
        eager.drain()
        assert len(eager.journal("barrier")) == count + 1
    assert eager.loads()["a"] == 7


def test_eager_mode_rests_too(eager: Group) -> None:
    """Without changes nothing stops."""
    a, _, _ = eager.joined("abc")
    eager.set_resources(a, names(7))
    eager.drain()
    count = len(eager.journal())
    eager.run(60_000)
    assert len(eager.journal()) == count


@pytest.mark.parametrize("is_behind", [False, True])
def test_what_was_kept_for_an_heir_is_dealt_when_everybody_has_stopped(eager: Group, *, is_behind: bool) -> None:
    """The heir, too, begins nothing before that, whether its own coming is the change or one came first."""
    eager.coordinator.configure(rejoin_grace_ms=60_000)
    a, b = eager.join("a"), eager.join("b", instance_id="pod-b")
    eager.set_resources(a, names(6))
    eager.drain()
    b.leave(remain=True)
    eager.drain()
    if is_behind:
        eager.join("c")
    count = len(eager.journal("granted")), len(eager.journal("barrier"))
    heir = eager.join("d", instance_id="pod-b")
    heir.heartbeat()
    a.hear()
    assert len(eager.journal("granted")) == count[0]
    a.release(*a.pending)
    eager.drain()
    assert eager.loads() == ({"a": 2, "c": 2, "d": 2} if is_behind else {"a": 3, "d": 3})
    assert len(eager.journal("barrier")) == count[1] + (not is_behind)


def test_leaving_eager_mode_lifts_the_barrier(eager: Group) -> None:
    """A barrier that was up when the mode changed stops nothing afterwards."""
    a = eager.join("a")
    eager.set_resources(a, names(6))
    a.hear()
    eager.join("b")
    a.hear()
    eager.coordinator.configure(mode="cooperative")
    eager.drain()
    assert eager.loads() == {"a": 3, "b": 3}
    assert len(eager.journal("cancelled")) == 3


# -- gathering ---------------------------------------------------------------------------------------------------------


def test_the_first_change_acts_at_once(gathering: Group) -> None:
    """Nothing is delayed in a quiet group."""
    a = gathering.join("a")
    gathering.set_resources(a, names(6))
    a.hear()
    gathering.join("b")
    a.hear()
    assert len(a.pending) == 3


def test_the_next_ones_wait_and_act_together(gathering: Group) -> None:
    """Joins in quick succession become one rebalance, when the window closes."""
    a = gathering.join("a")
    gathering.set_resources(a, names(12))
    a.hear()
    gathering.join("b")
    a.hear()
    for member in "cd":
        gathering.backend.now_ms += 100
        gathering.join(member)
        a.hear()
        assert len(a.pending) == 6
    assert a.last.due_ms > gathering.backend.now_ms
    gathering.backend.now_ms += GATHER_MS
    a.hear()
    assert len(a.pending) == 9


def test_the_window_opens_although_the_work_took_several_calls(backend: Backend) -> None:
    """Bounded calls do not disable batching."""
    group = Group(backend, attrs.evolve(SETTINGS, gather_ms=GATHER_MS, moves_per_call=1))
    a = group.join("a")
    group.set_resources(a, names(12))
    a.hear()
    group.join("b")
    a.hear()
    assert len(a.pending) == 6
    group.join("c")
    a.hear()
    assert len(a.pending) == 6


@pytest.mark.thorough
def test_a_flapping_member_pauses_the_others_a_bounded_number_of_times(gathering: Group) -> None:
    """A member that joins and leaves every 200 ms for half a minute."""
    a = gathering.join("a")
    gathering.set_resources(a, names(6))
    a.hear()
    for number in range(150):
        flapper = gathering.join(f"f{number}")
        gathering.backend.now_ms += 100
        gathering.drain()
        gathering.until_left(flapper)
        gathering.backend.now_ms += 100
        gathering.drain()
    pauses = len({entry["at_ms"] for entry in gathering.journal("revoking") if entry["member"] == "a"})
    assert pauses <= 30_000 // SETTINGS.session_timeout_ms + 5


def test_expiries_and_leaves_are_never_delayed(gathering: Group) -> None:
    """Batching delays pauses of healthy work, not recovery."""
    a, b = gathering.joined("ab")
    gathering.set_resources(a, names(6))
    gathering.drain()
    c = gathering.join("c")
    gathering.beat()
    assert c.leave() == "LEFT"
    b.leave()
    b.hear()
    assert len(b.pending) == 3


# -- election ----------------------------------------------------------------------------------------------------------


def test_one_member_is_coordinator_and_describe_names_it(group: Group) -> None:
    """Elected when there is none, for as long as its session lasts."""
    a, b = group.joined("ab")
    assert a.last.coordinator
    assert not b.last.coordinator
    assert group.coordinator.state()["coordinator"] == "a"


@pytest.mark.parametrize("end", ["leave", "crash", "remain"])
def test_its_end_elects_another(group: Group, end: str) -> None:
    """By the next request of any member."""
    a, b = group.join("a", instance_id="one"), group.join("b")
    if end == "crash":
        group.run(SETTINGS.session_timeout_ms + 1000, b)
    else:
        a.leave(remain=end == "remain")
    b.heartbeat()
    assert b.last.coordinator
    assert group.coordinator.state()["coordinator"] == "b"


def test_without_a_coordinator_the_group_still_settles(group: Group) -> None:
    """Its death only costs speed: any member's heartbeat does the work."""
    a, b, c = group.joined("abc")
    group.set_resources(a, names(6))
    group.drain()
    group.run(SETTINGS.session_timeout_ms + 1000, b, c)
    group.drain(b, c)
    assert sorted(group.loads().values()) == [3, 3]


def test_a_standby_may_be_coordinator(group: Group) -> None:
    """It has nothing else to do."""
    standby = group.join("s", capacity=0)
    assert standby.last.coordinator
