"""Which layout's queues are consumed, given the state of RabbitMQ and the group: the table in `layouts`, row by row."""

from __future__ import annotations

import pytest

from cobalance.coordinator.client import ResourceRow
from cobalance.rabbitmq.topics.layouts import decide
from cobalance.rabbitmq.topics.queue_state import QueueState

NEW = ("t.v2-0", "t.v2-1")
EMPTY = QueueState(ready=0, consumers=0)


def row(name: str, *, rank: str = "2", removing: bool = False) -> ResourceRow:
    """A resource of the group."""
    return ResourceRow(name, "held", "m", 1, 0, 0, rank, removing, "-", None)


def ask(old: dict[str, QueueState], *listed: ResourceRow, settled: bool = True) -> tuple[str, ...]:
    """The resources to declare."""
    return ask_of_several([old], *listed, settled=settled)


def ask_of_several(old: list[dict[str, QueueState]], *listed: ResourceRow, settled: bool = True) -> tuple[str, ...]:
    """The resources to declare, where there are several closed layouts."""
    return decide(NEW, old, {it.name: it for it in listed}, settled=settled)


def test_old_queues_are_consumed_while_one_has_messages() -> None:
    """Queues that are held stay with their holders; others are only added if they have messages."""
    old = {"t-0": QueueState(5, 1), "t-1": QueueState(0, 1), "t-2": QueueState(3, 0), "t-3": EMPTY}
    assert ask(old, row("t-0"), row("t-1")) == ("t-0", "t-1", "t-2")


def test_a_busy_holder_is_left_alone() -> None:
    """If it were revoked, it would return what was prefetched, which counts as a failed delivery."""
    old = {"t-0": QueueState(0, 1), "t-1": QueueState(0, 1)}
    assert ask(old, row("t-0", rank="1"), row("t-1")) == ("t-0", "t-1")


def test_idle_holders_are_asked_to_let_go() -> None:
    """Nothing is ready and no holder is busy: now it must be proven that nothing is unacknowledged."""
    assert ask({"t-0": QueueState(0, 1)}, row("t-0")) == ()


@pytest.mark.parametrize(
    ("old", "listed", "settled"),
    [
        ({"t-0": EMPTY}, [row("t-0", removing=True)], True),
        ({"t-0": QueueState(0, 1)}, [], True),
        ({"t-0": EMPTY}, [], False),
    ],
    ids=["still held", "a consumer is left", "not settled"],
)
def test_nothing_is_consumed_before_the_old_layout_is_proven_empty(
    old: dict[str, QueueState], listed: list[ResourceRow], settled: bool
) -> None:
    """A holder may still return messages, and so may a consumer's channel; or a message may still be on its way."""
    assert ask(old, *listed, settled=settled) == ()


def test_the_new_layout_is_consumed_when_the_old_one_is_empty() -> None:
    """Also if its queues are gone."""
    assert ask({"t-0": EMPTY}) == NEW
    assert ask({}) == NEW


def test_a_returned_message_brings_its_queue_back_first() -> None:
    """A holder returned what it could not finish in time."""
    assert ask({"t-0": QueueState(2, 0), "t-1": EMPTY}) == ("t-0",)


def test_after_the_switch_there_is_no_way_back() -> None:
    """A late message is processed in addition; the new layout is not revoked."""
    late = {"t-0": QueueState(1, 0), "t-1": EMPTY}
    assert ask(late, *(row(name) for name in NEW)) == ("t-0", *NEW)
    assert ask({"t-0": QueueState(0, 1)}, row("t-0"), *(row(name) for name in NEW)) == NEW


FULL, HELD = QueueState(3, 0), QueueState(0, 1)


def test_a_layout_that_is_worked_when_it_is_closed_is_worked_on() -> None:
    """What was the newest layout is then an old one. What comes into those before it is late."""
    assert ask_of_several([{"u-0": EMPTY}, {"t-0": QueueState(1, 1)}], row("t-0")) == ("t-0",)
    assert ask_of_several([{"u-0": FULL}, {"t-0": HELD, "t-1": FULL}], row("t-0")) == ("t-0", "t-1", "u-0")
    assert ask_of_several([{"u-0": EMPTY}, {"t-0": HELD}], row("t-0")) == ()


def test_closed_layouts_are_worked_one_after_the_other() -> None:
    """Each only when all before it are proven empty."""
    waits = {"t-0": FULL, "t-1": EMPTY}
    assert ask_of_several([{"u-0": FULL, "u-1": FULL}, waits]) == ("u-0", "u-1")
    assert ask_of_several([{"u-0": HELD}, waits], row("u-0", rank="1")) == ("u-0",)
    assert ask_of_several([{"u-0": HELD}, waits], row("u-0")) == ()
    assert ask_of_several([{"u-0": EMPTY}, waits], row("u-0", removing=True)) == ()
    assert ask_of_several([{"u-0": HELD}, waits]) == ()
    assert ask_of_several([{"u-0": EMPTY}, waits], settled=False) == ()
    assert ask_of_several([{"u-0": EMPTY}, waits]) == ("t-0",)
    assert ask_of_several([{"u-0": EMPTY}, {"t-0": EMPTY}, waits]) == ("t-0",)
    assert ask_of_several([{"u-0": EMPTY}, {"t-0": HELD}], row("t-0", removing=True)) == ()
    assert ask_of_several([{"u-0": EMPTY}, {"t-0": EMPTY}]) == NEW
