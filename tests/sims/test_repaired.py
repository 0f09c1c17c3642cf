"""Journals with lines of scripts that died: readers count exactly what repairs did not take back."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from tests.coordinator.driver import SETTINGS
from tests.coordinator.test_torn import EAGER, FEW, STORIES, deaths
from tests.coordinator.torn import Story, TornGroup, tell
from tests.sims.test_outcomes import GRANT, RELEASE, events, tenure

from cobalance.demo.tenures import Tenures
from cobalance.journal import JournalEntry
from cobalance.ownership import ENDINGS
from cobalance.settings import GroupSettings
from cobalance_sims.outcomes import Event, RunFacts, fold, of_entry
from cobalance_sims.outcomes.repairs import undone
from cobalance_sims.records import JOURNAL
from cobalance_sims.report.story import tell as tell_story
from proof.records import Records

TRIED = 12
"""Deaths of each story."""

ONCE = ENDINGS | {"joined", "leaving", "graced", "left", "expired_member"}


def read(group: TornGroup) -> list[JournalEntry]:
    return [JournalEntry.read(f"{number}-0", fields) for number, fields in enumerate(group.records().journal)]


def owners(records: Records) -> dict[str, str]:
    return {name: it.owner for name, it in records.resources.items() if it.owner != "-"}


def replay(entries: list[JournalEntry]) -> Tenures:
    """The demo's view of the entries."""
    made = Tenures()
    for entry in entries:
        made.apply(entry)
    return made


@pytest.mark.parametrize(
    "settings",
    [
        pytest.param(SETTINGS, id="usual"),
        pytest.param(FEW, id="few", marks=pytest.mark.thorough),
        pytest.param(EAGER, id="eager", marks=pytest.mark.thorough),
    ],
)
@pytest.mark.parametrize("story", STORIES, ids=lambda it: it.__name__)
def test_readers_know_what_is_on_record(story: Story, settings: GroupSettings) -> None:
    """With the repair's own lines, and from the remaining lines alone, in which nothing begins or ends twice."""
    every = deaths(story, settings)
    for death in every[:: max(1, len(every) // TRIED)]:
        group = tell(story, settings, death)
        records, entries = group.records(), read(group)
        gone = undone([of_entry(entry, "x") for entry in entries])
        happened = [entry for entry in entries if entry.seq not in gone and entry.kind != "repaired"]
        active = {id_ for id_, it in records.members.items() if it.status in ("active", "graced")}
        for made in (replay(entries), replay(happened)):
            assert made.owners == owners(records), death
            assert made.members == active, death
        once = Counter((it.kind, it.resource or it.member, it.token) for it in happened if it.kind in ONCE)
        assert not [it for it, count in once.items() if count > 1], death


Row = tuple[str, int, dict[str, Any]]

BEGINNING = (
    ("joined", 0, {"member": "a.1", "reason": "-"}),
    ("joined", 0, {"member": "b.1", "reason": "-"}),
    ("added", 0, {"resource": "r0"}),
    tenure(GRANT, 0, "r0", "a.1", 10),
)


def outcome(*rows: Row) -> dict[str, Any]:
    """The outcome of ten seconds that began with two members and a resource."""
    return fold(events(*BEGINNING, *rows), "x", JOURNAL, RunFacts(0, 10_000)).outcome_dict()


def mended(at: int, **said: Any) -> Row:
    """A line of a repair."""
    return "repaired", at, dict(said)


RELEASED = (tenure(RELEASE, 4_000, "r0", "a.1", 10, drain_ms=0), tenure(GRANT, 4_000, "r0", "b.1", 12, after=10))
LEFT = ("left", 4_000, {"member": "b.1", "reason": "left"})
AFTER = {"reason": f"torn after {len(BEGINNING)}"}


def test_what_was_taken_back_did_not_happen() -> None:
    """A move and a departure that are reported twice count once; one that is not reported again does not count."""
    kept = mended(4_100, resource="r0", member="a.1", token=10, reason="held")
    once, twice = outcome(*RELEASED), outcome(*RELEASED, kept, mended(4_100, **AFTER), *RELEASED)
    counted = ("handovers", "moves", "drain_hist", "gap_hist", "unowned_resource_ms", "missing_events", "fairness")
    assert {name: twice[name] for name in counted} == {name: once[name] for name in counted}
    stays = mended(4_100, member="b.1", reason="active")
    never = outcome(LEFT, stays, mended(4_100, **AFTER))
    assert (never["leaves"], never["member_hours"], never["missing_events"]) == (0, 20 / 3_600, 0)
    again = outcome(LEFT, stays, mended(4_100, **AFTER), ("left", 5_000, {"member": "b.1", "reason": "left"}))
    assert (again["leaves"], again["member_hours"]) == (1, 15 / 3_600)


def test_what_was_not_taken_back_happened() -> None:
    """A member that is recorded as dead has gone, though it still owns what it held; no reader takes it for alive."""
    it = outcome(
        ("expired_member", 4_000, {"member": "a.1", "reason": "expired"}),
        mended(4_000, resource="r0", member="a.1", token=10, reason="held"),
        mended(4_000, member="a.1", reason="dead"),
        mended(4_000, **AFTER),
        tenure("expired", 4_000, "r0", "a.1", 10),
    )
    assert (it["expiries"], it["crashes"], it["member_hours"]) == (1, 1, 14 / 3_600)


def test_a_recovery_that_died_is_begun_once() -> None:
    """Otherwise it would be waited for without end; members are there all the time."""
    lost = ("incarnation", 4_000, {"reason": "recovering"})
    it = outcome(lost, mended(4_000, **AFTER))
    assert (it["incarnations"], it["member_hours"], it["fairness"]) == (0, 20 / 3_600, 1)
    asked = outcome(lost, mended(5_000, reason="asked recovering"), ("recovered", 9_000, {}))
    assert (asked["incarnations"], asked["member_hours"]) == (1, 8 / 3_600)


def test_a_figure_shows_nothing_that_was_taken_back() -> None:
    """Such as a resource that another member held, or a departure."""
    kept = mended(4_100, resource="r0", member="a.1", token=10, reason="held")
    rows = (*BEGINNING, *RELEASED, LEFT, kept, mended(4_100, member="b.1", reason="active"), mended(4_100, **AFTER))
    story = tell_story("x", [*events(*rows, ("added", 9_000, {"resource": "r1"}))])
    assert story is not None
    assert story.owners == ("a.1",)
    assert story.count("left", "released") == 0
    assert [(it.start_ms, it.end_ms) for it in story.pieces] == [(0, 9_001)]


def test_a_repair_without_lines_takes_nothing_back() -> None:
    """A repair that was asked for, or one that mends a script that died before it wrote anything."""
    told: list[Event] = events(*BEGINNING, mended(1_000, reason="torn"), LEFT, mended(9_000, reason="asked"))
    assert undone(told) == frozenset()
