"""Where messages go, and what their publisher hears."""

from __future__ import annotations

from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError
from pika.spec import Basic, BasicProperties
from tests.rabbitmq.memory.clients import Place, Refused


def test_a_mandatory_message_without_a_queue_comes_back(at: Place) -> None:
    """With 312, and it is confirmed all the same."""
    client = at.client()
    with pytest.raises(UnroutableError) as raised:
        client.publish("missing", "lost")
    (returned,) = raised.value.messages
    assert (returned.method.reply_code, returned.method.reply_text) == (312, "NO_ROUTE")
    assert (returned.method.exchange, returned.method.routing_key, returned.body) == ("", "missing", b"lost")
    client.channel.basic_publish("", "missing", b"lost")  # and is confirmed


def test_bindings_route(at: Place) -> None:
    """By the key of a direct exchange, to each queue once, until they are unbound."""
    exchange, (first, second) = at.exchange(), [at.queue("classic", it) for it in (".1", ".2")]
    client = at.client()
    for queue, key in ((first, "a"), (second, "a"), (second, "b"), (second, "b")):
        client.channel.queue_bind(queue, exchange, key)
    client.publish("a", "1", exchange=exchange)
    client.publish("b", "2", exchange=exchange)
    assert (client.ready(first), client.ready(second)) == (1, 2)
    client.channel.queue_unbind(second, exchange, "a")
    client.publish("a", "3", exchange=exchange)
    assert (client.ready(first), client.ready(second)) == (2, 2)
    client.channel.queue_unbind(second, exchange, "b")
    with pytest.raises(UnroutableError):
        client.publish("b", "lost", exchange=exchange)


@pytest.mark.parametrize(
    ("kind", "key", "routed"),
    [
        ("fanout", "anything", True),
        ("topic", "eu.orders.paid", True),
        ("topic", "eu", True),
        ("topic", "us.orders", True),
        ("topic", b"\xff.orders", True),
        ("direct", "eu.#", True),
        ("direct", b"eu.\xff", False),
        ("topic", "us.orders.paid", False),
        ("topic", "", False),
    ],
)
def test_other_exchanges(at: Place, kind: str, key: Any, routed: bool) -> None:
    """Fanout takes no notice of keys; a topic exchange matches their words. They need not be UTF-8."""
    exchange, queue, client = at.exchange(kind), at.queue("classic"), at.client()
    for pattern in ("eu.#", "*.orders"):
        client.channel.queue_bind(queue, exchange, pattern)
    client.channel.confirm_delivery()
    client.channel.basic_publish(exchange, key, b"1")
    assert client.ready(queue) == routed


def test_an_alternate_exchange_takes_the_rest(at: Place) -> None:
    """What no queue is bound for. That counts as routed."""
    rest = at.exchange("fanout", ".rest")
    exchange = at.exchange(arguments={"alternate-exchange": rest})
    bound, unbound, client = at.queue("classic", ".bound"), at.queue("classic", ".unbound"), at.client()
    client.channel.queue_bind(bound, exchange, "a")
    client.channel.queue_bind(unbound, rest, "")
    client.publish("a", "1", exchange=exchange)
    client.publish("b", "2", exchange=exchange)
    got = client.get(unbound)
    assert (client.ready(bound), got and got.body) == (1, "2")


def test_nobody_publishes_to_an_internal_exchange(at: Place) -> None:
    """Or asks for immediate delivery."""
    name = at.exchange(internal=True)
    refused = at.refusal(lambda it: it.basic_publish(name, "k", b""))
    assert refused == Refused(403, f"ACCESS_REFUSED - cannot publish to internal exchange '{name}' in vhost '/'")
    publish = Basic.Publish(exchange="", routing_key="k", immediate=True)
    refused = at.refusal(lambda it: it._impl._send_method(publish, (BasicProperties(), b"")))  # type: ignore[attr-defined]
    assert refused == Refused(540, "NOT_IMPLEMENTED - immediate=true", whole_connection=True)


@pytest.mark.parametrize(
    ("why", "properties"),
    [
        ("user_id property set to 'bob' but authenticated user was 'guest'", {"user_id": "bob"}),
        ("invalid expiration '315360000001': {value_too_large,315360000001}", {"expiration": "315360000001"}),
        ("invalid expiration '-1': {value_negative,-1}", {"expiration": "-1"}),
        ("invalid expiration '1.5': {leftover_string,\".5\"}", {"expiration": "1.5"}),
        ("invalid expiration 'soon': no_integer", {"expiration": "soon"}),
        ("invalid message: {delivery_mode_unknown,3}", {"delivery_mode": 3}),
    ],
)
def test_a_message_may_not_have_any_properties(at: Place, why: str, properties: dict[str, Any]) -> None:
    """RabbitMQ closes the channel over these. From 3.13 on it takes any delivery mode."""
    if "delivery_mode" in properties and at.version >= (3, 13):
        pytest.skip("this RabbitMQ takes it")
    queue = at.queue("classic")
    refused = at.refusal(lambda it: publish_confirmed(it, queue, BasicProperties(**properties)))
    assert refused == Refused(406, f"PRECONDITION_FAILED - {why}")


def test_a_message_may_have_these_properties(at: Place) -> None:
    """The connection's own user, and the longest time to live."""
    queue, client = at.queue("classic"), at.client()
    publish_confirmed(client.channel, queue, BasicProperties(user_id="guest", expiration="315360000000"))
    assert client.ready(queue) == 1


def publish_confirmed(channel: BlockingChannel, queue: str, properties: BasicProperties) -> None:
    channel.confirm_delivery()
    channel.basic_publish("", queue, b"x", properties, mandatory=True)


def test_clients_cannot_pause_a_channel(at: Place) -> None:
    """They may ask for what they have."""
    client = at.client()
    assert client.channel.flow(active=True)
    refused = at.refusal(lambda it: it.flow(active=False))
    assert refused == Refused(540, "NOT_IMPLEMENTED - active=false", whole_connection=True)


@pytest.mark.parametrize("kind", ["classic", "quorum", "stream"])
def test_messages_arrive_as_they_were_published(at: Place, kind: str) -> None:
    """Their exchange and routing key included."""
    exchange, queue, client = at.exchange(), at.queue(kind), at.client()
    client.channel.queue_bind(queue, exchange, "k")
    nested = {} if kind == "stream" else {"nested": [1, {"b": None}]}  # streams lose it
    properties: dict[str, Any] = {"message_id": "m", "headers": {"a": 1, "b": "text", "nested": [1, {"b": None}]}}
    client.publish("k", "body", exchange=exchange, **properties)
    found: list[Any] = []
    client.channel.basic_qos(prefetch_count=1)
    arguments = {"x-stream-offset": "first"} if kind == "stream" else None
    client.channel.basic_consume(queue, lambda _, *it: found.extend(it), arguments=arguments)
    client.until(lambda: found)
    method, got, body = found
    assert (method.exchange, method.routing_key, method.redelivered, body) == (exchange, "k", False, b"body")
    headers = {it: value for it, value in got.headers.items() if it != "x-stream-offset"}
    assert (got.message_id, headers) == ("m", {"a": 1, "b": "text", **nested})
