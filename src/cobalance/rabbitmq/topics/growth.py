"""Growing a topic: more partitions, and still every key's messages in order, whatever publishers and consumers do meanwhile.

A topic has layouts. Layout 1 has the queues `orders-0…`; growing makes layout 2, with queues `orders.v2-0…`, at the same exchange
under other routing keys. Almost every key has another partition there, so nothing of layout 2 may be processed before everything of
layout 1 is. That takes three steps, in this order:

1. *Close*: the bindings of layout 1 are removed. From here on its queues only become emptier. A publisher that does not know yet
   publishes with `mandatory`, so its message comes back; it waits until everything it has under way is settled, reads the layout
   again, and sends what came back, in its old order, ahead of anything newer.
2. *Open*: layout 2 is bound, and then its marker, the exchange `orders.v2`, is declared. Publishers take the newest layout that has
   a marker, so nobody publishes to half a layout, and nobody to layout 2 while layout 1 takes anything.
3. *Drain*: the member that is elected to look (`discovery`) sees the marker. It declares the queues of layout 2 as resources only
   when those of layout 1 are empty, nobody in the group holds one of them any more, and they have no consumer, whose unacknowledged
   messages would come back (`layouts`). So what a key had in layout 1 is processed and acknowledged before layout 2 is consumed at all.

A growth that was interrupted goes on when it is asked for again; until then publishers wait, and fail with PublishFailed (nothing
was sent) when their patience ends. Two growths exclude each other. Streams cannot be grown: they never become empty.

Assumptions. Publishers use this library, or publish with `mandatory` and handle what comes back in the same way. Nobody binds the
queues of an old layout again. RabbitMQ brings a message that it has routed into its queue within `layouts.SETTLE_MS`: one that came
later would not be lost, but processed later than its successors in the new layout. One consumer group consumes the topic.
"""

from collections.abc import Iterator

import attrs

from cobalance.errors import TopicMismatch, UsageError
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.admin import Admin, QueueState, connected
from cobalance.rabbitmq.topics.broker import newest_layout, open_layout, read
from cobalance.rabbitmq.topics.queue_sets import refuse_sets


def grow_topic(url: str, name: str, partitions: int) -> Topic:
    """Gives a topic more partitions, in order; returns it as it is then. Asking for the number it has changes nothing.

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
        open_layout(admin, new)
        return new


def close_layout(admin: Admin, topic: Topic) -> None:
    """From here on nothing gets into the layout's queues."""
    for partition, queue in enumerate(topic.queues):
        admin.unbind(queue, topic.name, topic.routing_key(partition))


def is_being_grown(admin: Admin, topic: Topic) -> bool:
    """Whether a newer layout is being made; its first queue exists before the old one is closed."""
    return admin.exists(attrs.evolve(topic, layout=topic.layout + 1).queue_names[0])


def prune_topic(url: str, name: str) -> dict[str, bool]:
    """Deletes the queues of old layouts, as far as they have neither messages nor consumers; for when the new layout is consumed.
    Queue → whether it is gone.

    Each layout is taken down from its end, and no further than to the first queue that is in use: queues are found by counting, and
    one with messages must not be hidden behind a gap.
    """
    with connected(url) as admin, admin.changing(Topic(name, 1).name):
        old = [Topic(name, 1, layout=layout) for layout in range(1, newest_layout(admin, name))]
        return {queue: gone for it in old for queue, gone in _take_down(admin, it)}


def _take_down(admin: Admin, layout: Topic) -> Iterator[tuple[str, bool]]:
    gone = True
    for number in reversed(list(admin.partition_numbers(layout.prefix))):
        queue = f"{layout.prefix}-{number}"
        gone = gone and admin.delete_unused(queue)
        yield queue, gone


@attrs.frozen
class PartitionState:
    """One partition queue of one layout."""

    layout: int
    queue: str
    state: QueueState


def describe_topic(url: str, name: str) -> tuple[Topic, list[PartitionState], int | None]:
    """The topic, the queues of all its layouts as far as they exist, and how many dead letters there are (None: it keeps none)."""
    with connected(url) as admin:
        topic = read(admin, name)
        rows = []
        for layout in range(1, topic.layout + 1):
            prefix = attrs.evolve(topic, layout=layout).prefix
            for number in admin.partition_numbers(prefix):
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
