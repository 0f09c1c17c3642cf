"""Growing a topic: adding partitions under load while every key's messages stay in order.

A topic has layouts. Layout 1 has the queues `orders-0…`; growing creates layout 2, with queues `orders.v2-0…`, at the
same exchange under other routing keys. Almost every key moves to another partition, so nothing in layout 2 may be
processed before everything in layout 1 is. That takes three steps, in this order:

1. *Close*: remove the bindings of layout 1. From here on its queues only get emptier. A publisher that does not know
   yet publishes with `mandatory`, so its message is returned; it waits until everything in flight is settled, reads the
   layout again, and sends what was returned, in the old order, ahead of anything newer.
2. *Open*: delete the exchange by whose presence members know that there is no newer layout (`orders.v1.12.newest`),
   bind layout 2, then declare its marker, the exchange `orders.v2`. Publishers use the newest layout that has a
   marker, so no one publishes to half a layout, and no one to layout 2 while layout 1 still accepts messages.
3. *Drain*: the member elected to look for queues (`discovery`) sees the marker. It declares the queues of layout 2 as
   resources only when those of layout 1 are empty, no member of the group holds one of them, and they have no consumer
   whose unacknowledged messages would be requeued (`layouts`). So a key's messages in layout 1 are processed and
   acknowledged before layout 2 is consumed at all.

A topic may be grown again at any time: each layout is consumed only when all older ones are empty.

An interrupted growth continues when it is requested again; until then publishers wait, and fail with PublishFailed
(nothing was sent) when they time out. Two growths exclude each other. Streams cannot be grown: they never become empty.

Assumptions. Publishers use this library, or publish with `mandatory` and handle returned messages in the same way. No
one binds the queues of an old layout again. RabbitMQ puts a message that it has routed into its queue within
`layouts.SETTLE_MS`: a later one would not be lost, but processed after its successors in the new layout. Only one
consumer group consumes the topic.
"""

from collections.abc import Iterator, Mapping

import attrs

from cobalance.errors import TopicMismatch, UsageError
from cobalance.limits import check_kind
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.admin import Admin, connected
from cobalance.rabbitmq.topics.broker import newest_layout, open_layout, read
from cobalance.rabbitmq.topics.management import unacknowledged_counts
from cobalance.rabbitmq.topics.own_queues import own_numbers
from cobalance.rabbitmq.topics.queue_sets import refuse_sets
from cobalance.rabbitmq.topics.queue_state import QueueState


def grow_topic(url: str, name: str, partitions: int) -> Topic:
    """Adds partitions to a topic, keeping order; returns the topic as it is then.

    Asking for the current number changes nothing.

    Raises:
        TopicMissing: there is no such topic.
        TopicMismatch: it has more partitions.
        TopicInUse: another process is changing it.
        UsageError: it consists of streams.
    """
    with connected(url) as admin, admin.changing(Topic(name, 1).name):
        old = read(admin, name)
        if old.partitions == partitions:
            return old
        new = attrs.evolve(old, partitions=partitions, layout=old.layout + 1)
        _check(old, new)
        refuse_sets(admin, name)
        admin.refuse_more_partitions(new)
        for queue in new.queues:
            admin.declare(queue)
        close_layout(admin, old)
        admin.delete_exchange(old.newest_marker)
        open_layout(admin, new)
        return new


def close_layout(admin: Admin, topic: Topic) -> None:
    """Removes the bindings: no message enters the layout's queues from here on."""
    for partition, queue in enumerate(topic.queue_names):
        admin.unbind(queue, topic.name, topic.routing_keys(partition))


def prune_topic(url: str, name: str, *, management_url: str | None = None) -> dict[str, bool]:
    """Deletes the queues of old layouts that have neither messages nor consumers; returns queue → whether it is gone.

    Call it once the new layout is consumed. A queue is in use as well if a program holds messages of it that has
    cancelled its consumer, or never had one; only the management API knows of those, so give its URL if there are such
    programs. Members have a consumer for as long as they hold messages.

    Each layout is taken down from its end, and only to the first queue that is in use: queues are found by counting,
    and a gap must not hide one with messages.
    """
    held = {} if management_url is None else unacknowledged_counts(url, management_url)
    with connected(url) as admin, admin.changing(Topic(name, 1).name):
        old = [Topic(name, 1, layout=layout) for layout in range(1, newest_layout(admin, name))]
        return {queue: gone for it in old for queue, gone in _take_down(admin, it, held)}


def _take_down(admin: Admin, layout: Topic, held: Mapping[str, int]) -> Iterator[tuple[str, bool]]:
    gone = True
    for number in reversed(own_numbers(admin, layout)):
        queue = f"{layout.prefix}-{number}"
        gone = gone and not held.get(queue) and admin.delete_unused(queue)
        yield queue, gone


@attrs.frozen
class PartitionState:
    """One partition queue of one layout."""

    layout: int
    queue: str
    state: QueueState


def describe_topic(url: str, name: str) -> tuple[Topic, list[PartitionState], int | None]:
    """Returns the topic, the existing queues of all its layouts, and the number of dead letters, or None."""
    check_kind("the topic's name", name, str)
    with connected(url) as admin:
        topic = read(admin, name)
        rows = []
        for layout in range(1, topic.layout + 1):
            its = attrs.evolve(topic, layout=layout)
            prefix = its.prefix
            for number in own_numbers(admin, its):
                state = admin.state(f"{prefix}-{number}")
                if state is not None:
                    rows.append(PartitionState(layout, f"{prefix}-{number}", state))
        return topic, rows, admin.ready(f"{name}.dead")


def _check(old: Topic, new: Topic) -> None:
    if old.queue_type == "stream":
        raise UsageError(
            f"Topic {old.name!r} consists of streams, which never become empty, so it cannot be grown in order."
        )
    if new.partitions < old.partitions:
        raise TopicMismatch(f"Topic {old.name!r} has {old.partitions} partitions; it can be given more, not fewer.")
