"""A group's own set of queues: a further group that gets every message of a topic.

Each message in a queue goes to one consumer. So each further group has queues of its own, bound to the topic's exchange
next to the others: the topic ``orders@audit`` is what the group audit gets of ``orders``, from the moment its queues
were created.

They get nothing any more once the topic's exchange was deleted, also if it is created again, and AMQP cannot be asked
for bindings. So the set has a marker that goes with that exchange: one that is deleted with its last binding, which
leads to the topic's exchange.
"""

import attrs

from cobalance.errors import TopicMissing, UsageError
from cobalance.rabbitmq.model.topic import Topic, set_of
from cobalance.rabbitmq.topics.admin import Admin, creation


def sets_marker(name: str) -> str:
    """The exchange that marks a topic as having queue sets, or as being one: AMQP cannot list them. A topic's is bound
    to those of its sets, and goes with the last of them.
    """
    return f"{name}.sets"


def bound_marker(own: Topic) -> str:
    """The exchange that exists while the queues of a set are bound to its topic."""
    return f"{own.marker}.bound"


def is_set(admin: Admin, topic: Topic) -> bool:
    """Whether this is a group's set, and not a topic that is called like one."""
    return set_of(topic.name) is not None and admin.has_exchange(sets_marker(topic.name))


def require_bound(admin: Admin, topic: Topic) -> None:
    """Raises TopicMissing for a set whose queues get nothing of its topic."""
    if is_set(admin, topic) and not admin.has_exchange(bound_marker(attrs.evolve(topic, layout=1))):
        name, group = set_of(topic.name) or ("", "")
        raise TopicMissing(
            f"The queues that group {group!r} has of topic {name!r} at {admin.place} are not bound to it: the topic was deleted and created again "
            "since, or they were made by an earlier version, or not completely. Make them whole, so that they get what is published from then "
            f"on: {creation(topic.name)}"
        )


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
            f"group={group!r}) or {creation(own.name)}."
        )


def mark_sets(admin: Admin, topic: Topic, own: Topic) -> None:
    """Prevents growing the set from here on, and the topic for as long as there is one."""
    admin.declare_exchange(sets_marker(own.name), {})
    admin.declare_attached(sets_marker(topic.name), sets_marker(own.name))


def bind_set(admin: Admin, topic: Topic, own: Topic) -> None:
    """Binds each queue of the set so that it gets what the topic's partition of the same number gets, then its marker."""
    for partition, queue in enumerate(own.queue_names):
        admin.bind(queue, topic.name, topic.routing_keys(partition))
    admin.declare_attached(bound_marker(own), topic.name)


def unbind_set(admin: Admin, topic: Topic, own: Topic) -> None:
    """Undoes that."""
    for partition, queue in enumerate(own.queue_names):
        admin.unbind(queue, topic.name, topic.routing_keys(partition))


def refuse_sets(admin: Admin, name: str) -> None:
    """Raises UsageError if the topic has queue sets: they would get nothing from new partitions."""
    if admin.has_exchange(sets_marker(name)):
        raise UsageError(
            f"Topic {name!r} has queue sets of groups, or is one, whose queues would get nothing of new partitions, so it cannot be grown. "
            "Delete the sets, if nobody needs them (cobalance topic delete TOPIC@GROUP), or make another topic with more partitions, with "
            "its sets, and let publishers change to it."
        )
