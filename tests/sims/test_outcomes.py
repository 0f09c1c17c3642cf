"""Outcomes of events, by hand and by brute force."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import pytest

from cobalance_sims.histogram import bin_of
from cobalance_sims.outcomes import Event, RunFacts, fold
from cobalance_sims.outcomes.evenness import Evenness
from cobalance_sims.records import HANDOVER, JOURNAL, OUTCOME, SIM
from cobalance_sims.simulate.kernel import run_row

GRANT, REVOKE, RELEASE = "granted", "revoking", "released"


def events(*rows: tuple[Any, ...], source: str = JOURNAL) -> list[Event]:
    """Each row is a kind, a time, and further fields."""
    made = []
    for seq, (kind, at, said) in enumerate(rows, 1):
        made.append(Event("x", source, None, said.pop("seq", seq), kind, at, **said))
    return made


def tenure(kind: str, at: int, resource: str, member: str, token: int, **said: Any) -> tuple[str, int, dict[str, Any]]:
    """An event of a tenure, which ends under its own token."""
    handover = {"handover_id": said.pop("after", 0)} if kind == GRANT else {"handover_id": token}
    return kind, at, {"resource": resource, "member": member, "token": token, **handover, **said}


STORY = (
    ("joined", 0, {"member": "a.1", "reason": "-"}),
    ("added", 0, {"resource": "r0"}),
    ("added", 0, {"resource": "r1"}),
    tenure(GRANT, 0, "r0", "a.1", 10),
    tenure(GRANT, 0, "r1", "a.1", 11),
    ("joined", 1_000, {"member": "b.1", "reason": "-"}),
    tenure(REVOKE, 1_000, "r1", "a.1", 11),
    tenure(RELEASE, 1_400, "r1", "a.1", 11, drain_ms=400, handled=7, busy_ms=90, late_ms=3),
    tenure(GRANT, 1_400, "r1", "b.1", 12, after=11),
    ("expired_member", 11_000, {"member": "b.1", "reason": "expired"}),
    tenure("expired", 11_000, "r1", "b.1", 12),
    tenure(GRANT, 11_500, "r1", "a.1", 13, after=12),
    ("joined", 12_000, {"member": "b.2", "reason": "b.1"}),
    tenure(REVOKE, 12_000, "r1", "a.1", 13),
    tenure("cancelled", 12_300, "r1", "a.1", 13, drain_ms=300),
    ("leaving", 12_300, {"member": "b.2"}),
    ("left", 12_300, {"member": "b.2", "reason": "left"}),
    tenure(REVOKE, 13_000, "r0", "a.1", 10),
    tenure("forced", 15_000, "r0", "a.1", 10, drain_ms=2_000, deadline_ms=15_000),
    tenure(GRANT, 15_000, "r0", "a.1", 15, after=10),
    ("refused", 15_100, {"resource": "r0", "member": "a.1", "token": 10, "reason": "release FENCED"}),
)


def test_a_story_by_hand() -> None:
    """Two members, two resources: a move, a false expiry, a cancellation and a forced move."""
    folded = fold(events(*STORY), "x", JOURNAL)
    first, expired, cancelled, forced = sorted(folded.handover_dicts(), key=lambda row: row["ended_at_ms"])
    assert (first["giver"], first["taker"], first["how"]) == ("a.1", "b.1", "released")
    assert (first["held_at_ms"], first["drain_ms"], first["gap_ms"]) == (0, 400, 0)
    assert (first["handled"], first["busy_ms"], first["late_ms"]) == (7, 90, 3)
    assert (expired["gap_ms"], expired["false_expiry"], expired["silent_ms"]) == (500, True, None)
    assert (cancelled["how"], cancelled["drain_ms"], cancelled["granted_at_ms"]) == ("cancelled", 300, None)
    assert (forced["taker"], forced["duplicates_at_risk"]) == ("a.1", None)
    it = folded.outcome_dict()
    assert (it["handovers"], it["moves"], it["forced"], it["cancelled"]) == (3, 2, 1, 1)
    assert it["minimum_moves"] == 3, "a join beside one that has both, its expiry, and its return"
    assert (it["expiries"], it["false_expiries"], it["crashes"], it["heal_ms"]) == (1, 1, 0, [])
    assert (it["joins"], it["leaves"], it["refused"]) == (2, 1, 1)
    assert it["unowned_resource_ms"] == it["unavailable_resource_ms"] == 500
    assert it["draining_resource_ms"] == 400 + 300 + 2_000
    assert it["gap_hist"] == {bin_of(0): 2, bin_of(500): 1}
    assert it["drain_hist"] == {bin_of(400): 1, bin_of(2_000): 1}
    assert it["observed_ms"] == 15_100
    assert it["member_hours"] * 3_600_000 == 15_100 + 10_000 + 300
    # Uneven: r1 while it drained at a.1 (1000-1400), free after the expiry, and again while b.2 was there
    # (12000-12300).
    assert round((1 - it["fairness"]) * 15_100) == (400 + 300) / 2


def test_a_crash_heals_when_the_last_resource_is_owned_again() -> None:
    """Counted from the crash where a simulator knows it; a journal counts from the expiry, and so does the gap."""
    story = (
        ("joined", 0, {"member": "a.1", "reason": "-"}),
        ("joined", 0, {"member": "b.1", "reason": "-"}),
        *[("added", 0, {"resource": name}) for name in ("r0", "r1", "r2")],
        tenure(GRANT, 0, "r0", "a.1", 1),
        tenure(GRANT, 0, "r1", "b.1", 2),
        tenure(GRANT, 0, "r2", "b.1", 3),
        ("expired_member", 9_000, {"member": "b.1", "reason": "expired"}),
        tenure("expired", 9_000, "r1", "b.1", 2),
        tenure("expired", 9_100, "r2", "b.1", 3),
        tenure(GRANT, 9_000, "r1", "a.1", 4, after=2),
        tenure(GRANT, 9_600, "r2", "a.1", 5, after=3),
    )
    real = fold(events(*story), "x", JOURNAL).outcome_dict()
    assert (real["crashes"], real["heal_ms"], real["unhealed"]) == (1, [600], 0)
    known = [
        it._replace(silent_since_ms=2_000, alive=False if it.kind == "expired_member" else None, unacked=4)
        if it.kind.startswith("expired")
        else it
        for it in events(*story, source=SIM)
    ]
    told = fold(known, "x", SIM).outcome_dict()
    assert (told["heal_ms"], told["duplicates_at_risk"], told["false_expiries"]) == ([7_600], 8, 0)
    assert fold(known[:-1], "x", SIM).outcome_dict()["unhealed"] == 1


@pytest.mark.parametrize("reason", ["expired", "crashed"])
def test_a_crash_of_a_member_whose_place_is_kept_heals(reason: str) -> None:
    """Whether its session ended or its closed connections showed its death: it has healed when its heir is there."""
    story = (
        ("joined", 0, {"member": "a.1", "reason": "-"}),
        ("added", 0, {"resource": "r0"}),
        tenure(GRANT, 0, "r0", "a.1", 1),
        ("graced", 9_000, {"member": "a.1", "reason": reason}),
        ("joined", 9_700, {"member": "b.1", "reason": "-"}),
        tenure("inherited", 9_700, "r0", "a.1", 1),
        tenure(GRANT, 9_700, "r0", "b.1", 2, after=1),
        ("left", 9_700, {"member": "a.1", "reason": "inherited"}),
    )
    it = fold(events(*story), "x", JOURNAL).outcome_dict()
    assert (it["crashes"], it["heal_ms"], it["unhealed"], it["leaves"]) == (1, [700], 0, 0)


def test_a_halted_resource_is_an_operators_matter() -> None:
    """It is not unavailable because of any timeout, and counts in no share, until it is resumed."""
    story = (
        ("joined", 0, {"member": "a.1", "reason": "-"}),
        ("added", 0, {"resource": "r0"}),
        tenure(GRANT, 0, "r0", "a.1", 1),
        tenure("abandoned", 100, "r0", "a.1", 1, reason="halted:poison"),
        ("halted", 100, {"resource": "r0", "token": 2, "reason": "halted:poison"}),
        ("reset", 50_000, {"resource": "r0", "token": 3, "committed": 5, "reason": "was 9"}),
        ("resumed", 60_000, {"resource": "r0", "token": 3}),
        tenure(GRANT, 60_250, "r0", "a.1", 4, after=1),
    )
    it = fold(events(*story), "x", JOURNAL).outcome_dict()
    assert (it["halted"], it["unowned_resource_ms"], it["abandoned"], it["moves"]) == (1, 250, 1, 0)
    assert it["fairness"] > 0.99


def test_a_journal_that_begins_in_the_middle_or_has_holes_is_taken_as_it_is() -> None:
    """What is missing is counted and not made up; what comes after it is right again."""
    whole = events(*STORY)
    late = fold(whole[7:], "x", JOURNAL)
    assert late.outcome_dict()["missing_events"] == 0
    first = late.handover_dicts()[0]
    assert (first["giver"], first["held_at_ms"], first["revoking_at_ms"], first["drain_ms"]) == (
        "a.1",
        None,
        1_000,
        400,
    )
    holed = fold([it for it in whole if it.seq not in (8, 9)], "x", JOURNAL)
    it = holed.outcome_dict()
    assert (it["missing_events"], it["observed_events"], it["forced"]) == (2, len(whole) - 2, 1)
    assert [row["how"] for row in holed.handover_dicts()].count("expired") == 1
    for start in range(len(whole)):
        for end in range(start, len(whole) + 1):
            fold(whole[start:end], "x", JOURNAL)


def test_a_clock_that_was_set_back_makes_no_negative_time() -> None:
    """In a journal that was put together by hand, or by another clock, durations are 0 then, and nothing fails."""
    story = (
        tenure(GRANT, 5_000, "r0", "a.1", 1),
        tenure(REVOKE, 6_000, "r0", "a.1", 1),
        tenure(RELEASE, 4_000, "r0", "a.1", 1, late_ms=-3),
        tenure(GRANT, 3_000, "r0", "b.1", 2, after=1),
    )
    folded = fold(events(*story), "x", JOURNAL)
    assert [(row["drain_ms"], row["gap_ms"]) for row in folded.handover_dicts()] == [(0, 0)]
    assert folded.outcome_dict()["drain_hist"] == {0: 1}


def test_data_that_redis_lost_is_no_gap() -> None:
    """The group goes on above everything its members have seen, and they bring back what they hold."""
    story = (
        ("joined", 0, {"member": "a.1", "reason": "-"}),
        ("added", 0, {"resource": "r0"}),
        tenure(GRANT, 0, "r0", "a.1", 1),
        ("incarnation", 5_000, {"reason": "recovering", "seq": 90}),
        ("joined", 5_100, {"member": "a.2", "reason": "a.1", "seq": 91}),
        ("claimed", 5_100, {"resource": "r0", "member": "a.2", "token": 1, "seq": 92}),
        ("recovered", 15_000, {"seq": 93}),
    )
    it = fold(events(*story), "x", JOURNAL).outcome_dict()
    assert (it["incarnations"], it["missing_events"], it["expiries"], it["moves"]) == (1, 0, 0, 0)
    assert it["fairness"] == 1.0


def test_a_simulated_run_by_brute_force() -> None:
    """Every sum, counted again from the events with no state but a dictionary."""
    result = run_row({"churn": "lively", "seed": 11, "length_ms": 500_000, "crashes_per_member_hour": 20})
    told = dict(zip(OUTCOME.names, result.outcome, strict=True))
    by_resource: dict[str, list[Event]] = {}
    for event in result.events:
        if event.resource and event.kind not in ("added", "refused", "cancelled"):
            by_resource.setdefault(event.resource, []).append(event)
    gaps, drains, moves = [], [], 0
    for history in by_resource.values():
        for before, after in pairwise(it for it in history if it.kind != REVOKE):
            if before.kind != GRANT and after.kind == GRANT:
                gaps.append(after.at_ms - before.at_ms)
                moves += before.member != after.member and before.kind not in ("withdrawn", "inherited")
        asked = [(at, it) for at, it in enumerate(history) if it.kind == REVOKE]
        drains += [history[at + 1].at_ms - it.at_ms for at, it in asked if at + 1 < len(history)]
    assert told["moves"] == moves > 20
    assert sum(told["gap_hist"].values()) == len(gaps)
    assert told["unowned_resource_ms"] == sum(gaps)
    kinds = [event.kind for event in result.events]
    for column in ("forced", "abandoned", "cancelled", "withdrawn"):
        assert told[column] == kinds.count(column)
    assert told["expiries"] == kinds.count("expired_member")
    at = HANDOVER.names.index("drain_ms")
    assert sum(row[at] or 0 for row in result.handovers) == told["draining_resource_ms"]


def tell(it: Evenness, event: Event) -> None:
    """Passes an event on as the fold does."""
    member = event.member or ""
    if event.kind == "joined":
        it.join(member, event.capacity or 0)
    elif event.kind in ("left", "expired_member"):
        it.drop(member)
    elif event.kind == "leaving":
        it.suspend(member)
    elif event.kind in ("added", GRANT, RELEASE):
        change = {"added": 0, GRANT: 1, RELEASE: -1}[event.kind]
        it.hold(member, change) if change else it.count(1)


def test_evenness_counts_on_as_if_it_had_counted_anew() -> None:
    """The changes by each event add up to what a full count gives."""
    rates = {"joins_per_hour": 300, "leaves_per_hour": 300, "length_ms": 150_000}
    result = run_row({"churn": "autoscaled", "seed": 2, "capacities": [1, 3], **rates})
    quick, slow = Evenness(), Evenness()
    for event in result.events:
        tell(quick, event)
        tell(slow, event)
        slow.count(0)
        assert quick.unevenness == slow.unevenness
    assert result.outcome[OUTCOME.names.index("fairness")] < 1


def test_what_is_known_besides_wins() -> None:
    """Settings, the length of the run, and what a simulator counts itself."""
    known = RunFacts(
        begun_at_ms=-5_000, ended_at_ms=20_000, header={"seed": 4, "crashes": 9, "session_timeout_ms": 7_000}
    )
    it = fold(events(*STORY), "x", SIM, known).outcome_dict()
    assert (it["observed_ms"], it["seed"], it["crashes"], it["session_timeout_ms"]) == (25_000, 4, 9, 7_000)
