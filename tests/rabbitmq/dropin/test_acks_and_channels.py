"""Acknowledgements and channels of drop-in programs: order, tags, prefetch, and whose consumers end."""

from __future__ import annotations

import queue
import threading
import time
from typing import Any

import pytest
from pika import exceptions as pika_errors
from tests.rabbitmq.dropin.parts import DEADLINE_S, Broker, Handled, Program, connect, consume, ends

from cobalance.errors import UsageError
from cobalance.group.tenure import Tenure
from cobalance.rabbitmq.consume.dead_letter_target import Target
from cobalance.rabbitmq.dropin.connection import GroupConnection
from cobalance.settings import MemberSettings


@pytest.mark.parametrize("refuse", ["basic_nack", "basic_reject"])
def test_requeue_keeps_the_order(broker: Broker, group: str, refuse: str) -> None:
    """A refused message is handled again, as redelivered, before any younger one; other queues go on."""
    names = broker.declare(2)
    broker.publish(names[0], *range(5))
    broker.publish(names[1], *range(5))
    seen: list[tuple[str, int, bool]] = []

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((method.routing_key, int(body), method.redelivered))
        if method.routing_key == names[0] and body == b"2" and len(seen) < 10:
            getattr(channel, refuse)(method.delivery_tag)
        else:
            channel.basic_ack(method.delivery_tag)
        if len(seen) == 12:
            channel.stop_consuming()

    # Two refusals fit before the tenth message, because the lane waits 0.1 s and then 0.2 s while the other queue goes
    # on.
    with connect(broker, group) as connection:
        consume(connection, names, on_message)
        while sum(1 for name, number, _ in seen if (name, number) == (names[0], 4)) == 0:
            connection.process_data_events(time_limit=0.05)
    steps = [(number, again) for name, number, again in seen if name == names[0]]
    tries = [step for step in steps if step[0] == 2]
    assert tries[0] == (2, False)
    assert len(tries) > 1
    assert set(tries[1:]) == {(2, True)}
    assert [number for number, _ in steps] == [0, 1, *[2] * len(tries), 3, 4]
    assert [number for name, number, _ in seen if name == names[1]] == [0, 1, 2, 3, 4]
    assert broker.left(names[0]) == []


def test_rejected_messages_are_dead_lettered(broker: Broker, group: str) -> None:
    """basic_nack and basic_reject without requeue."""
    (dead,) = broker.declare(1)
    (name,) = broker.declare(1, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    broker.publish(name, *range(4))

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        if body == b"1":
            channel.basic_reject(method.delivery_tag, requeue=False)
        elif body == b"2":
            channel.basic_nack(method.delivery_tag, requeue=False)
        else:
            channel.basic_ack(method.delivery_tag)
        if body == b"3":
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [name], on_message).start_consuming()
    assert broker.left(name) == []
    assert [body for body, _ in broker.left(dead)] == ["1", "2"]


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
@pytest.mark.parametrize("odd", ["no death", "no count"])
def test_a_message_over_which_rabbitmq_s_reject_fails_is_dead_lettered(
    broker: Broker, group: str, queue_type: str, odd: str
) -> None:
    """Any publisher can make up x-death. RabbitMQ would lose the message, or the queue."""
    (dead,) = broker.declare(1)
    target = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead}
    (name,) = broker.declare(1, **target, **{"x-queue-type": queue_type, "x-single-active-consumer": True})
    deaths = [1] if odd == "no death" else [{"queue": name, "reason": "rejected", "count": "x"}]
    broker.publish(name, "odd", headers={"x-death": deaths})
    broker.publish(name, "last")

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        channel.basic_reject(method.delivery_tag, requeue=False)
        if body == b"last":
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [name], on_message).start_consuming()
    assert sorted(body for body, _ in broker.left(dead)) == ["last", "odd"]
    assert broker.ready(name) == 0


@pytest.mark.parametrize("refuse", ["basic_nack", "basic_reject"])
def test_a_message_whose_rejection_failed_can_be_settled_again(
    broker: Broker, group: str, refuse: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whether the target exists could not be asked: the program still has the message."""
    (dead,) = broker.declare(1)
    (name,) = broker.declare(1, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    broker.publish(name, 1)

    def is_cut_off(*_: object) -> bool:
        raise pika_errors.ChannelWrongStateError("lost")

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(Target, "is_there", is_cut_off)
            with pytest.raises(pika_errors.ChannelWrongStateError):
                getattr(channel, refuse)(method.delivery_tag, requeue=False)
        getattr(channel, refuse)(method.delivery_tag, requeue=False)
        channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [name], on_message).start_consuming()
    assert broker.left(name) == []
    assert [body for body, _ in broker.left(dead)] == ["1"]


def test_one_ack_covers_all_earlier_messages_of_its_channel(broker: Broker, group: str) -> None:
    """One ack covers all earlier messages of all queues of its channel, as in pika; a tag can be used once."""
    names = broker.declare(2)
    for name in names:
        broker.publish(name, *range(3))
    tags: list[int] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        tags.append(method.delivery_tag)
        if len(tags) == 5:
            channel.basic_ack(method.delivery_tag, multiple=True)
            with pytest.raises(UsageError, match="unknown"):
                channel.basic_ack(tags[0])
        if len(tags) == 6:
            channel.basic_ack(0, multiple=True)
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, names, on_message).start_consuming()
    assert [broker.left(name) for name in names] == [[], []]


SETTLING = {"ack": ("basic_ack", {}), "nack": ("basic_nack", {"requeue": False})}


@pytest.mark.parametrize("is_all", [False, True], ids=["up to a tag", "all"])
@pytest.mark.parametrize("how", SETTLING)
def test_multiple_ends_at_its_channel(broker: Broker, group: str, how: str, is_all: bool) -> None:
    """What another channel has not acknowledged stays unacknowledged, however much older it is."""
    (dead,) = broker.declare(1)
    older, younger = broker.declare(2, **{"x-dead-letter-exchange": "", "x-dead-letter-routing-key": dead})
    broker.publish(older, "a", "b")
    seen: list[str] = []

    def keep(_: Any, __: Any, ___: Any, body: bytes) -> None:
        seen.append(body.decode())
        if len(seen) == 2:
            broker.publish(younger, "c", "d")

    def settle(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append(body.decode())
        if body == b"d":
            name, options = SETTLING[how]
            getattr(channel, name)(0 if is_all else method.delivery_tag, multiple=True, **options)
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [older], keep)
        consume(connection, [younger], settle).start_consuming()
    assert seen == ["a", "b", "c", "d"]
    assert broker.left(younger) == []
    assert [body for body, _ in broker.left(dead)] == (["c", "d"] if how == "nack" else [])
    assert broker.left(older) == [("a", True), ("b", True)]


def test_what_is_not_acknowledged_goes_back_in_order(broker: Broker, group: str) -> None:
    """As with pika, closing returns it to the queue; the process still leaves at once."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(6))

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        if int(body) < 2:
            channel.basic_ack(method.delivery_tag)
        if body == b"4":
            channel.stop_consuming()

    with connect(broker, group, member=MemberSettings(drain_timeout_ms=60_000)) as connection:
        consume(connection, [name], on_message).start_consuming()
    assert broker.left(name) == [("2", True), ("3", True), ("4", True), ("5", True)]
    assert ends(group) == {"released": 1}


@pytest.mark.parametrize("unacknowledged", [["0"], ["1", "3"], ["0", "1", "2", "3"]], ids="-".join)
def test_gaps_go_back_when_the_program_closes(broker: Broker, group: str, unacknowledged: list[str]) -> None:
    """Nobody can acknowledge any more, so leaving does not wait for it; younger messages stay acknowledged."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(4))

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        if body.decode() not in unacknowledged:
            channel.basic_ack(method.delivery_tag)
        if body == b"3":
            channel.stop_consuming()

    with connect(broker, group, member=MemberSettings(drain_timeout_ms=60_000)) as connection:
        consume(connection, [name], on_message).start_consuming()
    assert ends(group) == {"released": 1}
    assert broker.left(name) == [(body, True) for body in unacknowledged]


def test_a_message_to_be_handled_again_behind_an_acknowledged_one_moves_with_its_queue(
    broker: Broker, group: str
) -> None:
    """A revocation does not wait for it: the next holder gets it."""
    names = broker.declare(2)
    for name in names:
        broker.publish(name, "a", "b")
    handled: Handled = queue.SimpleQueue()
    first = Refusing(broker, group, names, handled)
    assert sorted(handled.get(timeout=DEADLINE_S)[2] for _ in names) == ["b", "b"]
    second = Program(broker, group, names, handled)
    who, _, body = handled.get(timeout=DEADLINE_S)
    assert (who, body) == (second, "a")
    assert ends(group) == {"released": 1}
    first.stop()
    assert handled.get(timeout=DEADLINE_S)[::2] == (second, "a")
    second.stop()
    assert [broker.left(name) for name in names] == [[], []]


def test_no_transaction_on_a_channel_that_consumes(broker: Broker, group: str) -> None:
    """The group acknowledges on connections of its own, so a rollback could not undo it: each order of the two calls is
    refused, also between a stop and the last acknowledgement. Without consuming, a channel's transactions are pika's.
    """
    (name, out), refusal = broker.declare(2), r"tx_select.*confirm_delivery.*channel of its own"
    broker.publish(name, "a")
    taken: list[int] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        taken.append(method.delivery_tag)
        channel.stop_consuming()
        with pytest.raises(UsageError, match=refusal):
            channel.tx_select()

    with connect(broker, group) as connection:
        publishing = connection.channel()
        publishing.tx_select()
        with pytest.raises(UsageError, match=refusal):
            publishing.basic_consume(name, on_message)
        consuming = consume(connection, [name], on_message)
        with pytest.raises(UsageError, match=refusal):
            consuming.tx_select()
        consuming.start_consuming()
        consuming.confirm_delivery()
        consuming.basic_publish("", out, b"undone by no rollback")
        publishing.basic_publish("", out, b"undone")
        publishing.tx_rollback()
        publishing.basic_publish("", out, b"done")
        publishing.tx_commit()
    assert taken == [1]
    assert broker.left(name) == [("a", True)]
    assert [body for body, _ in broker.left(out)] == ["undone by no rollback", "done"]


class Refusing(Program):
    """A program that acknowledges b, and asks for a again, time after time."""

    def __init__(self, *args: Any) -> None:
        self._refused: dict[str, int] = {}
        super().__init__(*args)

    def on_message(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        """Refuses a once b is acknowledged, and from then on."""
        if body == b"b":
            super().on_message(channel, method, properties, body)
            channel.basic_nack(self._refused[method.routing_key])
        elif method.redelivered:
            channel.basic_nack(method.delivery_tag)
        self._refused[method.routing_key] = method.delivery_tag


def test_acknowledging_from_other_threads(broker: Broker, group: str) -> None:
    """As pika recommends for long tasks: threads acknowledge through the connection, also after stop_consuming."""
    (name,) = broker.declare(1)
    broker.publish(name, *range(5))
    stopped = threading.Event()
    threads = []

    def work(channel: Any, tag: int) -> None:
        assert stopped.wait(DEADLINE_S)
        channel.connection.add_callback_threadsafe(lambda: channel.basic_ack(tag))

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        threads.append(threading.Thread(target=work, args=(channel, method.delivery_tag)))
        threads[-1].start()
        if len(threads) == 5:
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [name], on_message).start_consuming()
        stopped.set()
        for thread in threads:
            thread.join()
    assert broker.left(name) == []


def test_a_callback_may_use_a_channel_of_its_own(broker: Broker, group: str) -> None:
    """For example to publish on: stopping or closing a channel that consumes nothing ends only that channel."""
    source, target = broker.declare(2)
    broker.publish(source, *range(3))

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        with connection.channel() as other:
            other.basic_publish("", target, body)
            other.stop_consuming()
        channel.basic_ack(method.delivery_tag)
        if body == b"2":
            channel.stop_consuming()

    with connect(broker, group) as connection:
        consume(connection, [source], on_message).start_consuming()
    assert [body for body, _ in broker.left(target)] == ["0", "1", "2"]
    assert broker.left(source) == []


def test_a_closed_channel_consumes_nothing(broker: Broker, group: str) -> None:
    """Its queues leave the group, whether consuming has begun or not."""
    names = broker.declare(2)
    for name in names:
        broker.publish(name, "a")
    seen: list[str] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        seen.append(method.routing_key)
        channel.basic_ack(method.delivery_tag)
        channel.close()

    with connect(broker, group) as connection:
        closed, kept = (consume(connection, [name], on_message) for name in names)
        closed.close()
        kept.start_consuming()
        assert not kept.is_open
    assert seen == names[1:]
    assert [broker.ready(name) for name in names] == [1, 0]


def test_each_channel_counts_its_own_tags(broker: Broker, group: str) -> None:
    """From 1, so that a program may acknowledge every tenth message; no channel knows the tags of another."""
    names = broker.declare(2)
    broker.publish(names[0], *range(3))
    broker.publish(names[1], *range(3))
    tags: dict[str, list[int]] = {name: [] for name in names}

    def on_message(_: Any, method: Any, __: Any, ___: bytes) -> None:
        tags[method.routing_key].append(method.delivery_tag)
        if sum(map(len, tags.values())) == 6:
            first.stop_consuming()

    with connect(broker, group) as connection:
        first, second = (consume(connection, [name], on_message) for name in names)
        first.start_consuming()
        first.basic_ack(3)
        with pytest.raises(UsageError, match="unknown"):
            first.basic_ack(3)
        second.basic_ack(3, multiple=True)
        first.basic_ack(2, multiple=True)
    assert list(tags.values()) == [[1, 2, 3]] * 2
    assert [broker.left(name) for name in names] == [[], []]


def test_each_channel_has_its_own_prefetch(broker: Broker, group: str) -> None:
    """It holds for consumers that begin afterwards, as in RabbitMQ: a batch of 20 fits beside a channel of one by one."""
    batched, single = broker.declare(2)
    broker.publish(batched, *range(20))
    broker.publish(single, *range(3))
    seen: list[str] = []

    def on_message(_: Any, method: Any, __: Any, ___: bytes) -> None:
        seen.append(method.routing_key)
        if seen.count(batched) == 20 and single in seen:
            batches.stop_consuming()

    with connect(broker, group) as connection:
        batches, singles = connection.channel(), connection.channel()
        batches.basic_qos(prefetch_count=20)
        batches.basic_consume(batched, on_message)
        singles.basic_qos(prefetch_count=1)
        singles.basic_consume(single, on_message)
        batches.start_consuming()
        assert broker.ready(single) == 2
        batches.basic_ack(0, multiple=True)
    assert seen.count(single) == 1


def test_consumer_tags_belong_to_their_channel(broker: Broker, group: str) -> None:
    """Two channels may use the same one, and each cancels its own."""
    names = broker.declare(2)
    broker.publish(names[1], "a")
    seen: list[str] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        seen.append(method.routing_key)
        channel.basic_ack(method.delivery_tag)
        assert channel.basic_cancel("mine") == []

    with connect(broker, group) as connection:
        first, second = connection.channel(), connection.channel()
        for channel, name in zip((first, second), names, strict=True):
            channel.basic_consume(name, on_message, consumer_tag="mine")
        with pytest.raises(pika_errors.DuplicateConsumerTag):
            first.basic_consume(broker.declare(1)[0], on_message, consumer_tag="mine")
        assert (first.consumer_tags, second.consumer_tags) == (["mine"], ["mine"])
        first.basic_cancel("mine")
        assert (first.consumer_tags, second.consumer_tags) == ([], ["mine"])
        second.start_consuming()
        assert second.consumer_tags == []
    assert seen == [names[1]]


def test_a_channel_that_stops_does_not_stop_the_one_that_consumes(broker: Broker, group: str) -> None:
    """As in pika. What was not acknowledged comes again, and an acknowledgement under its old tag has no effect."""
    names = broker.declare(2)
    broker.publish(names[0], "a", "b")
    seen: list[tuple[str, int]] = []

    def on_first(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((body.decode(), method.delivery_tag))
        if len(seen) == 2:
            broker.publish(names[1], "c")
        elif len(seen) == 5:
            channel.basic_ack(1)
            channel.basic_ack(2, multiple=True)
            channel.basic_ack(3)
            channel.stop_consuming()

    def on_second(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen.append((body.decode(), method.delivery_tag))
        channel.basic_ack(method.delivery_tag)
        channel.stop_consuming()

    with connect(broker, group) as connection:
        channel = consume(connection, [names[0]], on_first)
        consume(connection, [names[1]], on_second)
        channel.start_consuming()
    assert seen == [("a", 1), ("b", 2), ("c", 1), ("a", 3), ("b", 4)]
    assert [broker.left(name) for name in names] == [[("b", True)], []]


@pytest.mark.parametrize("end", ["stop_consuming", "close"])
def test_the_end_of_one_channel_leaves_the_others_their_consumers(broker: Broker, group: str, end: str) -> None:
    """The next start_consuming joins the group with what is left."""
    names = broker.declare(2)
    seen: list[str] = []

    def on_message(channel: Any, method: Any, _: Any, __: bytes) -> None:
        seen.append(method.routing_key)
        channel.basic_ack(method.delivery_tag)
        getattr(channel, end)()

    with connect(broker, group) as connection:
        for name, channel in [(name, consume(connection, [name], on_message)) for name in names]:
            broker.publish(name, "a")
            channel.start_consuming()
    assert seen == names
    assert [broker.ready(name) for name in names] == [0, 0]


# -- failures ----------------------------------------------------------------------------------------------------------


def test_a_queue_that_is_kept_after_all_goes_on_with_what_is_unacknowledged(broker: Broker, group: str) -> None:
    """A program acknowledges ten messages at a time, and another one comes and goes: nothing is handled twice."""
    names = broker.declare(2)
    seen = {name: list[str]() for name in names}

    def on_message(channel: Any, method: Any, _: Any, body: bytes) -> None:
        seen[method.routing_key].append(body.decode())
        if len(seen[method.routing_key]) % 10 == 0:
            channel.basic_ack(method.delivery_tag, multiple=True)

    def work_until(condition: Any) -> None:
        end = time.monotonic() + DEADLINE_S
        while not condition():
            assert time.monotonic() < end, seen
            connection.process_data_events(time_limit=0.05)

    with connect(broker, group) as connection:
        for name in names:  # a channel each: `multiple` is about all of its messages
            consume(connection, [name], on_message)
        work_until(lambda: connection._membership is not None and len(tenures_of(connection)) == 2)
        for name in names:
            broker.publish(name, *range(5))
        work_until(lambda: all(len(it) == 5 for it in seen.values()))
        other = Program(broker, group, names, queue.SimpleQueue())
        work_until(lambda: not all(it.active for it in tenures_of(connection)))
        other.stop()
        work_until(lambda: all(it.active for it in tenures_of(connection)))
        for name in names:
            broker.publish(name, *range(5, 10))
        work_until(lambda: all(len(it) == 10 for it in seen.values()))
    assert seen == {name: [str(it) for it in range(10)] for name in names}
    assert ends(group) == {"released": 2}
    assert [broker.left(name) for name in names] == [[], []]


def tenures_of(connection: GroupConnection) -> list[Tenure]:
    """What the program's membership holds."""
    membership = connection._membership
    return [] if membership is None else [*membership._group.tenures.values()]
