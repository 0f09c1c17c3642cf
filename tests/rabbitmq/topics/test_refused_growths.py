"""Growths that are refused, or called off: the topic is as it was, and publishers go on."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import attrs
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPConnectionError, UnroutableError
from tests.consumers import bodies_in, channel, new_topic
from tests.faults.proxy import proxy_to
from tests.faults.rabbitmq_servers import Leader
from tests.names import unique
from tests.rabbitmq.memory.clients import Place
from tests.rabbitmq.topics.test_growth import finish_first
from tests.rabbitmq_user import new_user

from cobalance.errors import (
    PermissionMissing,
    PublishFailed,
    QueueMismatch,
    ServerError,
    TopicInUse,
    TopicMissing,
    Unreachable,
    UsageError,
)
from cobalance.rabbitmq import (
    Publisher,
    Topic,
    create_topic,
    delete_topic,
    grow_topic,
    read_topic,
)
from cobalance.rabbitmq.topics import growth
from cobalance.rabbitmq.topics.admin import DIRECT, connected
from cobalance.rabbitmq.topics.broker import is_being_grown
from cobalance.servers import OwnRabbitMQ, RabbitMQServer

pytestmark = pytest.mark.anyio


@contextmanager
def new_vhost(server: OwnRabbitMQ, *, max_queues: int) -> Iterator[str]:
    """The URL of a virtual host that takes so many queues."""
    name = unique("few")
    server.control("add_vhost", name)
    try:
        server.control("set_permissions", "-p", name, "guest", ".*", ".*", ".*")
        server.control("set_vhost_limits", "-p", name, f'{{"max-queues": {max_queues}}}')
        yield server.url.replace("%2F", name)
    finally:
        server.control("delete_vhost", name)


@pytest.mark.thorough
def test_a_growth_beyond_the_limit_of_queues_is_called_off(private_rabbitmq: OwnRabbitMQ) -> None:
    """Nothing of it stays, for which publishers would wait when a partition is lost. The error has RabbitMQ's reason."""
    with new_vhost(private_rabbitmq, max_queues=5) as url:  # two partitions, dead letters, the lock, and one more
        topic = create_topic(url, Topic("orders", 2))
        refusal = r"refused to create queue '{}': 406 .*queue limit.*is reached"
        with Publisher(url, topic) as publisher:
            with pytest.raises(ServerError, match=refusal.format("orders.v2-1")):
                grow_topic(url, topic.name, 3)
            assert_as_it_was(url, topic, publisher)
            with channel(url) as it:
                it.queue_delete(topic.queue_names[0])
            with pytest.raises(PublishFailed, match="no queue takes routing key"):
                publisher.publish(None, b"", partition=0)
        with pytest.raises(ServerError, match=refusal.format("others-2")):
            create_topic(url, Topic("others", 3, dead_letter=False))


@pytest.mark.parametrize("closes", [False, True])
def test_a_growth_that_cannot_be_called_off_says_that_it_goes_on(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch, *, closes: bool
) -> None:
    """RabbitMQ is lost in the middle of it, or after the old layout was closed."""
    with proxy_to(amqp_url) as proxy:

        def lose(*_: object) -> None:
            proxy.refuse()
            proxy.reset()
            raise AMQPConnectionError

        with monkeypatch.context() as patch:
            patch.setattr(growth, "open_layout" if closes else "close_layout", lose)
            with pytest.raises(Unreachable, match=f"was lost.*goes on.*topic grow {topic.name} --partitions 3") as lost:
                grow_topic(proxy.through(amqp_url), topic.name, 3)
        assert lost.value.outcome == "unknown"
    assert grow_topic(amqp_url, topic.name, 3).layout == 2


@pytest.mark.parametrize("fault", ["silent", "gone"])
@pytest.mark.thorough
def test_a_topic_is_not_grown_onto_a_queue_that_does_not_answer(private_rabbitmq: OwnRabbitMQ, fault: str) -> None:
    """Its publishers would wait for it, while nothing would be left of the old partitions."""
    url = private_rabbitmq.url
    with new_topic(url, 2, "quorum") as topic, Publisher(url, topic) as publisher:
        new = attrs.evolve(topic, partitions=3, layout=2)
        with connected(url) as admin:
            admin.declare(new.queues[1])
        with getattr(Leader(private_rabbitmq, new.queue_names[1]), fault)():
            with pytest.raises(
                Unreachable, match=rf"was not grown: its new queue '{new.queue_names[1]}' does not answer"
            ):
                grow_topic(url, topic.name, 3)
            assert read_topic(url, topic.name) == topic
            with connected(url) as admin:
                assert not is_being_grown(admin, topic)
            for partition in range(2):
                publisher.publish(None, b"x", partition=partition)
        assert grow_topic(url, topic.name, 3) == new
        publisher.publish(None, b"x", partition=1)
        assert finish_first(url, new.queue_names[1]) == b"x"


def test_two_growths_exclude_each_other(topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One of them would bind what the other has closed."""
    monkeypatch.setattr("cobalance.rabbitmq.topics.admin.LOCK_PATIENCE_S", 0.2)
    with connected(amqp_url) as admin, admin.changing(topic.name), pytest.raises(TopicInUse):
        grow_topic(amqp_url, topic.name, 3)
    assert grow_topic(amqp_url, topic.name, 3).partitions == 3


def test_a_policy_that_deletes_unused_queues_lets_no_second_change_in(private_rabbitmq: OwnRabbitMQ) -> None:
    """The lock of a topic has a consumer. A queue that the policy has met later is deleted meanwhile."""
    url, name, others = private_rabbitmq.url, unique("topic"), Place(private_rabbitmq.url)
    private_rabbitmq.control("set_policy", "unused", "^(topic|memory)", '{"expires":500}', "--apply-to", "queues")
    try:
        with connected(url) as admin, connected(url) as another, admin.changing(name):
            unused = others.queue("classic")
            others.client().until(lambda: others.is_gone(unused))
            with pytest.raises(TopicInUse), another.changing(name, patience_s=0):
                pass
        with connected(url) as another, another.changing(name):
            pass
    finally:
        private_rabbitmq.control("clear_policy", "unused")
        others.close()


def test_a_lock_that_a_policy_deletes_before_it_is_consumed_is_made_again(
    amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that takes it is held up in between."""
    consume, name = BlockingChannel.basic_consume, unique("topic")

    def consume_late(channel: BlockingChannel, queue: str, *arguments: Any, **options: Any) -> str:
        monkeypatch.undo()
        channel.queue_delete(queue)
        return consume(channel, queue, *arguments, **options)

    monkeypatch.setattr(BlockingChannel, "basic_consume", consume_late)
    with (
        connected(amqp_url) as admin,
        connected(amqp_url) as another,
        admin.changing(name),
        pytest.raises(TopicInUse),
        another.changing(name, patience_s=0),
    ):
        pass


def test_what_cannot_be_grown(amqp_url: str) -> None:
    """Topics that do not exist, and streams, which never become empty."""
    with pytest.raises(TopicMissing):
        grow_topic(amqp_url, "nothing", 3)
    with new_topic(amqp_url, 1, "stream") as stream, pytest.raises(UsageError, match="streams"):
        grow_topic(amqp_url, stream.name, 3)
    with pytest.raises(UsageError, match="layouts"):
        Topic("orders.v2", 3)


@contextmanager
def another_queue(url: str, *, bound_to: str, keys: Sequence[str]) -> Iterator[str]:
    """Another program's queue, bound next to those of a topic."""
    name = unique("audit")
    with channel(url) as it:
        it.queue_declare(name, durable=True)
        for key in keys:
            it.queue_bind(name, bound_to, key)
        try:
            yield name
        finally:
            it.queue_delete(name)


def assert_as_it_was(url: str, topic: Topic, publisher: Publisher) -> None:
    """A growth that was refused has changed nothing."""
    assert read_topic(url, topic.name) == topic
    with connected(url) as admin:
        assert not admin.exists(f"{topic.name}.v2-0")
        assert admin.has_exchange(topic.newest_marker)
    for partition, queue in enumerate(topic.queue_names):
        for key in topic.routing_keys(partition):
            with channel(url) as it:
                it.basic_publish(topic.name, key, key.encode(), mandatory=True)
        publisher.publish("key", b"x", partition=partition)
        assert bodies_in(url, queue) == [*topic.routing_keys(partition), "x"]


@pytest.mark.parametrize("is_closed", [False, True])
def test_a_topic_with_an_alternate_exchange_is_not_grown(topic: Topic, amqp_url: str, *, is_closed: bool) -> None:
    """That takes what publishers send to a closed layout: they would go on so for ever. Nor does a growth go on that was
    interrupted before there was one.
    """
    with Publisher(amqp_url, topic) as publisher, channel(amqp_url) as it:
        publisher.publish("key", b"x")
        it.exchange_delete(topic.name)
        it.exchange_declare(topic.name, DIRECT, durable=True, arguments={"alternate-exchange": "amq.fanout"})
        if is_closed:
            with connected(amqp_url) as admin:
                admin.declare(Topic(topic.name, 3, layout=2).queues[0])
        for partition, queue in enumerate(() if is_closed else topic.queue_names):
            it.queue_purge(queue)
            for key in topic.routing_keys(partition):
                it.queue_bind(queue, topic.name, key)
        with another_queue(amqp_url, bound_to="amq.fanout", keys=[""]) as catch_all:
            with pytest.raises(UsageError, match="alternate exchange"):
                grow_topic(amqp_url, topic.name, 3)
            assert bodies_in(amqp_url, catch_all) == []
            if is_closed:
                assert read_topic(amqp_url, topic.name) == topic
            else:
                assert_as_it_was(amqp_url, topic, publisher)
        assert grow_topic(amqp_url, topic.name, 3).partitions == 3  # the alternate exchange leads nowhere


@pytest.mark.parametrize("keys", [("0/2",), ("1",), ("0/2", "1/2", "0", "1")])
@pytest.mark.parametrize("asks_management", [False, True])
def test_a_topic_to_which_others_have_bound_a_queue_is_not_grown(
    topic: Topic, rabbitmq_server: RabbitMQServer, keys: tuple[str, ...], *, asks_management: bool
) -> None:
    """It takes what publishers send to a closed layout. With the management API that is seen before anything is closed."""
    url = rabbitmq_server.url
    api = rabbitmq_server.management_url if asks_management else None
    with Publisher(url, topic) as publisher, another_queue(url, bound_to=topic.name, keys=keys) as other:
        with pytest.raises(UsageError, match="have bound to its exchange"):
            grow_topic(url, topic.name, 3, management_url=api)
        assert bodies_in(url, other) == []
        assert_as_it_was(url, topic, publisher)
        with channel(url) as it:
            for key in keys:
                it.queue_unbind(other, topic.name, key)
        grown = grow_topic(url, topic.name, 3, management_url=api)
        partition = publisher.publish("key", b"y").result()
        assert bodies_in(url, grown.queue_names[partition]) == ["y"]


@pytest.mark.thorough
def test_a_topic_is_not_grown_by_who_may_not_change_all_of_it(private_rabbitmq: OwnRabbitMQ) -> None:
    """It is as it was: half a growth would hold up publishers, and nothing but another growth would end that. The error
    says what is missing: of each topic something else.
    """
    url, ends = private_rabbitmq.url, {
        "configure": (".v2", ".v2.3", ".v2.3.newest", ".v1.2.newest", ".dead"),
        "read": ("",),
        "write": ("", "-1", ".v2-2", "amq.default"),
    }  # fmt: skip
    with ExitStack() as stack:
        user = stack.enter_context(new_user(private_rabbitmq))
        cases: list[tuple[Topic, str, str]] = []
        for permission, end in ((permission, end) for permission, its in ends.items() for end in its):
            topic = stack.enter_context(new_topic(url, 2))
            cases.append((topic, permission, end if end == "amq.default" else topic.name + end))
        lacks = {it: "|".join(name for _, permission, name in cases if permission == it) for it in ends}
        user.permit(**{permission: f"^(?!({names})$).*" for permission, names in lacks.items()})
        for topic, permission, name in cases:
            with pytest.raises(PermissionMissing, match=rf"{permission} on \w+ '{name}'"):
                grow_topic(user.url, topic.name, 3)
            with connected(url) as admin:
                assert not admin.exists(f"{topic.name}.v2-0")
                assert admin.has_exchange(topic.newest_marker)
        user.permit()
        assert grow_topic(user.url, cases[0][0].name, 3).partitions == 3


def test_a_topic_whose_dead_letter_queue_is_another_is_not_grown(topic: Topic, amqp_url: str) -> None:
    """Its new layout could not be opened after the old one was closed."""
    with channel(amqp_url) as it:
        it.queue_delete(f"{topic.name}.dead")
        it.queue_declare(f"{topic.name}.dead", durable=True, arguments={"x-max-length": 7})
    with Publisher(amqp_url, topic) as publisher:
        with pytest.raises(QueueMismatch, match=f"{topic.name}.dead"):
            grow_topic(amqp_url, topic.name, 3)
        assert_as_it_was(amqp_url, topic, publisher)


@pytest.mark.parametrize("lacks", ["read", "configure"])
def test_who_changes_a_topic_may_have_to_be_permitted_its_lock(private_rabbitmq: OwnRabbitMQ, lacks: str) -> None:
    """Nobody consumes here, so the refusal does not speak of what a consumer needs."""
    name = unique("orders")
    with new_user(private_rabbitmq) as user:
        user.permit(**{lacks: "^(?!.*[.]changing$).*"})
        with pytest.raises(PermissionMissing, match=rf"'{name}\.changing'.* configure and read on it") as caught:
            create_topic(user.url, Topic(name, 1))
    assert "Consuming" not in str(caught.value)


def test_a_growth_of_a_topic_that_was_made_again_since_is_not_called_off(
    amqp_url: str, topic: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Once it has failed, its lock is free. The queues of the former topic are not bound to one of another size."""
    other, call_off = attrs.evolve(topic, partitions=3), growth._is_called_off

    def fail(*_: object) -> None:
        raise Unreachable("no answer", outcome="not_executed")

    def remake_first(*arguments: Any) -> bool:
        delete_topic(amqp_url, topic.name, force=True)
        create_topic(amqp_url, other)
        return call_off(*arguments)

    monkeypatch.setattr(growth, "_require_answers", fail)
    monkeypatch.setattr(growth, "_is_called_off", remake_first)
    with pytest.raises(Unreachable, match=r"no answer$"):
        grow_topic(amqp_url, topic.name, 4)
    with channel(amqp_url) as it, pytest.raises(UnroutableError):
        it.basic_publish(topic.name, topic.routing_key(0), b"x", mandatory=True)
    with connected(amqp_url) as admin:
        assert not admin.has_exchange(topic.newest_marker)
