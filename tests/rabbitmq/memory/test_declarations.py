"""Queues, exchanges and bindings: what is declared, found, refused and deleted."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import UnroutableError
from tests.rabbitmq.memory.clients import Place, Refused, of_kind

Ask = Callable[[BlockingChannel], object]

KINDS = ["classic", "quorum", "stream"]


def precondition_failed(why: str) -> Refused:
    return Refused(406, f"PRECONDITION_FAILED - {why}")


@pytest.mark.parametrize("kind", KINDS)
def test_a_queue_is_declared_again(at: Place, kind: str) -> None:
    """As often as one likes, if the declaration is the same; or found, passively."""
    name = at.queue(kind)
    at.queue(kind)
    channel = at.client().channel
    found = channel.queue_declare(name, passive=True).method
    assert (found.queue, found.message_count, found.consumer_count) == (name, 0, 0)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    ("options", "difference"),
    [
        ({"durable": False}, "'durable' for {queue}: received 'false' but current is 'true'"),
        ({"auto_delete": True}, "'auto_delete' for {queue}: received 'true' but current is 'false'"),
        ({"arguments": of_kind("other")}, "'x-queue-type' for {queue}: received '{other}' but current is '{kind}'"),
    ],
    ids=lambda it: next(iter(it)) if isinstance(it, dict) else "",
)
def test_a_different_declaration_is_refused(at: Place, kind: str, options: dict[str, Any], difference: str) -> None:
    """And the first difference named."""
    other = KINDS[KINDS.index(kind) - 1]
    name = at.queue(kind)
    asked: dict[str, Any] = {"durable": True, "arguments": of_kind(kind), **options}
    if asked["arguments"]["x-queue-type"] == "other":
        asked["arguments"] = of_kind(other)
    words = difference.format(queue=f"queue '{name}' in vhost '/'", other=other, kind=kind)
    assert at.refusal(lambda it: it.queue_declare(name, **asked)) == precondition_failed(f"inequivalent arg {words}")


@pytest.mark.parametrize(
    ("kind", "argument", "value", "words"),
    [
        ("classic", "x-dead-letter-exchange", "a", "the value 'a' of type 'longstr'"),
        ("classic", "x-single-active-consumer", True, "the value 'true' of type 'bool'"),
        ("quorum", "x-delivery-limit", 3, "the value '3' of type 'signedint'"),
        ("stream", "x-max-age", "1h", "the value '1h' of type 'longstr'"),
    ],
)
def test_arguments_are_compared(at: Place, kind: str, argument: str, value: Any, words: str) -> None:
    """In both directions."""
    name = at.queue(kind)
    arguments = of_kind(kind) | {argument: value}
    refused = at.refusal(lambda it: it.queue_declare(name, durable=True, arguments=arguments))
    where = f"inequivalent arg '{argument}' for queue '{name}' in vhost '/'"
    assert refused.code == 406
    assert refused.text.startswith(f"PRECONDITION_FAILED - {where}: received {words} but current is none")
    at.client().channel.queue_delete(name)
    at.client().channel.queue_declare(name, durable=True, arguments=arguments)
    refused = at.refusal(lambda it: it.queue_declare(name, durable=True, arguments=of_kind(kind)))
    assert refused.text.startswith(f"PRECONDITION_FAILED - {where}: received none but current is {words}")


NO_QUEUE = Refused(404, "NOT_FOUND - no queue 'missing' in vhost '/'")
NO_EXCHANGE = Refused(404, "NOT_FOUND - no exchange 'missing' in vhost '/'")
DEFAULT_EXCHANGE = Refused(403, "ACCESS_REFUSED - operation not permitted on the default exchange")


@pytest.mark.parametrize(
    ("ask", "refused"),
    [
        (lambda it: it.queue_declare("missing", passive=True), NO_QUEUE),
        (lambda it: it.queue_purge("missing"), NO_QUEUE),
        (lambda it: it.basic_get("missing"), NO_QUEUE),
        (lambda it: it.basic_consume("missing", print), NO_QUEUE),
        (lambda it: it.queue_bind("missing", "amq.direct", "k"), NO_QUEUE),
        (lambda it: it.exchange_declare("missing", passive=True), NO_EXCHANGE),
        (lambda it: it.basic_publish("missing", "k", b""), NO_EXCHANGE),
        (lambda it: it.exchange_declare(""), DEFAULT_EXCHANGE),
        (lambda it: it.exchange_delete(""), DEFAULT_EXCHANGE),
        (
            lambda it: it.queue_declare("amq.mine"),
            Refused(403, "ACCESS_REFUSED - queue name 'amq.mine' contains reserved prefix 'amq.*'"),
        ),
        (
            lambda it: it.exchange_declare("amq.mine"),
            Refused(403, "ACCESS_REFUSED - exchange name 'amq.mine' contains reserved prefix 'amq.*'"),
        ),
    ],
)
def test_what_is_missing_or_not_theirs_closes_the_channel(at: Place, ask: Ask, refused: Refused) -> None:
    """And not the connection."""
    assert at.refusal(ask) == refused


def test_what_is_missing_may_be_deleted(at: Place) -> None:
    """Or unbound."""
    channel = at.client().channel
    assert channel.queue_delete("missing").method.message_count == 0
    channel.exchange_delete("missing")
    channel.queue_unbind("missing", "amq.direct", "k")
    channel.queue_unbind(at.queue("classic"), "missing", "k")


@pytest.mark.parametrize(
    ("kind", "argument", "value"),
    [
        ("classic", "x-delivery-limit", 3),
        ("classic", "x-max-age", "1h"),
        ("quorum", "x-max-priority", 3),
        ("quorum", "x-stream-max-segment-size-bytes", 500),
        ("stream", "x-single-active-consumer", True),
        ("stream", "x-dead-letter-exchange", ""),
        ("stream", "x-message-ttl", 5),
        ("stream", "x-expires", 5),
    ],
)
def test_each_type_has_its_arguments(at: Place, kind: str, argument: str, value: Any) -> None:
    """Those of another type are refused."""
    arguments = of_kind(kind) | {argument: value}
    refused = at.refusal(lambda it: it.queue_declare(at.name, durable=True, arguments=arguments))
    assert refused == precondition_failed(
        f"invalid arg '{argument}' for queue '{at.name}' in vhost '/' of queue type rabbit_{kind}_queue"
    )


@pytest.mark.parametrize("kind", ["quorum", "stream"])
@pytest.mark.parametrize(
    ("options", "name"),
    [
        ({"durable": False}, "non-durable"),
        ({"auto_delete": True}, "auto-delete"),
        ({"exclusive": True}, "exclusive-owner"),
    ],
)
def test_replicated_queues_last(at: Place, kind: str, options: dict[str, bool], name: str) -> None:
    """They cannot be transient, or exclusive."""
    declared: dict[str, Any] = {"durable": True, "arguments": of_kind(kind), **options}
    refused = at.refusal(lambda it: it.queue_declare(at.name, **declared))
    assert refused == precondition_failed(f"invalid property '{name}' for queue '{at.name}' in vhost '/'")


@pytest.mark.parametrize(
    "use",
    [
        lambda it, name: it.queue_declare(name, exclusive=True),
        lambda it, name: it.queue_declare(name, passive=True),
        lambda it, name: it.basic_consume(name, print),
        lambda it, name: it.basic_get(name),
        lambda it, name: it.queue_bind(name, "amq.direct", "k"),
        lambda it, name: it.queue_delete(name),
    ],
    ids=["declare", "passive", "consume", "get", "bind", "delete"],
)
def test_an_exclusive_queue_is_its_connection_s(at: Place, use: Any) -> None:
    """Others may publish to it. It goes with its connection."""
    owner, other = at.client(), at.client()
    owner.channel.queue_declare(at.name, exclusive=True)
    other.publish(at.name, "1")
    assert owner.wait_for(at.name).body == "1"
    refused = other.refusal(lambda it: use(it, at.name))
    assert refused.code == 405
    assert refused.text == (
        f"RESOURCE_LOCKED - cannot obtain exclusive access to locked queue '{at.name}' in vhost '/'. It could be originally declared on "
        "another connection or the exclusive property value does not match that of the original declaration."
    )
    owner.connection.close()
    next_one = at.client()
    next_one.channel.queue_declare(at.name, exclusive=True)


def test_an_unnamed_queue_gets_a_name(at: Place) -> None:
    """A different one each time."""
    channel = at.client().channel
    first, second = (str(channel.queue_declare("", exclusive=True).method.queue) for _ in range(2))
    assert first.startswith("amq.gen-")
    assert second not in {"", first}


def test_an_auto_deleted_queue_goes_with_its_last_consumer(at: Place) -> None:
    """Not before it had one."""
    client = at.client()
    client.channel.queue_declare(at.name, auto_delete=True)
    first, second = client.consume(at.name), client.consume(at.name)
    client.channel.basic_cancel(first)
    assert client.ready(at.name) == 0
    client.channel.basic_cancel(second)
    assert client.refusal(lambda it: it.queue_declare(at.name, passive=True)).code == 404


@pytest.mark.parametrize("condition", ["if_unused", "if_empty"])
def test_a_queue_is_deleted_on_a_condition(at: Place, condition: str) -> None:
    """By classic queues; quorum queues refuse any condition, and streams take no notice."""
    classic, quorum, stream = (at.queue(kind, f".{kind}") for kind in KINDS)
    user, flag = at.client(), {condition: True}
    user.publish(classic, "1", "2")
    user.consume(classic, prefetch=1)
    user.take(1)
    words = {"if_unused": "in use", "if_empty": "not empty"}[condition]
    refused = at.refusal(lambda it: it.queue_delete(classic, **flag))
    assert refused == precondition_failed(f"queue '{classic}' in vhost '/' {words}")
    refused = at.refusal(lambda it: it.queue_delete(quorum, **flag))
    assert refused == Refused(
        540,
        f"NOT_IMPLEMENTED - cannot delete queue '{quorum}' in vhost '/'. queue.delete operations with {condition.replace('_', '-')} flag "
        "set are not supported by quorum queues",
        whole_connection=True,
    )
    user.publish(stream, "1")
    at.client().channel.queue_delete(stream, **flag)
    assert at.refusal(lambda it: it.queue_declare(stream, passive=True)).code == 404
    user.channel.basic_ack(user.got[0].tag)
    user.take(1)
    user.channel.basic_ack(user.got[1].tag)
    user.channel.basic_cancel(str(user.channel.consumer_tags[0]))
    at.client().channel.queue_delete(classic, **flag)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_purge_leaves_what_consumers_have(at: Place, kind: str) -> None:
    """It says how many messages it removed."""
    queue, client = at.filled(kind, 5), at.client()
    client.consume(queue, prefetch=2)
    client.take(2)
    assert at.client().channel.queue_purge(queue).method.message_count == 3
    client.close_channel()
    other = at.client()
    assert [other.wait_for(queue).body for _ in range(2)] == ["1", "2"]


@pytest.mark.parametrize("kind", KINDS)
def test_consumers_of_a_deleted_queue_are_cancelled(at: Place, kind: str) -> None:
    """By the server; the channel stays open."""
    queue, client = at.queue(kind), at.client()
    tag = client.consume(queue, prefetch=1)
    at.client().channel.queue_delete(queue)
    client.until(lambda: client.cancelled == [tag])
    assert client.refusal(lambda it: it.basic_consume(queue, print)).code == 404


@pytest.mark.parametrize(
    ("options", "argument", "received", "current"),
    [
        ({"exchange_type": "fanout"}, "type", "'fanout'", "'direct'"),
        ({"durable": True}, "durable", "'true'", "'false'"),
        ({"auto_delete": True}, "auto_delete", "'true'", "'false'"),
        ({"internal": True}, "internal", "'true'", "'false'"),
        ({"arguments": {"alternate-exchange": "a"}}, "alternate-exchange", "the value 'a' of type 'longstr'", "none"),
    ],
)
def test_exchanges_are_compared(at: Place, options: dict[str, Any], argument: str, received: str, current: str) -> None:
    """By type, flags and alternate exchange, and by nothing else."""
    name = at.exchange(arguments={"x-cobalance-partitions": 3})
    at.exchange()
    words = f"'{argument}' for exchange '{name}' in vhost '/': received {received} but current is {current}"
    refused = at.refusal(lambda it: it.exchange_declare(name, **options))
    assert refused == precondition_failed(f"inequivalent arg {words}")


def test_an_exchange_in_use_is_kept(at: Place) -> None:
    """If it is to be deleted only if unused. With auto_delete, it goes with its last binding."""
    name, queue, channel = at.exchange(auto_delete=True), at.queue("classic"), at.client().channel
    channel.exchange_declare(name, passive=True)
    channel.queue_bind(queue, name, "k")
    refused = at.refusal(lambda it: it.exchange_delete(name, if_unused=True))
    assert refused == precondition_failed(f"exchange '{name}' in vhost '/' in use")
    channel.queue_delete(queue)
    assert at.refusal(lambda it: it.exchange_declare(name, passive=True)).code == 404
    at.exchange()
    at.client().channel.exchange_delete(name, if_unused=True)


def test_an_exchange_leads_to_another_one(at: Place) -> None:
    """Its messages go on under their routing key; where neither a queue nor an exchange matches, to the alternate one."""
    channel, name = at.client().channel, at.queue("classic")
    first, second = f"{name}.first", f"{name}.second"
    for it in (first, second):
        channel.exchange_declare(it)
    channel.exchange_bind(second, first, "k")
    channel.exchange_bind(first, second, "k")  # in a circle
    channel.queue_bind(name, second, "k")
    channel.confirm_delivery()
    channel.basic_publish(first, "k", b"1", mandatory=True)
    with pytest.raises(UnroutableError):
        channel.basic_publish(first, "other", b"2", mandatory=True)
    channel.exchange_unbind(second, first, "k")
    with pytest.raises(UnroutableError):
        channel.basic_publish(first, "k", b"3", mandatory=True)
    assert channel.queue_declare(name, passive=True).method.message_count == 1
    for it in (first, second):
        channel.exchange_delete(it)


@pytest.mark.parametrize("end", ["exchange_delete", "exchange_unbind"])
def test_an_exchange_that_is_deleted_with_its_last_binding(at: Place, end: str) -> None:
    """Whether that leads to a queue or an exchange, and whether what it leads to is deleted or the binding alone."""
    channel, name = at.client().channel, at.queue("classic")
    fleeting, lasting = f"{name}.fleeting", f"{name}.lasting"
    channel.exchange_declare(lasting)
    channel.exchange_declare(fleeting, auto_delete=True)
    channel.queue_bind(name, fleeting, "k")
    channel.exchange_bind(lasting, fleeting, "k")
    channel.queue_unbind(name, fleeting, "k")
    channel.exchange_declare(fleeting, passive=True)
    arguments = (lasting,) if end == "exchange_delete" else (lasting, fleeting, "k")
    getattr(channel, end)(*arguments)
    missing = Refused(404, f"NOT_FOUND - no exchange '{fleeting}' in vhost '/'")
    assert at.refusal(lambda it: it.exchange_declare(fleeting, passive=True)) == missing
    channel.exchange_delete(lasting)
