"""A queue set of a group's own: the same messages again, for a group besides the one that works a topic's own queues.

A queue's messages go to one consumer each. So each further group has queues of its own, bound to the topic's exchange beside the
others: the topic ``orders@audit`` is what the group audit gets of ``orders``, from the moment on at which it was made.
"""

from cobalance.errors import UsageError
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.admin import Admin


def sets_marker(name: str) -> str:
    """The exchange that exists where a topic has queue sets, or is one: AMQP cannot list them."""
    return f"{name}.sets"


def own_set(topic: Topic, group: str) -> Topic:
    """The set of this group, as a topic; raises UsageError where there cannot be one."""
    if topic.queue_type == "stream":
        raise UsageError(
            f"Topic {topic.name!r} consists of streams, which any number of groups may read: leave group= out."
        )
    return topic.for_group(group)


def mark_sets(admin: Admin, topic: Topic, own: Topic) -> None:
    """From here on neither of them is grown."""
    for name in (topic.name, own.name):
        admin.declare_exchange(sets_marker(name), {})


def bind_set(admin: Admin, topic: Topic, own: Topic) -> None:
    """What is published to the topic's partition gets into the set's partition of the same number."""
    for partition, queue in enumerate(own.queues):
        admin.bind(queue, topic.name, topic.routing_key(partition))


def refuse_sets(admin: Admin, name: str) -> None:
    """Raises UsageError where new partitions would be missing in some set."""
    if admin.has_exchange(sets_marker(name)):
        raise UsageError(
            f"Topic {name!r} has queue sets of groups, or is one, whose queues would get nothing of new partitions, so it cannot be grown. "
            "Make another topic with more partitions, with its sets, and let publishers change to it."
        )
