"""The transition table of a partition's tenure at the broker: each of its edges, no others, and its picture."""

from __future__ import annotations

import ast
import sys
from itertools import groupby
from pathlib import Path

import pytest

import cobalance
from cobalance.errors import IllegalTransition
from cobalance.rabbitmq.partition.core import PartitionCore
from cobalance.rabbitmq.partition.states import ACKNOWLEDGING, LIVE, SPENT, TABLE, PartitionState, Step

LEGAL = [(state, step, after) for state, steps in TABLE.items() for step, after in steps.items()]
ILLEGAL = [(state, step) for state in PartitionState for step in Step if step not in TABLE[state]]
PACKAGE = Path(str(cobalance.__file__)).parent

PURE = (
    "rabbitmq/partition/acks.py",
    "rabbitmq/partition/tag_set.py",
    "rabbitmq/partition/actions.py",
    "rabbitmq/partition/arrivals.py",
    "rabbitmq/partition/backlog.py",
    "rabbitmq/partition/core.py",
    "rabbitmq/partition/opening.py",
    "rabbitmq/partition/refusals.py",
    "rabbitmq/partition/states.py",
    "rabbitmq/streams/continuity.py",
    "rabbitmq/streams/position.py",
)
ALLOWED = {
    "__future__",
    "abc",
    "attrs",
    "bisect",
    "cobalance.backoff",
    "cobalance.coordinator.in_flight",
    "cobalance.errors",
    "collections",
    "collections.abc",
    "enum",
    "typing",
}


def core_in(state: PartitionState) -> PartitionCore:
    core = PartitionCore("q")
    core.state = state
    return core


@pytest.mark.parametrize(("state", "step", "after"), LEGAL)
def test_a_legal_step_leads_where_the_table_says(state: PartitionState, step: Step, after: PartitionState) -> None:
    core = core_in(state)
    assert core._step(step) is after
    assert core.state is after


@pytest.mark.parametrize(("state", "step"), ILLEGAL)
def test_an_illegal_step_raises_and_changes_nothing(state: PartitionState, step: Step) -> None:
    core = core_in(state)
    with pytest.raises(IllegalTransition, match=f"{step.value} cannot happen to queue 'q', which is {state.value}"):
        core._step(step)
    assert core.state is state


def test_nothing_leads_out_of_the_end() -> None:
    """What is late changes nothing."""
    assert {after for state, _, after in LEGAL if state is PartitionState.ENDED} == {PartitionState.ENDED}
    assert {after for _, _, after in LEGAL} == set(PartitionState) - {PartitionState.IDLE}


def test_nothing_leads_back_from_a_tenure_that_is_spent() -> None:
    """A drained partition never hands out again; until then one that is kept after all goes on."""
    assert {after for state, _, after in LEGAL if state in SPENT} == SPENT


def test_every_state_can_be_asked_back_and_can_end() -> None:
    """No tenure is stuck, whatever the broker leaves unanswered."""
    for state in PartitionState:
        assert TABLE[state].get(Step.DRAIN) in SPENT
        assert state is PartitionState.ENDED or TABLE[state][Step.END] is PartitionState.ENDED


def test_only_a_drained_tenure_closes_its_channel() -> None:
    """Any other end is a loss, or a halt."""
    assert [state for state, step, _ in LEGAL if step is Step.CLOSE] == [PartitionState.DRAINING]


def test_acks_are_sent_only_where_messages_may_have_arrived() -> None:
    """And the close can still follow."""
    assert {state for state, step, after in LEGAL if step is Step.RECEIVE and after in LIVE} == LIVE
    assert LIVE | {PartitionState.FINISHING, PartitionState.DRAINING} == ACKNOWLEDGING


def test_only_a_partition_that_finishes_goes_on() -> None:
    """As it was: consuming."""
    assert [it for it in LEGAL if it[1] is Step.GO_ON] == [
        (PartitionState.FINISHING, Step.GO_ON, PartitionState.CONSUMING)
    ]


def drawn() -> str:
    """The table as a picture: an arrow for each pair of states, with the steps that lead along it."""
    edges = [(state.name, after.name, step.value) for state, step, after in LEGAL if state is not after]
    arrows = [
        f"    {state} --> {after}: {', '.join(step for _, _, step in steps)}"
        for (state, after), steps in groupby(edges, lambda edge: edge[:2])
    ]
    return "\n".join(["```mermaid", "stateDiagram-v2", "    [*] --> IDLE", *arrows, "    ENDED --> [*]", "```"])


def test_the_diagram_is_drawn_from_the_table() -> None:
    """Replace the one in the README by what this says is missing."""
    assert drawn() in (PACKAGE / "rabbitmq/partition/README.md").read_text("utf-8")


@pytest.mark.parametrize("file", PURE)
def test_the_core_has_no_threads_clocks_or_sockets(file: str) -> None:
    """It imports values, and its neighbours in this list."""
    own = {f"cobalance.{it.removesuffix('.py').replace('/', '.')}" for it in PURE}
    tree = ast.parse((PACKAGE / file).read_text("utf-8"))
    imported = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    imported |= {name.name for node in ast.walk(tree) if isinstance(node, ast.Import) for name in node.names}
    assert imported <= ALLOWED | own | {"cobalance.rabbitmq.partition"}


if __name__ == "__main__":
    sys.stdout.write(drawn() + "\n")
