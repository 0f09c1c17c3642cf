"""Order by key, in virtual time: what may be begun, what waits, and what comes again after the end."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable

import attrs
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cobalance.rabbitmq.partition.acks import AckTracker, Progress
from cobalance.rabbitmq.partition.key_order import KeyOrder, Keys


@attrs.frozen
class Message:
    """A message as far as order is concerned."""

    tag: int
    key: Hashable


def order(*keys: str) -> KeyOrder[Message]:
    """An order with messages 1, 2, 3 … of these keys."""
    it = KeyOrder[Message]()
    for tag, key in enumerate(keys, 1):
        it.add(Message(tag, key))
    return it


def tags(order_: KeyOrder[Message], now: float = 0) -> list[int]:
    """Takes all that may be begun now."""
    taken = []
    while (message := order_.take(now)) is not None:
        taken.append(message.tag)
    return taken


def test_one_of_each_key_may_be_begun() -> None:
    """The oldest of each, oldest first; the next of a key when the one before it is finished."""
    it = order("a", "b", "a", "c", "b")
    assert tags(it) == [1, 2, 4]
    it.finish("b")
    assert tags(it) == [5]
    it.finish("a")
    assert tags(it) == [3]
    for key in ("a", "b", "c"):
        it.finish(key)
    assert not it


def test_what_failed_holds_up_its_key_alone() -> None:
    """It is tried again when it is due, before the next of its key."""
    it = order("a", "a", "b")
    first = it.take(0)
    assert first is not None
    it.put_back("a", [first], 100)
    assert tags(it) == [3]
    assert (it.next_in(40), it.is_ready(40), it.is_ready(100)) == (60, False, True)
    assert tags(it, 100) == [1]
    it.finish("a")
    assert tags(it) == [2]


def test_a_retry_that_is_due_takes_its_turn() -> None:
    """It is begun after what had arrived when it became due, and before what arrives later; of several, the first due."""
    it = order("a", "b", "c")
    first, second = it.take(0), it.take(0)
    assert first is not None
    assert second is not None
    it.put_back("b", [second], 50)
    it.put_back("a", [first], 60)
    it.add(Message(4, "a"))
    it.add(Message(5, "d"))
    third = it.take(60)
    assert third is not None
    it.add(Message(6, "e"))
    assert [third.tag, *tags(it, 60)] == [3, 5, 2, 1, 6]
    it.finish("a")
    assert tags(it, 60) == [4]


def test_neither_retries_nor_fresh_messages_are_starved() -> None:
    """A single handler, keys that always fail, and retries that are always due: the other keys have their turn, for ever."""
    it, begun = order("a", "b", "c", "d"), list[int]()
    for now in range(30):
        message = it.take(now)
        assert message is not None
        begun.append(message.tag)
        if message.key in {"a", "b", "c"}:
            it.put_back(message.key, [message], now)
        else:
            it.finish(message.key)
        if now % 2:
            it.add(Message(5 + now, f"fresh {now}"))
    assert 4 in begun[:4]
    for tag in (1, 2, 3):
        assert begun.count(tag) > 2
    assert len({tag for tag in begun if tag > 4}) > 5


def test_messages_of_one_key_may_be_taken_together() -> None:
    """A batch is of one key, and what is left unfinished of it comes first again."""
    it = order("a", "b", "a", "a")
    first = it.take(0)
    assert first is not None
    second = it.take_next("a")
    assert second is not None
    assert (first.tag, second.tag) == (1, 3)
    it.put_back("a", [second])
    assert tags(it) == [2, 3]
    it.finish("a")
    assert tags(it) == [4]


def test_a_key_has_no_more_than_it_has() -> None:
    """Taking the next one ends with the last."""
    it = order("a")
    it.take(0)
    assert it.take_next("a") is None


def test_what_was_not_begun_can_be_cleared() -> None:
    """What was taken stays until it is finished."""
    it = order("a", "a", "b")
    it.take(0)
    assert sorted(message.tag for message in it.clear()) == [2, 3]
    it.finish("a")
    assert not it
    assert it.take(0) is None
    assert it.next_in(0) is None


class World:
    """A partition worked by key, by several handlers, with the acks that go with it."""

    def __init__(self, keys: list[int], failures: list[int]) -> None:
        self.keys, self.failures = keys, list(failures)
        self.held = set(range(1, len(keys) + 1))  # by RabbitMQ, unacknowledged
        self.fresh = deque(range(1, len(keys) + 1))
        self.running: list[Message] = []
        self.done: list[int] = []
        self.order, self.acks, self.now = KeyOrder[Message](), AckTracker(3, ahead=True), 0

    def deliver(self, _: int) -> None:
        """The next message arrives."""
        if self.fresh:
            tag = self.fresh.popleft()
            self.acks.deliver(1)
            self.order.add(Message(tag, self.keys[tag - 1]))

    def begin(self, _: int) -> None:
        """Another handler begins."""
        message = self.order.take(self.now)
        if message is not None:
            assert all(it.key != message.key for it in self.running), "two of one key"
            self.running.append(message)

    def end(self, which: int) -> None:
        """A handler ends, having failed as often as planned for the message."""
        if not self.running:
            return
        message = self.running.pop(which % len(self.running))
        if self.failures[message.tag - 1]:
            self.failures[message.tag - 1] -= 1
            self.order.put_back(message.key, [message], self.now + 2)
            return
        self.done.append(message.tag)
        self.order.finish(message.key)
        if self.acks.done(message.tag):
            self.flush(0)

    def flush(self, _: int) -> None:
        """RabbitMQ would refuse tags that it does not hold."""
        flush = self.acks.flush()
        for tag in flush.singles:
            assert tag in self.held
            self.held.discard(tag)
        if flush.ack is not None:
            assert flush.ack in self.held
            self.held = {tag for tag in self.held if tag > flush.ack}

    def tick(self, _: int) -> None:
        """Time passes."""
        self.now += 1

    def close(self) -> None:
        """The partition is asked back: what was begun ends, the rest returns to the queue."""
        left = self.order.clear()
        while self.running:
            message = self.running[-1]
            self.end(-1)
            if message.tag not in self.done:
                left += self.order.clear()
        for message in left:
            self.acks.put_back(message.tag)
        self.flush(0)


STEPS = ["deliver", "begin", "end", "flush", "tick"]


@pytest.mark.parametrize("examples", [100, pytest.param(3_000, marks=pytest.mark.thorough)])
def test_order_holds_within_keys_and_exactly_the_unfinished_comes_again(examples: int) -> None:
    """Whatever fails and how often, however many run side by side, whenever acks are sent, and wherever it is stopped."""

    @settings(max_examples=examples, deadline=None)
    @given(st.data())
    def check(data: st.DataObject) -> None:
        count = data.draw(st.integers(1, 12))
        keys = data.draw(st.lists(st.integers(0, 3), min_size=count, max_size=count))
        failures = data.draw(st.lists(st.integers(0, 2), min_size=count, max_size=count))
        world = World(keys, failures)
        for step, which in data.draw(st.lists(st.tuples(st.sampled_from(STEPS), st.integers(0, 5)), max_size=60)):
            getattr(world, step)(which)
        delivered = world.acks.delivered
        world.close()
        assert world.acks.idle
        assert world.acks.progress == Progress(len(world.done), len(world.done))
        assert world.held == set(range(1, count + 1)) - set(world.done)
        assert set(world.done) <= set(range(1, delivered + 1))
        for key in set(keys):
            of_key = [tag for tag in world.done if keys[tag - 1] == key]
            assert of_key == [tag for tag in range(1, count + 1) if keys[tag - 1] == key][: len(of_key)]

    check()


def test_keys_that_are_equal_are_one_until_they_are_forgotten() -> None:
    """Whatever their values are, or become: those are compared only where a message arrives."""

    class Changing:
        def __init__(self, number: int) -> None:
            self.number = number

        def __hash__(self) -> int:
            return self.number

        def __eq__(self, other: object) -> bool:
            return isinstance(other, Changing) and self.number == other.number

    it, value = Keys(), Changing(1)
    one, other, plain = it.find(value), it.find(Changing(2)), it.find(1)
    assert it.find(Changing(1)) is one
    assert len({one, other, plain, it.find(1.0), it.find("1")}) == 4
    value.number = 2
    it.forget(one)
    assert it.find(Changing(2)) is other
    it.forget(other)
    assert len(it) == 2
