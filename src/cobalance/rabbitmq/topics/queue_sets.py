"""A group's own set of queues: a further group that gets every message of a topic.

Each message in a queue goes to one consumer. So each further group has queues of its own, bound to the topic's exchange
next to the others: the topic ``orders@audit`` is what the group audit gets of ``orders``, from the moment its queues
were created.
"""

from collections.abc import Iterable

from cobalance.errors import UsageError
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.model.topic import Topic, partition_named, set_of
from cobalance.rabbitmq.topics.admin import Admin


def sets_marker(name: str) -> str:
    """The exchange that marks a topic as having queue sets, or as being one: AMQP cannot list them."""
    return f"{name}.sets"


def own_set(topic: Topic, group: str) -> Topic:
    """The group's set, as a topic; raises UsageError for streams."""
    if topic.queue_type == "stream":
        raise UsageError(
            f"Topic {topic.name!r} consists of streams, which any number of groups may read: leave group= out."
        )
    return topic.for_group(group)


def refuse_as_topic(admin: Admin, own: Topic) -> None:
    """Raises UsageError for a set that is not there yet: made as a topic, it would get nothing of what is published to its topic."""
    topic, group = set_of(own.name) or ("", "")
    if group and not admin.has_exchange(sets_marker(own.name)) and admin.has_exchange(f"{topic}.v1"):
        raise UsageError(
            f"{own.name!r} is what group {group!r} has of topic {topic!r}, which is made with create_topic(url, Topic({topic!r}, ...), "
            f"group={group!r}) or cobalance topic create {topic} --partitions N --group {group}."
        )


def mark_sets(admin: Admin, topic: Topic, own: Topic) -> None:
    """Prevents growing the topic and the set from here on."""
    for name in (topic.name, own.name):
        admin.declare_exchange(sets_marker(name), {})


def bind_set(admin: Admin, topic: Topic, own: Topic) -> None:
    """Binds each queue of the set so that it gets what the topic's partition of the same number gets."""
    for partition, queue in enumerate(own.queues):
        admin.bind(queue, topic.name, topic.routing_key(partition))


def unbind_set(admin: Admin, topic: Topic, queues: Iterable[str]) -> None:
    """Undoes that for these queues."""
    for name in queues:
        if partition := partition_named(name):
            admin.unbind(Queue(name), topic.name, topic.routing_key(partition[1]))


def refuse_sets(admin: Admin, name: str) -> None:
    """Raises UsageError if the topic has queue sets: they would get nothing from new partitions."""
    if admin.has_exchange(sets_marker(name)):
        raise UsageError(
            f"Topic {name!r} has queue sets of groups, or is one, whose queues would get nothing of new partitions, so it cannot be grown. "
            "Make another topic with more partitions, with its sets, and let publishers change to it."
        )
