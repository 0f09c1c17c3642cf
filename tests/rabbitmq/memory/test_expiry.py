"""Messages and queues that expire, and consumers that take too long."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import attrs
import pytest
from pika.spec import Basic, BasicProperties
from tests.names import unique
from tests.rabbitmq.memory.clients import Place, Refused

from cobalance.rabbitmq.memory import MemoryRabbitMQ

QUEUES = ["classic", "quorum"]


def mortal(at: Place, kind: str, **arguments: Any) -> tuple[str, str]:
    """A queue whose dead letters go to a second one."""
    dead = at.queue("classic", ".dead")
    return at.queue(kind, x_dead_letter_exchange="", x_dead_letter_routing_key=dead, **arguments), dead


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.parametrize(("of_message", "of_queue"), [("1", None), (None, 1), ("1", 60_000), ("60000", 1)], ids=str)
def test_a_message_expires(at: Place, kind: str, of_message: str | None, of_queue: int | None) -> None:
    """By its own expiration or the queue's, whichever is sooner; it is dead-lettered, with the reason."""
    arguments = {} if of_queue is None else {"x_message_ttl": of_queue}
    (queue, dead), client = mortal(at, kind, **arguments), at.client()
    client.publish(queue, "late", expiration=of_message)
    got = client.wait_for(dead)
    (death,) = got.headers["x-death"]
    assert (got.body, death["reason"], death["queue"], death["count"]) == ("late", "expired", queue, 1)
    assert death.get("original-expiration") == of_message
    assert got.properties.expiration is None
    assert client.get(queue) is None


@pytest.mark.parametrize("kind", QUEUES)
def test_a_message_expires_only_at_the_head(at: Place, kind: str) -> None:
    """Behind others it waits for them, as long as it takes."""
    (queue, dead), client = mortal(at, kind), at.client()
    client.publish(queue, "first")
    client.publish(queue, "second", expiration="1")
    other = at.queue(kind, ".other", x_dead_letter_exchange="", x_dead_letter_routing_key=dead)
    client.publish(other, "witness", expiration="1")
    assert client.wait_for(dead).body == "witness"
    assert client.ready(queue) == 2
    got = client.get(queue)
    assert got is not None
    assert got.body == "first"
    assert client.wait_for(dead).body == "second"


def test_a_message_that_expires_at_once_reaches_a_waiting_consumer(at: Place) -> None:
    """And nobody else."""
    queue, client = at.queue("classic", x_message_ttl=0), at.client()
    client.publish(queue, "1")
    client.consume(queue)
    client.publish(queue, "2")
    assert client.bodies(1) == ["2"]


def test_messages_do_not_circle_by_themselves(at: Place) -> None:
    """What came from a queue is not dead-lettered there again unless a consumer has rejected it in between."""
    main, retry = f"{at.name}.main", f"{at.name}.retry"
    at.queue("classic", ".main", x_dead_letter_exchange="", x_dead_letter_routing_key=retry)
    at.queue("classic", ".retry", x_dead_letter_exchange="", x_dead_letter_routing_key=main, x_message_ttl=1)
    client = at.client()
    client.publish(main, "again")
    for _ in range(3):
        client.settle(Basic.Reject(client.wait_for(main).tag, requeue=False))
    client.wait_for(main)
    alone = at.queue("classic", x_message_ttl=1, x_dead_letter_exchange="", x_dead_letter_routing_key=at.name)
    client.publish(alone, "once")
    client.until(lambda: client.ready(alone) == 0)


@pytest.mark.parametrize(
    ("value", "words"),
    [("5", '"expected integer, got longstr"'), (-5, "{value_negative,-5}")],
    ids=["text", "negative"],
)
@pytest.mark.parametrize("argument", ["x_message_ttl", "x_expires"])
def test_durations_are_checked(at: Place, argument: str, value: Any, words: str) -> None:
    """Those of queues and those of messages."""
    name = argument.replace("_", "-")
    refused = at.refusal(lambda it: it.queue_declare(at.name, arguments={name: value}))
    where = f"invalid arg '{name}' for queue '{at.name}' in vhost '/'"
    assert refused == Refused(406, f"PRECONDITION_FAILED - {where}: {words}")
    queue = at.queue("classic")
    properties = BasicProperties(expiration="soon")
    refused = at.refusal(lambda it: it.basic_publish("", queue, b"", properties))
    assert refused == Refused(406, "PRECONDITION_FAILED - invalid expiration 'soon': no_integer")


@pytest.mark.parametrize("kind", QUEUES)
def test_a_queue_expires_that_nobody_uses(at: Place, kind: str) -> None:
    """RabbitMQ looks at quorum queues every few seconds."""
    queue, client = at.queue(kind, x_expires=1), at.client()
    client.until(lambda: at.is_gone(queue))


def test_a_queue_with_a_consumer_does_not_expire(at: Place) -> None:
    """Until that has gone."""
    user = at.client()
    used = at.queue("classic", x_expires=500)
    tag = user.consume(used, prefetch=1)
    witness = at.queue("classic", ".witness", x_expires=500)
    user.until(lambda: at.is_gone(witness))
    user.publish(used, "1")
    user.take(1)
    user.settle(Basic.Ack(1))
    user.channel.basic_cancel(tag)
    user.until(lambda: at.is_gone(used))


@attrs.frozen
class Impatient:
    """A RabbitMQ with a short consumer timeout."""

    at: Place
    timeout_ms: int
    let_time_pass: Callable[[], object]


@pytest.fixture(params=["memory", "rabbitmq"])
def impatient(request: pytest.FixtureRequest) -> Any:
    """In memory, the clock is advanced."""
    if request.param == "memory":
        server = MemoryRabbitMQ.named(unique("m"))
        place = Place(server.url)
        yield Impatient(place, 1_800_000, lambda: server.advance(1_800_000))
    else:
        place = Place(request.getfixturevalue("impatient_rabbitmq").url)
        yield Impatient(place, 2_000, lambda: None)
    place.close()


@pytest.mark.parametrize("kind", QUEUES)
@pytest.mark.thorough
def test_a_consumer_that_takes_too_long_loses_its_channel(impatient: Impatient, kind: str) -> None:
    """The message goes to another; the connection stays."""
    at = impatient.at
    queue, client = at.filled(kind, 1), at.client()
    client.consume(queue, prefetch=1)
    client.take(1)
    refused = client.refusal(lambda _: impatient.let_time_pass())
    assert refused.code == 406
    assert refused.text.startswith(
        "PRECONDITION_FAILED - delivery acknowledgement on channel 1 timed out. "
        f"Timeout value used: {impatient.timeout_ms} ms. This timeout value can be configured"
    )
    assert at.client().wait_for(queue).redelivered
