"""Queue sets of groups on a real RabbitMQ: what else happens to their topic, and what they get of it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from itertools import count

import pytest
from pika.exceptions import UnroutableError
from tests.consumers import channel, new_topic
from tests.rabbitmq.topics.dying import dying

from cobalance.errors import TopicInUse
from cobalance.rabbitmq import Publisher, Topic, create_topic, delete_topic, grow_topic, read_topic
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.broker import ready_messages


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    """A topic with two partitions."""
    with new_topic(amqp_url, 2) as it:
        yield it


def held(url: str, topic: Topic) -> int:
    """How many messages its queues have; those that do not exist have none."""
    return sum(it or 0 for it in ready_messages(url, topic.queue_names).values())


def test_a_topic_whose_growth_was_interrupted_gets_no_set(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Wherever it died. The set alone would take what is published, confirmed, and the growth could not go on."""
    for changes in count():
        with dying(monkeypatch, changes):
            grow_topic(amqp_url, topic.name, topic.partitions + 1)
        if read_topic(amqp_url, topic.name).layout > topic.layout:
            break  # it had died after its last step but one
        with connected(amqp_url) as admin:
            is_begun = admin.exists(f"{topic.name}.v2-0")
        if not is_begun:
            continue
        with pytest.raises(TopicInUse, match=f"being grown.*cobalance topic grow {topic.name} --partitions"):
            create_topic(amqp_url, topic, group="audit")
        with channel(amqp_url) as it, suppress(UnroutableError):
            it.basic_publish(topic.name, topic.routing_key(0), b"x", mandatory=True)
            assert held(amqp_url, topic)
    assert changes > 5
    grown = grow_topic(amqp_url, topic.name, topic.partitions + 1)
    own = create_topic(amqp_url, topic, group="audit")
    try:
        with Publisher(amqp_url, topic) as publisher:
            publisher.publish("key", b"x")
        assert (held(amqp_url, grown), held(amqp_url, own)) == (1, 1)
    finally:
        delete_topic(amqp_url, own.name, force=True)


def test_a_topic_that_is_deleted_while_its_growth_is_interrupted_goes_completely(
    topic: Topic, amqp_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also what there is of the new layout: one that is made anew would be taken for being grown."""
    for changes in count():
        with dying(monkeypatch, changes):
            grow_topic(amqp_url, topic.name, 3)
        is_over = read_topic(amqp_url, topic.name).layout > 1
        delete_topic(amqp_url, topic.name, force=True)
        with connected(amqp_url) as admin:
            assert not [name for name in Topic(topic.name, 3, layout=2).queue_names if admin.exists(name)]
            assert not [it for it in ("v2.3", "v2.3.newest", "v2") if admin.has_exchange(f"{topic.name}.{it}")]
        create_topic(amqp_url, topic)
        if is_over:
            break
    assert changes > 5
    delete_topic(amqp_url, create_topic(amqp_url, topic, group="audit").name, force=True)
