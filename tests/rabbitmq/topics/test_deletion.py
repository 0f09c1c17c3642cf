"""Deleting topics on a real RabbitMQ: what is published meanwhile, and deletions that died."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from itertools import count
from typing import Any

import attrs
import pytest
from pika.exceptions import ChannelClosedByBroker, UnroutableError
from tests.consumers import channel
from tests.names import unique
from tests.rabbitmq.topics.dying import dying

from cobalance.errors import TopicInUse, TopicMissing
from cobalance.rabbitmq import (
    Publisher,
    Topic,
    check_topic,
    create_topic,
    delete_topic,
    grow_topic,
    read_topic,
    verify_topic,
)
from cobalance.rabbitmq.topics import broker, deletion
from cobalance.rabbitmq.topics.admin import Admin, connected
from cobalance.rabbitmq.topics.broker import ready_messages

STEPS = ("refuse_in_use", "unbind", "delete", "delete_unused", "delete_exchange")


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is published here is confirmed, so nothing is on its way to a queue."""
    monkeypatch.setattr(deletion, "SETTLE_MS", 0)


def first_of(url: str, queue: str) -> bytes:
    """Consumes and acknowledges the first message of a queue."""
    with channel(url) as it:
        got: Any = next(it.consume(queue))
        it.basic_ack(got[0].delivery_tag)
        return bytes(got[2])


@contextmanager
def before_step(monkeypatch: pytest.MonkeyPatch, number: int, act: Callable[[], object]) -> Iterator[None]:
    """Does something before this step of what is in the block."""
    steps = count()

    def watched(step: Callable[..., Any]) -> Callable[..., Any]:
        def stepping(*arguments: Any) -> Any:
            if next(steps) == number:
                act()
            return step(*arguments)

        return stepping

    with monkeypatch.context() as patch:
        for name in STEPS:
            patch.setattr(Admin, name, watched(getattr(Admin, name)))
        yield


def make(url: str, what: str, topic: Topic) -> tuple[Topic, Topic]:
    """Returns the topic that is published to, and what is to be deleted."""
    made = create_topic(url, topic)
    if what == "grown":
        made = grow_topic(url, topic.name, 2)
    return made, create_topic(url, topic, group="audit") if what == "set" else made


@pytest.mark.parametrize("what", ["classic", "quorum", "grown", "set"])
@pytest.mark.thorough
def test_what_is_published_while_a_topic_is_deleted_is_not_deleted(
    what: Any, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whenever that is. Once nothing can be published, the queues are asked again; those with messages stay."""
    topic = Topic(unique("deletion"), 1, "quorum" if what == "quorum" else "classic")
    for step in count():
        published, deleted = make(amqp_url, what, topic)
        (queue, *_), ends = deleted.queue_names, list[bool]()

        def publish(to: Topic = published, queue: str = queue, ends: list[bool] = ends) -> None:
            ends.append(False)
            with channel(amqp_url) as it, suppress(UnroutableError, ChannelClosedByBroker):
                it.basic_publish(to.name, to.routing_key(0), b"x", mandatory=True)
                ends[0] = what != "set" or bool(ready_messages(amqp_url, [queue])[queue])

        with before_step(monkeypatch, step, publish):
            try:
                delete_topic(amqp_url, deleted.name)
                is_refused = False
            except TopicInUse:
                is_refused = True
        assert is_refused == (ends == [True])
        if is_refused:
            assert make(amqp_url, what, topic) == (published, deleted)
            assert first_of(amqp_url, queue) == b"x"
            delete_topic(amqp_url, deleted.name, force=True)
        if not ends:
            break
    assert step > 5
    with suppress(TopicMissing):
        delete_topic(amqp_url, topic.name, force=True)


@pytest.mark.parametrize("kind", ["classic", "stream"])
def test_who_deletes_a_topic_into_which_a_message_came_is_told_what_is_left(
    kind: Any, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is closed: nothing is lost behind their back. Created again, it goes on with that message."""
    topic = create_topic(amqp_url, Topic(unique("deletion"), 2, kind))

    def publish() -> None:
        with channel(amqp_url) as it:
            it.basic_publish(topic.name, topic.routing_key(1), b"x", mandatory=True)

    words = f"came while.*nothing can be published.*topic create {topic.name} --partitions N.*--force"
    with before_step(monkeypatch, 3, publish), pytest.raises(TopicInUse, match=words):
        delete_topic(amqp_url, topic.name)
    for attempt in (read_topic, lambda url, _: verify_topic(url, topic), lambda url, _: check_topic(url, topic)):
        with pytest.raises(TopicMissing):
            attempt(amqp_url, topic.name)
    assert create_topic(amqp_url, topic) == topic
    if kind == "classic":
        assert first_of(amqp_url, topic.queue_names[1]) == b"x"
    with Publisher(amqp_url, topic) as publisher:
        publisher.publish("key", b"y")
    delete_topic(amqp_url, topic.name, force=True)


@pytest.mark.parametrize(("partitions", "grown_to", "missing"), [(10, 10, 1), (1, 2, None)])
@pytest.mark.thorough
def test_a_deletion_that_died_goes_on_when_it_is_requested_again(
    partitions: int, grown_to: int, missing: int | None, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever that was, nothing is left of the topic, and it can be made with another size."""
    monkeypatch.setattr(deletion, "MAX_PARTITIONS", 20)  # one look at each size that it may have had takes seconds
    made = Topic(unique("broker.dying"), partitions, "classic")
    queues = [*made.queue_names, *Topic(made.name, grown_to, layout=2).queue_names, f"{made.name}.dead"]
    other = attrs.evolve(made, partitions=4)
    for changes in count(step=1 if partitions == 1 else 4):
        create_topic(amqp_url, made)
        grow_topic(amqp_url, made.name, grown_to)
        if missing is not None:
            with connected(amqp_url) as admin:
                admin.delete(made.queue_names[missing])
        is_over = False
        with dying(monkeypatch, changes):
            delete_topic(amqp_url, made.name)
            is_over = True
        with suppress(TopicMissing):
            delete_topic(amqp_url, made.name)
        with connected(amqp_url) as admin:
            assert [it for it in queues if admin.exists(it)] == []
        assert create_topic(amqp_url, other) == other
        delete_topic(amqp_url, made.name)
        if is_over:
            return


def test_a_topic_that_is_completed_meanwhile_is_closed_before_it_is_deleted(
    amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While its deletion waits for the lock. What is published until its queues go would be deleted."""
    topic, lock, delete = Topic(unique("deletion"), 1), Admin.changing, Admin.delete_unused
    deleted = list[str]()
    with connected(amqp_url) as admin:
        admin.declare_exchange(topic.name, {broker.PARTITIONS_ARGUMENT: 1})

    def complete_and_lock(admin: Admin, name: str) -> Any:
        monkeypatch.setattr(Admin, "changing", lock)
        create_topic(amqp_url, topic)
        return lock(admin, name)

    def publish_and_delete(admin: Admin, queue: str, kind: str) -> bool:
        deleted.append(queue)
        with channel(amqp_url) as it, pytest.raises(ChannelClosedByBroker, match="no exchange"):
            it.basic_publish(topic.name, topic.routing_key(0), b"x", mandatory=True)
        return delete(admin, queue, kind)

    monkeypatch.setattr(Admin, "changing", complete_and_lock)
    monkeypatch.setattr(Admin, "delete_unused", publish_and_delete)
    delete_topic(amqp_url, topic.name)
    assert deleted == [f"{topic.name}.dead", *topic.queue_names]
