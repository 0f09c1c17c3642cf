"""The transition table of one tenure: each of its edges, and no others."""

import re

import pytest

from cobalance.errors import IllegalTransition
from cobalance.member import holding
from cobalance.member.holding import TABLE, WORKING, Holding, State, Step

LEGAL = [(state, step, after) for state, steps in TABLE.items() for step, after in steps.items()]
ILLEGAL = [(state, step) for state in State for step in Step if step not in TABLE.get(state, {})]


@pytest.mark.parametrize(("state", "step", "after"), LEGAL)
def test_a_legal_step_leads_where_the_table_says(state: State, step: Step, after: State) -> None:
    it = Holding("r", 1, state=state)
    assert it.step(step) is after
    assert it.state is after


@pytest.mark.parametrize(("state", "step"), ILLEGAL)
def test_an_illegal_step_raises_and_changes_nothing(state: State, step: Step) -> None:
    it = Holding("r", 1, state=state, offset=7)
    before = repr(it)
    with pytest.raises(IllegalTransition, match=f"{step.value} cannot happen to a tenure that is {state.value}"):
        it.step(step)
    assert repr(it) == before


def test_nothing_leads_out_of_gone() -> None:
    """A forgotten token never comes back."""
    assert State.GONE not in TABLE
    assert {after for _, _, after in LEGAL} == set(State)


def test_work_begins_only_with_a_tenure() -> None:
    """No step leads from a state without work back to one with work."""
    assert not [edge for edge in LEGAL if edge[0] not in WORKING and edge[2] in WORKING]


def test_every_state_with_work_can_be_aborted_and_lost() -> None:
    """By the member's clock and by the coordinator."""
    for state in WORKING:
        assert TABLE[state][Step.ABORT] is State.ABORTED
    for state in TABLE:
        assert TABLE[state][Step.LOSE] is State.GONE


def test_the_diagram_shows_edges_of_the_table() -> None:
    """Each arrow of the docstring's picture is an edge, in its direction."""
    assert holding.__doc__ is not None
    picture = holding.__doc__
    row = next(line for line in picture.splitlines() if line.strip().startswith("hold ──►"))
    boxes = [State[name] for name in re.findall(r"──► (\w+)", row)]
    steps = [Step.REVOKE, Step.BEGIN, Step.FINISH, Step.SEND]
    for edge in zip(boxes[:-1], steps, boxes[1:], strict=True):
        assert edge in LEGAL
    aborts = re.search(r"abort: ([\w, ]+) ──► (\w+) ── stopped", picture)
    assert aborts is not None
    assert {State[name] for name in aborts.group(1).split(", ")} == set(WORKING)
    assert all(TABLE[state][Step.ABORT] is State[aborts.group(2)] for state in WORKING)
    assert TABLE[State[aborts.group(2)]][Step.STOP] is State.ENDED
    assert "keep" in picture
    assert TABLE[State.DRAINING][Step.KEEP] is State.HELD


def test_a_cancelled_revocation_comes_too_late_once_closing_has_begun() -> None:
    """on_revoked ran, so that tenure ends whatever the coordinator says."""
    it = Holding("r", 1)
    for step in (Step.REVOKE, Step.BEGIN, Step.KEEP):
        it.step(step)
    assert it.state is State.CLOSING


def test_an_aborted_tenure_is_looked_at_again_when_its_work_should_have_stopped() -> None:
    """What never stops is hung, and is not awaited forever."""
    it = Holding("r", 1, abort_at=5, stop_by=9)
    assert it.next_clock() == 5
    it.step(Step.ABORT)
    assert it.next_clock() == 9
    it.step(Step.STOP)
    assert it.next_clock() is None
