"""Growing a topic: adding partitions under load while every key's messages stay in order.

A topic has layouts. Layout 1 has the queues `orders-0…`; growing creates layout 2, with queues `orders.v2-0…`, at the
same exchange under other routing keys. Almost every key moves to another partition, so nothing in layout 2 may be
processed before everything in layout 1 is. That takes three steps, in this order:

1. *Close*: remove the bindings of layout 1. From here on its queues only get emptier. A publisher that does not know
   yet publishes with `mandatory`, so its message is returned. It reads the layout again, and meanwhile holds back what
   follows to that partition; what others still take is in the old layout. Once there is a newer one, and everything in
   flight is settled, it sends what was returned and held back, in the old order, ahead of anything newer.
2. *Open*: delete the exchange by whose presence members know that there is no newer layout (`orders.v1.12.newest`),
   bind layout 2, then declare its marker, the exchange `orders.v2`. Publishers use the newest layout that has a
   marker, so no one publishes to half a layout, and no one to layout 2 while layout 1 still accepts messages.
3. *Drain*: the member elected to look for queues (`discovery`) sees the marker. It declares the queues of layout 2 as
   resources only when those of layout 1 are empty, no member of the group holds one of them, and they have no consumer
   whose unacknowledged messages would be requeued (`layouts`). So a key's messages in layout 1 are processed and
   acknowledged before layout 2 is consumed at all.

A topic may be grown again at any time: each layout is consumed only when all older ones are empty.

A growth that is refused before the old layout is closed is called off: what it has made is removed.
An interrupted growth continues when it is requested again; until then publishers wait, and fail with PublishFailed
(nothing was sent) when they time out. Two growths exclude each other. Streams cannot be grown: they never become empty.

A topic is not grown while what is published to a closed layout would come to another queue instead of coming back: by an
alternate exchange, or another queue bound to the same exchange. Publishers would go on like that for ever, and every
message would be confirmed. This is found out by probes, messages marked as such that expire at once: one under a random
key before anything is changed, and one under each key as it is unbound. If that one is not returned, the layout is
opened again, and what was published under that key for one round trip has gone to the other queue alone. Given the
management API, such a queue is seen before anything is changed.

Assumptions. Publishers use this library, or publish with `mandatory` and handle returned messages in the same way. No
one binds the queues of an old layout again, or another queue under its keys; there is an alternate exchange again only
once every publisher has published in the new layout. RabbitMQ puts a message that it has routed into its queue within
`layouts.SETTLE_MS`: a later one would not be lost, but processed after its successors in the new layout. Only one
consumer group consumes the topic.
"""

import re
import uuid
from collections.abc import Iterator, Mapping

import attrs
from pika import BasicProperties
from pika import exceptions as pika_errors
from pika.adapters.blocking_connection import BlockingChannel

from cobalance.errors import (
    CobalanceError,
    PermissionMissing,
    QueueMissing,
    TopicMismatch,
    Unreachable,
    UsageError,
    counted,
    sentence,
)
from cobalance.limits import check_kind
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.topics.admin import DIRECT, LOCK_SUFFIX, Admin, connected, growth
from cobalance.rabbitmq.topics.broker import newest_layout, open_layout, read
from cobalance.rabbitmq.topics.management import bindings_of, exact_counts
from cobalance.rabbitmq.topics.own_queues import own_numbers
from cobalance.rabbitmq.topics.queue_sets import refuse_sets
from cobalance.rabbitmq.topics.queue_state import QueueState
from cobalance.rabbitmq.wire.failures import loss_reason

PROBE = BasicProperties(type="cobalance.probe", expiration="0")
"""No queue keeps it: only a consumer that waits for a message at that moment is given it."""


def grow_topic(url: str, name: str, partitions: int, *, management_url: str | None = None) -> Topic:
    """Adds partitions to a topic, keeping order; returns the topic as it is then.

    Asking for the current number changes nothing. Give the management API's URL if others may have bound queues to the
    topic's exchange: then such a queue is seen before it is given a message. Needs the permissions to create the topic, and to publish to it.

    Raises:
        TopicMissing: there is no such topic.
        TopicMismatch: it has more partitions.
        TopicInUse: another process is changing it.
        PermissionMissing: the user may not bind its queues, publish to it, or make what belongs to it. It is as it was.
        QueueMismatch: its dead-letter queue was declared in another way. It is as it was.
        ServerError: RabbitMQ refuses to create a queue, as beyond a limit. It is as it was.
        Unreachable: a new queue does not answer, so it is as it was; or RabbitMQ cannot be reached. If that left some of
            the growth, the message says so, and asking again goes on with it.
        UsageError: it consists of streams; or it has queue sets, an alternate exchange, or other queues bound to its
            exchange, so that publishers would not notice. It is as it was.
    """
    begun, is_closed = list[Topic](), False
    try:
        with connected(url) as admin, admin.changing(Topic(name, 1).name):
            old = read(admin, name)
            if old.partitions == partitions:
                return old
            new = attrs.evolve(old, partitions=partitions, layout=old.layout + 1)
            _check(old, new)
            refuse_sets(admin, name)
            admin.refuse_more_partitions(new)
            _require_permissions(admin, old, new)
            _refuse_alternate(admin, name)
            if management_url is not None:
                _refuse_others(bindings_of(url, name, management_url), old)
            begun = [old, new]
            for queue in new.queues:
                admin.declare(queue)
            _require_answers(admin, new)
            close_layout(admin, old)
            is_closed = True
            admin.delete_exchange(old.newest_marker)
            open_layout(admin, new)
            return new
    except CobalanceError as error:
        if begun and (is_closed or not _is_called_off(url, *begun)):
            error.args = (f"{sentence(error)} {_goes_on(name, partitions)}",)
        raise


def _goes_on(name: str, partitions: int) -> str:
    return (
        "Some of the growth is there, for which publishers may wait. It goes on when it is asked for again: "
        f"{growth(name, partitions)}"
    )


def close_layout(admin: Admin, topic: Topic) -> None:
    """Removes the bindings: no message enters the layout's queues from here on.

    Raises UsageError if publishers would not notice: then some are removed.
    """
    with admin.channel(topic.name) as channel:
        channel.confirm_delivery()
        for partition, queue in enumerate(topic.queue_names):
            for key in topic.routing_keys(partition):
                channel.queue_unbind(queue, topic.name, key)
                if _is_routed(channel, topic.name, key):
                    channel.queue_bind(queue, topic.name, key)
                    raise _bound_elsewhere(topic.name, f"a queue, under {key!r}")


def _is_called_off(url: str, old: Topic, new: Topic) -> bool:
    """Calls a growth off, on a connection of its own, as the other may be lost; False if some of it is still there."""
    try:
        with connected(url) as admin, admin.changing(old.name):
            # Otherwise another process has gone on with it, or created the topic again with another size.
            if newest_layout(admin, old.name) == old.layout and admin.has_exchange(old.size_marker):
                return _call_off(admin, old, new)
    except CobalanceError:
        return False
    return True


def _call_off(admin: Admin, old: Topic, new: Topic) -> bool:
    """Opens the old layout again, and only then removes the new one, for which publishers wait; returns whether all of it is gone."""
    for partition, queue in enumerate(old.queue_names):
        admin.bind(queue, old.name, old.routing_keys(partition))
    admin.declare_exchange(old.newest_marker, {})  # an earlier growth may have come that far
    return all(admin.delete_unused(queue, new.queue_type) for queue in new.queue_names)


def _is_routed(channel: BlockingChannel, exchange: str, routing_key: str) -> bool:
    """Whether a message under this key comes to any queue."""
    try:
        channel.basic_publish(exchange, routing_key, b"", PROBE, mandatory=True)
    except pika_errors.UnroutableError:
        return False
    except pika_errors.NackError:  # it came to one that is full
        pass
    return True


def _require_permissions(admin: Admin, old: Topic, new: Topic) -> None:
    """Raises before anything is changed: once the old layout is closed, publishers wait for the new one. It removes bindings
    that do not exist, as of a random key, and markers that an interrupted growth may have left; it declares what exists.
    """
    key, needs = f"cobalance.probe.{uuid.uuid4().hex}", ""
    try:
        if new.dead_letter_queue:
            needs = f"configure on queue {new.dead_letter_queue.name!r}"
            admin.declare(new.dead_letter_queue)
        with admin.channel(old.name) as channel:
            channel.confirm_delivery()
            needs = f"write on exchange {old.name!r}"
            channel.basic_publish(old.name, key, b"", PROBE)
            for queue in (*old.queue_names, *new.queue_names):
                needs = f"write on queue {queue!r}, and read on exchange {old.name!r}"
                channel.queue_unbind(queue, old.name, key)
            for marker in (new.marker, new.size_marker, new.newest_marker):
                needs = f"configure on exchange {marker!r}"
                channel.exchange_delete(marker)
            needs = f"configure on exchange {old.newest_marker!r}"
            channel.exchange_declare(old.newest_marker, DIRECT, durable=True)
            if new.dead_letter_queue:
                needs = "write on exchange 'amq.default'"
                channel.basic_publish("", key, b"", PROBE)
    except PermissionMissing:
        raise PermissionMissing(
            f"Topic {old.name!r} at {admin.place} cannot be grown by this user. That needs {needs}: configure, write and read on all "
            f"exchanges and queues of the topic, {old.name}*, and write on amq.default if it has dead letters. Nothing was changed."
        ) from None


def _require_answers(admin: Admin, new: Topic) -> None:
    """Raises before the old layout is closed if a queue would take nothing. One begins to be consumed only once it, or a
    majority of its replicas, has noted that; until the new layout is open there is nothing to consume.
    """
    for queue in new.queue_names:
        try:
            with admin.channel(queue) as channel:
                channel.basic_cancel(channel.basic_consume(queue, lambda *_: None))  # then nobody uses it
        except pika_errors.AMQPConnectionError as error:
            raise Unreachable(
                f"Topic {new.name!r} at {admin.place} was not grown: its new queue {queue!r} does not answer ({loss_reason(error)}); a quorum queue "
                "may have no leader or no majority. Its old partitions are as they were. Grow it again once the queue answers.",
                outcome="not_executed",
            ) from None


def _refuse_alternate(admin: Admin, name: str) -> None:
    with admin.channel(name) as channel:
        channel.confirm_delivery()
        if not _is_routed(channel, name, f"cobalance.probe.{uuid.uuid4().hex}"):
            return
    raise UsageError(
        f"Topic {name!r} at {admin.place} cannot be grown: what its exchange has no queue for goes to an alternate exchange instead of coming "
        "back, so publishers would not notice, and what they send would go there. Nothing was changed. Take the exchange out of that policy "
        "(rabbitmqctl list_policies), or create the topic without that argument; after the growth, put it back only once every publisher "
        "has published something or was restarted."
    )


def _refuse_others(bindings: set[tuple[str, str]], topic: Topic) -> None:
    own = {(queue, key) for partition, queue in enumerate(topic.queue_names) for key in topic.routing_keys(partition)}
    keys = {key for _, key in own}
    others = sorted({name for name, key in bindings - own if key in keys})
    if others:
        raise _bound_elsewhere(topic.name, ", ".join(others))


def _bound_elsewhere(name: str, what: str) -> UsageError:
    return UsageError(
        f"Topic {name!r} cannot be grown: others have bound to its exchange, too ({what}), so what is published to its old partitions would "
        "go there instead of coming back, and publishers would not notice. The topic is as it was. Unbind it (rabbitmqctl list_bindings), and "
        "give a group that is to get every message streams, or a topic of its own."
    )


def prune_topic(url: str, name: str, *, management_url: str | None = None) -> dict[str, bool]:
    """Deletes the queues of old layouts that have neither messages nor consumers; returns queue → whether it is gone.

    Call it once the new layout is consumed. A queue is in use as well if a program holds messages of it that has
    cancelled its consumer, or never had one (``basic_get``). RabbitMQ counts such a program as a consumer of a quorum
    queue, but not of a classic one: if there may be any, give the management API's URL. Then a classic queue is deleted
    only if it counts no messages when it is asked, held ones included. Whether the API asks it, instead of giving
    statistics that are some seconds old, is tried with a queue of our own; that takes the permission to write on
    amq.default. Members have a consumer for as long as they hold messages.

    Each layout is taken down from its end, and only to the first queue that is in use: queues are found by counting,
    and a gap must not hide one with messages.

    Raises:
        Unreachable: RabbitMQ cannot be asked, or does not say what a queue holds. That one and those before it are kept.
    """
    with connected(url) as admin, admin.changing(Topic(name, 1).name):
        old = [Topic(name, 1, layout=layout) for layout in range(1, newest_layout(admin, name))]
        counts = None if management_url is None or not old else _exact_counts(admin, url, management_url, name)
        return {queue: gone for it in old for queue, gone in _take_down(admin, it, counts)}


Counts = Mapping[str, int | None]


def _exact_counts(admin: Admin, url: str, management_url: str, name: str) -> Counts:
    """Raises Unreachable if they are statistics, which would not know yet what we have just taken from a queue of our own."""
    probe = f"{name}.{uuid.uuid4().hex}{LOCK_SUFFIX}"  # no topic's own lock
    with admin.channel(probe) as channel:
        channel.confirm_delivery()
        channel.queue_declare(probe, exclusive=True, arguments={"x-queue-type": "classic"})
        channel.basic_publish("", probe, b"")
        channel.basic_get(probe)
        counts = exact_counts(url, management_url, rf"^({re.escape(name)}(\.v[0-9]+)?-[0-9]+|{re.escape(probe)})$")
        channel.queue_delete(probe)
    if counts.get(probe) != 1:
        raise _uncounted(probe)
    return counts


def _take_down(admin: Admin, layout: Topic, counts: Counts | None) -> Iterator[tuple[str, bool]]:
    gone = True
    for number in reversed(own_numbers(admin, layout)):
        queue = layout.queue_name(number)
        gone = gone and _delete_unused(admin, queue, counts)
        yield queue, gone


def _delete_unused(admin: Admin, queue: str, counts: Counts | None) -> bool:
    """What once has no messages never has any again, as nothing is published to it: so it may have been counted earlier."""
    try:
        kind = admin.kind(queue)
    except QueueMissing:
        return True
    if counts is not None and kind != "quorum":
        messages = counts.get(queue)
        if messages is None:
            raise _uncounted(queue)
        if messages:
            return False
    return admin.delete_unused(queue, kind)


def _uncounted(queue: str) -> Unreachable:
    return Unreachable(
        f"RabbitMQ's management API does not say how many messages queue {queue!r} has at this moment, so a program without a consumer may "
        "hold some. It was not deleted. Try again; or, if there are no such programs, do without the management API."
    )


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
        raise TopicMismatch(
            f"Topic {old.name!r} has {counted(old.partitions, 'partition')}; it can be given more, not fewer."
        )
