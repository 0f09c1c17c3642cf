"""Every interleaving of a very small group; larger ones are in test_explore_tier.py."""

from __future__ import annotations

import attrs
import pytest

from cobalance.member.holdings import Holdings
from proof.explore.cli import ExplorationReport, complaints, main, text
from proof.explore.fair import Fair, beginning
from proof.explore.scope import SCOPES
from proof.explore.search import Search, SearchResult
from proof.explore.story import PathStory
from proof.explore.world import Transitions


@pytest.fixture(scope="module")
def explored() -> SearchResult:
    """Two members and one resource, with any one fault."""
    return Search(Transitions(SCOPES["2x1"])).run()


def test_all_interleavings_of_two_members_keep_every_promise(explored: SearchResult) -> None:
    """Safety in every state, and an even group from every state once all faults end."""
    assert explored.found is None
    assert explored.is_complete


def test_every_state_is_followed_to_an_even_group(explored: SearchResult) -> None:
    """From every single state; nothing is silently left out."""
    assert explored.closures[""] == explored.states


def test_the_faults_were_reached(explored: SearchResult) -> None:
    """An exploration in which nothing goes wrong proves nothing."""
    kinds = (
        *("crash", "pause", "cut", "lost", "reply", "empty", "replace"),
        *("journal expired", "journal recovered", "journal claimed", "call join with claims", "answer repeat"),
        *("answer REJOIN", "answer ENDED", "abort fenced"),
    )
    assert [kind for kind in kinds if not explored.reached[kind]] == []


def test_a_tier_that_misses_a_kind_proves_nothing(explored: SearchResult) -> None:
    """One member leaves in no path of this scope: as a tier, it would fail, and say why."""
    (complaint,) = complaints([explored])
    assert complaint.startswith("never reached: ")
    assert "journal left" in complaint


def test_a_tier_that_is_not_complete_or_not_followed_proves_nothing(explored: SearchResult) -> None:
    """Everything that was cut short is named."""
    cut_short = attrs.evolve(explored, is_complete=False)
    unfollowed = attrs.evolve(explored, closures={"": explored.states - 1})
    assert "not complete: 2x1" in complaints([cut_short])
    assert "not followed from every state: 2x1" in complaints([unfollowed])


def test_the_figures_are_printed(explored: SearchResult) -> None:
    """States, transitions, whose drains were needed, and every kind that was reached, with counts."""
    figures, followed, kinds = text(ExplorationReport(explored, "", ())).splitlines()
    assert figures.startswith(f"2x1: complete, {explored.states:,} states, {explored.transitions:,} transitions, ")
    assert f"from {explored.states:,} states" in followed
    assert "0 with b never draining" in followed  # one resource never moves while its holder lives
    assert f"crash {explored.reached['crash']:,}, " in kinds


@pytest.mark.thorough
def test_a_script_may_die_at_any_of_its_writes() -> None:
    """Promise R1, in every interleaving of two members, one of whose scripts dies: the next call repairs it."""
    result = Search(Transitions(SCOPES["2x1-die"])).run()
    assert (result.found, result.is_complete) == (None, True)
    assert result.reached["die"] > 1_000
    assert result.reached["journal repaired"] > 1_000


@pytest.mark.parametrize(
    "scope",
    ["2x3-deploy", *(pytest.param(it, marks=pytest.mark.thorough) for it in ("2x2-deploy", "2x2-deploy-leave"))],
)
@pytest.mark.thorough
def test_nobody_is_given_what_its_code_does_not_name(scope: str) -> None:
    """Promise S8, in every interleaving of two processes that share only one resource, with faults besides."""
    result = Search(Transitions(SCOPES[scope])).run()
    assert (result.found, result.is_complete) == (None, True)
    assert result.closures[""] == result.states
    assert result.reached["journal removing"]


def test_a_scope_that_does_not_exist_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    """The message lists the existing names."""
    assert main(["2x5"]) == 2
    assert "no such scope: 2x5; there are 2x1, " in capsys.readouterr().err


def test_exploring_from_a_settled_group_begins_there() -> None:
    """Two members share evenly when the third may start."""
    world = Transitions(SCOPES["3x3"])
    state = beginning(world)
    assert Fair(world).is_settled(state)
    assert [it.status for _, it in world.slots(state)] == ["up", "up", "absent"]


@pytest.mark.thorough
def test_a_broken_promise_is_told_as_a_story(monkeypatch: pytest.MonkeyPatch) -> None:
    """The shortest path to it, with the holders: here members that never fence themselves."""
    monkeypatch.setattr(Holdings, "fence", lambda *_, **__: 0)
    world = Transitions(SCOPES["2x1"])
    found = Search(world).run().found
    assert found is not None
    story = PathStory(world).tell(found).splitlines()
    assert story[-1] == "WRONG a and b both work r1"
    assert len(story) == len(found.path) + len(found.closure) + 2  # what it says, and where the faults end
    assert any("cannot reach Redis any more" in line for line in story)
    assert "r1 held a1.1" in story[-2]
