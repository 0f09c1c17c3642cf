"""Who is served: exclusive consumers, a single active one, and how much at a time."""

from __future__ import annotations

from typing import Any

import pytest
from pika.spec import Basic
from tests.rabbitmq.memory.clients import Place, Refused

QUEUES = ["classic", "quorum"]


def exclusive_use(queue: str) -> Refused:
    return Refused(403, f"ACCESS_REFUSED - queue '{queue}' in vhost '/' in exclusive use")


@pytest.mark.parametrize("exclusive", [True, False])
@pytest.mark.parametrize("connection", ["same", "other"])
def test_an_exclusive_consumer_keeps_others_out(at: Place, connection: str, exclusive: bool) -> None:
    """Of its own connection, too. Its own channel goes on, and basic.get is no consumer."""
    queue, holder = at.filled("classic", 2), at.client()
    holder.consume(queue, prefetch=1, exclusive=True)
    assert holder.bodies(1) == ["1"]
    other = holder.connection.channel() if connection == "same" else at.client().channel
    with pytest.raises(Exception, match="in exclusive use") as raised:
        other.basic_consume(queue, print, exclusive=exclusive)
    assert Refused(*raised.value.args) == exclusive_use(queue)
    got = at.client().get(queue)
    assert got is not None
    assert got.body == "2"
    holder.channel.basic_ack(1)
    holder.publish(queue, "3")
    assert holder.bodies(1) == ["3"]


def test_nobody_becomes_exclusive_beside_others(at: Place) -> None:
    """Only once they are gone."""
    queue, holder = at.queue("classic"), at.client()
    tag = holder.consume(queue)
    assert at.refusal(lambda it: it.basic_consume(queue, print, exclusive=True)) == exclusive_use(queue)
    holder.channel.basic_cancel(tag)
    at.client().consume(queue, exclusive=True)


def test_classic_queues_have_one_guard(at: Place) -> None:
    """Nobody is exclusive on a queue with a single active consumer."""
    queue = at.queue("classic", x_single_active_consumer=True)
    assert at.refusal(lambda it: it.basic_consume(queue, print, exclusive=True)) == exclusive_use(queue)


@pytest.mark.parametrize("single", [True, False])
def test_quorum_queues_ignore_that_a_consumer_is_exclusive(at: Place, single: bool) -> None:
    """And serve everybody, in turn or one alone."""
    arguments: dict[str, Any] = {"x_single_active_consumer": True} if single else {}
    queue = at.queue("quorum", **arguments)
    first, second = at.client(), at.client()
    for client in (first, second):
        client.consume(queue, exclusive=True, prefetch=1)
    first.publish(queue, "1", "2")
    assert first.bodies(1) == ["1"]
    if single:
        assert second.ready(queue) == 1
        first.channel.basic_ack(1)
        assert first.bodies(1) == ["2"]
    else:
        assert second.bodies(1) == ["2"]


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize("end", ["cancel", "close", "disconnect", "cut"])
def test_a_single_active_consumer_is_followed_by_the_next(at: Place, kind: str, end: str) -> None:
    """In the order in which they subscribed. A waiting one that has gone is passed over."""
    queue = at.queue(kind, x_single_active_consumer=True)
    clients = [at.client() for _ in range(4)]
    tags = [it.consume(queue) for it in clients]
    clients[1].close_channel()
    publisher = at.client()
    for number, client in enumerate(clients):
        if number == 1:
            continue
        publisher.publish(queue, number)
        assert client.bodies(1) == [str(number)]
        client.settle(Basic.Ack(1))
        if end == "cancel":
            client.channel.basic_cancel(tags[number])
        elif end == "close":
            client.close_channel()
        elif end == "disconnect":
            client.disconnect()
        else:
            client.cut()
    assert all(len(it.got) == 1 for it in clients if it is not clients[1])


@pytest.mark.parametrize("kind", QUEUES)
def test_a_cancelled_consumer_may_acknowledge(at: Place, kind: str) -> None:
    """While the next one is served what comes behind.

    The next one comes afterwards here. If the active consumer of a classic queue in RabbitMQ 3.10 is cancelled while
    messages are ready and another one waits, nobody is served, and the next message published crashes the queue.
    """
    queue, first, second = at.filled(kind, 4, x_single_active_consumer=True), at.client(), at.client()
    first.consume(queue, prefetch=2)
    assert first.bodies(2) == ["1", "2"]
    first.cancel()
    second.consume(queue, prefetch=10)
    assert second.bodies(2) == ["3", "4"]
    first.settle(Basic.Ack(1))
    first.close_channel()
    assert second.bodies(1) == ["2"]


@pytest.mark.parametrize("kind", QUEUES)
def test_a_prefetch_is_a_consumer_s(at: Place, kind: str) -> None:
    """Each on the channel has as many, those set before it subscribed."""
    queue, client = at.queue(kind), at.client()
    client.consume(queue, prefetch=2)
    client.publish(queue, *range(1, 8))
    client.consume(queue, prefetch=3)
    assert sorted(client.bodies(5)) == ["1", "2", "3", "4", "5"]
    assert client.ready(queue) == 2
    client.settle(Basic.Ack(1))
    assert client.bodies(1) == ["6"]
    assert client.ready(queue) == 1
    client.settle(Basic.Ack(0, True))
    assert client.bodies(1) == ["7"]


@pytest.mark.parametrize("kind", QUEUES)
def test_consumers_take_turns(at: Place, kind: str) -> None:
    """As long as they have room."""
    queue, first, second = at.queue(kind), at.client(), at.client()
    first.consume(queue, prefetch=2)
    second.consume(queue, prefetch=2)
    first.publish(queue, *range(4))
    assert sorted(first.bodies(2) + second.bodies(2)) == ["0", "1", "2", "3"]


@pytest.mark.parametrize("kind", QUEUES)
def test_a_consumer_with_a_higher_priority_is_served_first(at: Place, kind: str) -> None:
    """As long as it has room. Those with the same priority take turns; a consumer without one has 0."""
    queue, publisher = at.queue(kind), at.client()
    low, none, high, other = at.client(), at.client(), at.client(), at.client()
    low.consume(queue, prefetch=5, arguments={"x-priority": -1})
    none.consume(queue, prefetch=1)
    for it in (high, other):
        it.consume(queue, prefetch=1, arguments={"x-priority": 7})
    publisher.publish(queue, *range(1, 6))
    assert sorted(high.bodies(1) + other.bodies(1)) == ["1", "2"]
    assert none.bodies(1) == ["3"]
    assert low.bodies(2) == ["4", "5"]
    high.settle(Basic.Ack(1))
    publisher.publish(queue, 6, 7)
    assert high.bodies(1) == ["6"]
    assert low.bodies(1) == ["7"]


@pytest.mark.parametrize("kind", QUEUES)
def test_of_those_that_wait_the_one_with_the_highest_priority_is_next(at: Place, kind: str) -> None:
    """The active one stays active, whatever priority others have. A quorum queue of RabbitMQ 3.10 goes by who came first."""
    if kind == "quorum" and at.version >= (3, 11):
        pytest.skip("these look at priorities")
    queue, publisher = at.queue(kind, x_single_active_consumer=True), at.client()
    active, plain, high = at.client(), at.client(), at.client()
    active.consume(queue)
    plain.consume(queue)
    high.consume(queue, arguments={"x-priority": 1})
    publisher.publish(queue, 1)
    assert active.bodies(1) == ["1"]
    active.settle(Basic.Ack(1))
    active.close_channel()
    publisher.publish(queue, 2)
    second, last = (high, plain) if kind == "classic" else (plain, high)
    assert second.bodies(1) == ["2"]
    second.settle(Basic.Ack(1))
    second.close_channel()
    publisher.publish(queue, 3)
    assert last.bodies(1) == ["3"]


def test_a_channel_hands_its_queue_over_to_itself(at: Place) -> None:
    """By a second consumer with a higher priority, before the first one is cancelled. All goes back in its order."""
    queue, holder, following = at.filled("quorum", 5, x_single_active_consumer=True), at.client(), at.client()
    first: Any = holder.consume(queue, prefetch=2, consumer_tag="1")  # by tag in RabbitMQ 3.10
    assert holder.bodies(2) == ["1", "2"]
    holder.consume(queue, prefetch=2, consumer_tag="2", arguments={"x-priority": 1})
    holder.settle(Basic.Cancel(first))
    assert holder.bodies(2) == ["3", "4"]
    holder.close_channel()
    following.consume(queue)
    assert following.bodies(5) == ["1", "2", "3", "4", "5"]


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize(("priority", "type_"), [("high", "longstr"), (True, "bool")])
def test_a_priority_is_an_integer(at: Place, kind: str, priority: Any, type_: str) -> None:
    """Negative ones, too."""
    queue = at.queue(kind)
    refused = at.refusal(lambda it: it.basic_consume(queue, print, arguments={"x-priority": priority}))
    where = f"invalid arg 'x-priority' for queue '{queue}' in vhost '/'"
    assert refused == Refused(406, f'PRECONDITION_FAILED - {where}: "expected integer, got {type_}"')


def test_streams_have_no_priorities(at: Place) -> None:
    """They serve everybody."""
    queue, client = at.queue("stream"), at.client()
    where = f"invalid arg 'x-priority' for queue '{queue}' in vhost '/'"
    refused = client.refusal(lambda _: client.consume(queue, prefetch=1, arguments={"x-priority": 1}))
    assert refused == Refused(406, f"PRECONDITION_FAILED - {where} of queue type rabbit_stream_queue")


@pytest.mark.parametrize("kind", QUEUES)
def test_without_acks_everything_comes(at: Place, kind: str) -> None:
    """Whatever the prefetch; it is gone with the channel."""
    queue, client = at.filled(kind, 5), at.client()
    client.consume(queue, prefetch=1, auto_ack=True)
    assert client.bodies(5) == ["1", "2", "3", "4", "5"]
    client.close_channel()
    assert at.client().get(queue) is None


@pytest.mark.parametrize("kind", QUEUES)
def test_basic_get_fetches_one(at: Place, kind: str) -> None:
    """With the number of those left. Unless it is acknowledged, it returns with the end of the channel."""
    queue, client = at.filled(kind, 3), at.client()
    fetched: Any = client.channel.basic_get(queue)
    method, _, body = fetched
    assert (body, method.message_count, method.redelivered, method.routing_key) == (b"1", 2, False, queue)
    client.channel.basic_get(queue, auto_ack=True)
    client.close_channel()
    again = at.client()
    got = again.wait_for(queue)
    assert (got.body, got.redelivered) == ("1", True)
    assert again.wait_for(queue).body == "3"
    assert again.get(queue) is None


def test_a_consumer_tag_is_used_once(at: Place) -> None:
    """On a channel. Twice ends the connection."""
    queue, client = at.queue("classic"), at.client()
    client.consume(queue, consumer_tag="mine")
    again = Basic.Consume(queue=queue, consumer_tag="mine")
    refused = client.refusal(lambda it: it._impl._send_method(again))  # type: ignore[attr-defined]
    assert refused == Refused(530, "NOT_ALLOWED - attempt to reuse consumer tag 'mine'", whole_connection=True)


def test_only_streams_have_offsets(at: Place) -> None:
    """A consumer of another queue that asks for one is refused."""
    queue = at.queue("classic")
    refused = at.refusal(lambda it: it.basic_consume(queue, print, arguments={"x-stream-offset": "first"}))
    where = f"invalid arg 'x-stream-offset' for queue '{queue}' in vhost '/'"
    assert refused == Refused(406, f"PRECONDITION_FAILED - {where} of queue type rabbit_classic_queue")
