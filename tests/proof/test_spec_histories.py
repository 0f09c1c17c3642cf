"""What the simulator does, recorded in the terms of the TLA+ specification."""

from __future__ import annotations

from collections import Counter

import attrs
import pytest

from proof.document import spec_tables
from proof.spec.corrupt import CORRUPTIONS, corrupted
from proof.spec.history import FIELDS, History, module, settings, value
from proof.spec.sightings import Sighting
from proof.spec.stories import SEEDS, STORIES, recorded
from proof.spec.tlc import DOCUMENT

pytestmark = pytest.mark.thorough


@pytest.fixture(scope="module")
def histories() -> list[History]:
    """The histories that `make spec` follows."""
    return recorded()


def test_every_kind_of_event_is_recorded(histories: list[History]) -> None:
    """Otherwise some action of the specification would never be compared with what the code does."""
    kinds = Counter(event["is"] for it in histories for event in it.events)
    assert set(kinds) == set(FIELDS)


def test_every_event_has_the_fields_of_its_kind(histories: list[History]) -> None:
    """The specification reads no others."""
    for it in histories:
        for event in it.events:
            assert set(event) == {"is", *FIELDS[event["is"]]}


def test_the_document_follows_every_kind_of_event() -> None:
    """Histories.tla has an action for each."""
    text = (DOCUMENT / "Histories.tla").read_text("utf-8")
    assert not [kind for kind in FIELDS if f'"{kind}"' not in text]


def test_the_same_stories_are_always_recorded_alike(histories: list[History]) -> None:
    """So that a refused history can be examined again."""
    assert len(histories) == len(STORIES) * len(SEEDS)
    assert histories == recorded()


def test_tokens_are_counted_by_resource(histories: list[History]) -> None:
    """1, 2, 3 … for each, across data loss too: so a repeated token shows."""
    for it in histories:
        count: Counter[str] = Counter()
        for event in it.events:
            if event["is"] == "grant":
                count[event["r"]] += 1
                assert event["t"] == count[event["r"]]


def test_every_corruption_changes_a_history(histories: list[History]) -> None:
    """And only the one it is made of."""
    forged = corrupted(histories)
    originals = {it.name: it for it in histories}
    assert len(forged) == len(CORRUPTIONS)
    for it in forged:
        assert it.events != originals[it.name.split(",")[0]].events
    assert histories == recorded()


def test_a_corruption_that_is_nowhere_possible_is_an_error() -> None:
    """It would seem to have been refused."""
    with pytest.raises(ValueError, match="record more"):
        corrupted([History("empty", (), (1, 1, 1))])


def test_histories_are_written_as_tla() -> None:
    """Names are strings; what is seen of a process is a function."""
    seen = {"r1": {"t": 1, "phase": "working"}}
    it = History("a", ({"is": "has", "m": "p1", "all": seen}, {"is": "list", "all": {"r2", "r1"}}), (6, 5, 8))
    text = module([it])
    assert '[is |-> "has", m |-> "p1", all |-> ("r1" :> [t |-> 1, phase |-> "working"])]' in text
    assert '[is |-> "list", all |-> {"r1", "r2"}]' in text
    assert "All == <<H1>>" in text
    assert value({}) == "[none \\in {} |-> 0]"
    assert value(True) == "TRUE"
    with pytest.raises(TypeError):
        value(1.5)


def test_the_settings_name_everybody(histories: list[History]) -> None:
    """Members and resources are those of all histories; times are the simulator's, in milliseconds."""
    text = settings(histories[:2])
    assert 'Resource = {"r0", "r1", "r2", "r3"}' in text
    assert all(f'"{name}"' in text for name in histories[0].processes)
    assert "Session = 6000\n    Lease = 5400\n    Revocation = 8000\n" in text
    assert "INVARIANTS" not in settings(histories[:2], with_promises=False)


def test_histories_with_different_timings_are_not_mixed(histories: list[History]) -> None:
    """One check has one set of constants."""
    with pytest.raises(ValueError, match="timings"):
        settings([histories[0], attrs.evolve(histories[1], timings=(1, 1, 1))])


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        (Sighting(), Sighting(lease_until=9, believed=True), [("hear", "")]),
        (Sighting(lease_until=9), Sighting(lease_until=20), []),
        (Sighting(lease_until=9), Sighting(), [("lose", "")]),
        (Sighting(frozen=True), Sighting(), [("thaw", "")]),
        (Sighting(), Sighting(frozen=True), [("freeze", "")]),
        (Sighting(frozen=True), Sighting(gone=True), [("crash", "")]),
        (Sighting({"r": (1, "working")}), Sighting({"r": (1, "draining")}), [("stop", "")]),
        (Sighting({"r": (1, "draining")}), Sighting({"r": (1, "stopped")}), [("finish", "r")]),
        (Sighting({"r": (1, "working")}), Sighting({"r": (1, "aborted")}), [("abort", "r")]),
        (Sighting({"r": (1, "aborted")}), Sighting({"r": (1, "stopped")}), []),
        (Sighting({"r": (1, "working")}), Sighting({"r": (2, "stopped")}), []),
    ],
)
def test_what_must_have_happened_to_a_process(
    before: Sighting, after: Sighting, expected: list[tuple[str, str]]
) -> None:
    """Between two looks at it; an answer that came too late was not heard."""
    assert list(after.since(before)) == expected


def test_the_figures_become_tables() -> None:
    """Failures stand out."""
    row = {"broken": "", "steps": 0, "generated": 5714, "distinct": 2182, "depth": 25, "seconds": 3.2, "passed": True}
    rows = [
        row | {"part": "models", "name": "Safety", "summary": "small"},
        row | {"part": "mistakes", "name": "NoFence", "summary": "goes on", "broken": "RAInvariant", "steps": 14},
        row | {"part": "mistakes", "name": "Harmless", "summary": "nothing", "passed": False},
        row | {"part": "histories", "name": "recorded", "summary": "3 histories"},
        row | {"part": "histories", "name": "forged", "summary": "corrupted", "steps": 9, "passed": False},
    ]
    lines = list(spec_tables(rows))
    assert "| Safety | small | complete, every promise holds | 5,714 | 2,182 | 25 | 3 |" in lines
    assert "| NoFence | goes on | RAInvariant | 14 |" in lines
    assert "| Harmless | nothing | **not found** (every promise holds) | 0 |" in lines
    assert "| recorded: 3 histories | all accepted, every promise holds | all |" in lines
    assert "| forged | **accepted** | 9 |" in lines
