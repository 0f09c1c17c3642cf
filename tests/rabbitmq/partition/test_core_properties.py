"""Any history of a partition's tenure, against a small broker and an oracle of order and acks (`proof.partitions`).

Messages, takes, handlers that end in any order, refusals, flushes, timers, drains and losses come in any order. What is
acknowledged is finished; without `acks_ahead` it is a prefix. Messages are handed out in order, none is skipped, and
none after a drain. It is drained once, closes once and ends once, and nothing waits for ever. Events that the table
does not allow raise and change nothing.
"""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from cobalance.rabbitmq.partition.acks import Flush
from proof.partitions.broker import OneQueue, Wrong
from proof.partitions.choices import choices
from proof.partitions.stage import KINDS, Kind, Stage
from proof.partitions.walk import walk


class Histories(RuleBasedStateMachine):
    """One choice after the other; hypothesis shortens what it finds."""

    stage: Stage

    @initialize(kind=st.sampled_from(KINDS))
    def begin(self, kind: Kind) -> None:
        self.stage = Stage(kind)

    @rule(data=st.data())
    def anything_may_happen(self, data: st.DataObject) -> None:
        names = dict(choices(self.stage))
        names[data.draw(st.sampled_from(sorted(names)))]()

    @precondition(lambda self: self.stage.queue.may_deliver and self.stage.queue.is_open)
    @rule()
    def a_message_arrives(self) -> None:
        names = dict(choices(self.stage))
        names.get("message", lambda: None)()

    @invariant()
    def nothing_waits_for_ever(self) -> None:
        if hasattr(self, "stage"):
            self.stage.check()

    def teardown(self) -> None:
        if hasattr(self, "stage") and self.stage.begun:
            self.stage.wind_down()


@pytest.mark.parametrize("examples", [60, pytest.param(1_000, marks=pytest.mark.thorough)])
@pytest.mark.thorough
def test_any_history_keeps_order_and_loses_nothing(examples: int) -> None:
    """Whatever happens when."""
    run_state_machine_as_test(
        Histories,
        settings=settings(
            max_examples=examples,
            stateful_step_count=40,
            deadline=None,
            derandomize=True,
            suppress_health_check=[*HealthCheck],
        ),
    )


@pytest.mark.parametrize(
    "seeds",
    [
        range(3_000),
        *(pytest.param(range(it, it + 24_000), marks=pytest.mark.thorough) for it in range(3_000, 99_000, 24_000)),
    ],
)
def test_random_walks_keep_order_and_lose_nothing(seeds: range) -> None:
    """Longer histories, in which what is usual happens more often."""
    for seed in seeds:
        walk(seed)


def test_the_small_broker_refuses_what_rabbitmq_refuses() -> None:
    """An ack of a message that it does not have closes the channel there."""
    it = OneQueue(prefetch=2)
    it.ready.extend([1, 2, 3])
    it.open()
    it.deliver()
    with pytest.raises(Wrong, match="unknown delivery tag 2"):
        it.take_acks(Flush((), 2))
    it.take_acks(Flush((), 1))
    assert it.acked == {1}
    it.deliver()
    it.close()
    assert [*it.ready] == [2, 3]
