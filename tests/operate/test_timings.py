"""What a journal says of the timeouts, and of members, over the production scripts in virtual time."""

from __future__ import annotations

import attrs
import pytest
from tests.coordinator.driver import SETTINGS
from tests.dashboard.scenes import GROUP, Scene, churned

from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.requests import Effort
from cobalance.dashboard.tuning import session_evidence
from cobalance.journal import Journal
from cobalance.operate.member_past import MemberPast
from cobalance.operate.timings import Timings, quantile
from cobalance.operate.wording import duration


def timings_of(scene: Scene) -> Timings:
    found = Timings()
    for entry in Journal(MemoryTransport(scene.backend.store), GROUP).entries():
        found.take(entry)
    return found


def test_drains_and_what_timeouts_ended() -> None:
    """Of a churn with a forced move and a crash; a drain lasts as long as from the question to the release."""
    found = timings_of(churned())
    assert min(found.drains) >= 400
    assert max(found.drains) >= 1_500
    assert (found.overrun, found.silent, found.crashed, found.not_back) == (3, 1, 0, 0)
    assert len(found.gaps) == 6


def test_processes_that_come_back_for_their_place() -> None:
    """How long they were away; and who was not back in time."""
    scene = Scene(4)
    scene.join(3, instance_id="pod-0")
    scene.settle()
    scene.group.members.pop("m3")
    scene.pass_time(2 * SETTINGS.session_timeout_ms)
    scene.pass_time(3_000)
    scene.join(4, instance_id="pod-0")
    scene.settle()
    found = timings_of(scene)
    assert (len(found.away), found.silent, found.not_back) == (1, 1, 0)
    assert 3_000 <= found.away[0] <= 3_000 + 2 * SETTINGS.session_timeout_ms
    scene.group.members.pop("m4")
    scene.pass_time(2 * SETTINGS.session_timeout_ms + SETTINGS.rejoin_grace_ms + 1_000)
    found = timings_of(scene)
    assert (len(found.away), found.silent, found.not_back) == (1, 2, 1)


def test_the_silence_of_a_process_that_came_back_is_no_silence_of_one_that_was_well() -> None:
    """It was suspended, and reports that with the first tenure that it ends as a new member. Its later reports count."""
    scene = Scene(4)
    scene.group.members.pop("m1")
    scene.pass_time(2 * SETTINGS.session_timeout_ms)
    scene.settle()
    back = scene.join(3, previous="m1")
    scene.settle()
    for late_ms in (9 * SETTINGS.session_timeout_ms, 120):
        back.release(min(back.holds), effort=Effort(1, 1, late_ms))
        scene.settle()
    found = timings_of(scene)
    assert found.silent == 1
    assert [*found.late] == [120]


def test_advice_goes_no_further_than_what_was_seen_of_members_that_were_well() -> None:
    """A silence that was longer than the session is not evidence that one may be well for so long."""
    found = Timings()
    found.late.extend([10, 50 * SETTINGS.session_timeout_ms])
    evidence = session_evidence(SETTINGS, found)
    assert max(evidence.observed) == SETTINGS.session_timeout_ms
    assert f"raise it to {duration(2 * SETTINGS.session_timeout_ms)}" in (evidence.advice or "")


def test_a_longer_session_is_advised_with_what_it_needs() -> None:
    """The command would refuse a session that is longer than the revocation timeout."""
    found = Timings()
    found.late.append(5 * SETTINGS.session_timeout_ms)
    enough = attrs.evolve(SETTINGS, revocation_timeout_ms=2 * SETTINGS.session_timeout_ms)
    short = attrs.evolve(enough, revocation_timeout_ms=enough.revocation_timeout_ms - 1)
    advised = [session_evidence(it, found).advice or "" for it in (enough, short)]
    assert ["revocation_timeout_ms to as much" in it for it in advised] == [False, True]


def test_one_change_of_the_membership_is_one() -> None:
    """A member with an instance id leaves, comes back, and joins again under its next id: what is written of each in one
    step is no second change that came close to the first.
    """
    scene = Scene(4)
    scene.join(3, instance_id="pod-0")
    scene.settle()
    scene.pass_time(9_000)
    assert scene.member(3).leave(remain=True) == "LEFT"
    scene.pass_time(9_000)
    scene.join(4, instance_id="pod-0")
    scene.settle()
    scene.pass_time(9_000)
    scene.join(5, instance_id="pod-0", previous="m4")
    scene.settle()
    gaps = timings_of(scene).gaps
    assert (len(gaps), sum(it < 5_000 for it in [*gaps][-3:])) == (5, 0)


def test_a_member_from_its_join_to_its_end() -> None:
    """Its tenures, and how it came to an end."""
    scene = churned()
    found = dict[str, MemberPast]()
    for entry in Journal(MemoryTransport(scene.backend.store), GROUP).entries():
        if entry.member is not None:
            found.setdefault(entry.member, MemberPast()).take(entry)
    gone, there = found["m2"], found["m1"]
    assert gone.ended is not None
    assert (gone.ended.kind, gone.begun, gone.finished) == ("expired_member", gone.finished, gone.begun)
    assert there.ended is None
    assert there.begun > there.finished
    assert sum(it.cut_short for it in found.values()) == 3


@pytest.mark.parametrize(
    ("values", "share", "expected"),
    [
        ([], 0.5, None),
        ([7], 0.5, 7),
        ([3, 1, 2], 0.5, 2),
        ([1, 2, 3, 4], 0.5, 2),
        (range(1, 101), 0.95, 95),
        ([1, 2], 1.0, 2),
    ],
)
def test_quantiles(values: list[int], share: float, expected: int | None) -> None:
    """The smallest that this many do not exceed."""
    assert quantile(values, share) == expected
