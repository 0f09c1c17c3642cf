"""Creates, checks and reads topics and queues: short blocking calls, for setup and the CLI."""

import logging
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from itertools import takewhile
from typing import cast

import attrs
from pika import exceptions as pika_errors

from cobalance.errors import (
    CobalanceError,
    PermissionMissing,
    QueueMissing,
    TopicInUse,
    TopicMismatch,
    TopicMissing,
    Unreachable,
    UsageError,
    counted,
)
from cobalance.limits import check_kind
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.model.retention import Retention
from cobalance.rabbitmq.model.topic import (
    DELIVERY_LIMIT,
    LEAST_LIMIT,
    MAX_PARTITIONS,
    UNLIMITED,
    QueueType,
    Topic,
    set_of,
)
from cobalance.rabbitmq.topics.admin import LOOK_AHEAD, Admin, connected, creation, deletion, growth
from cobalance.rabbitmq.topics.own_queues import recorded_size
from cobalance.rabbitmq.topics.queue_sets import bind_set, is_set, mark_sets, own_set, refuse_as_topic, require_bound
from cobalance.rabbitmq.topics.queue_state import QueueState
from cobalance.rabbitmq.wire.failures import limit_too_low

logger = logging.getLogger("cobalance.rabbitmq")

PARTITIONS_ARGUMENT = "x-cobalance-partitions"
"""Marks an exchange as a topic, or as a layout of one. RabbitMQ keeps arguments that it does not know, and the
management API shows them.
"""

LAYOUT_ARGUMENT = "x-cobalance-layout"
"""Marks an exchange, in addition, as the marker of a layout."""

CORRECT = "Correct the number where a program states it, and restart one that states none"
"""The latter has found a topic that was created again since."""


def create_topic(url: str, topic: Topic, *, group: str | None = None) -> Topic:
    """Declares the topic's exchange, queues and bindings. Returns the topic as it is on the broker.

    What already exists must match and is left as it is; a topic that has been grown since matches. What is missing is
    made again, bindings as well, if the user may; queues that were deleted are empty then, which is logged.

    With a `group`, also creates a queue set for it, which receives every message from then on, as the topic's own
    queues do. Returns that set, which is consumed like a topic and equals `topic.for_group(group)`. A topic with queue
    sets cannot be grown.

    Raises:
        UsageError: it has a `delivery_limit` of 0 or 1, which handovers alone use up; or one, but no dead letters:
            RabbitMQ would drop messages. One of the latter that exists is consumed like that all the same.
        TopicInUse: another process is changing it; or it is to get a queue set, but its growth was interrupted.
    """
    _check_kinds(url, topic)
    if topic.queue_type == "quorum" and topic.delivery_limit is not None and topic.delivery_limit < LEAST_LIMIT:
        remedy = f"Leave out delivery_limit, or give at least {LEAST_LIMIT}."
        raise limit_too_low(f"Topic {topic.name!r}", topic.delivery_limit, remedy)
    if topic.drops:
        raise UsageError(
            f"Topic {topic.name!r} has delivery_limit={topic.delivery_limit} and no dead letters: RabbitMQ would drop what was sent ahead and "
            "returned that often, even if no handler was ever given it. Leave out delivery_limit, or dead_letter=False."
        )
    if group is None:
        return _existing_set(url, topic) or _create_topic(url, topic)
    return _create_set(url, topic, own_set(topic, group))


def _existing_set(url: str, topic: Topic) -> Topic | None:
    """The set that this is: it is bound to its topic, so it is created, and made whole, only through that."""
    if set_of(topic.name) is None:
        return None
    with connected(url) as admin:
        if is_set(admin, topic):
            return verify(admin, topic)
        refuse_as_topic(admin, topic)
    return None


def _check_kinds(url: object, topic: object) -> None:
    check_kind("url", url, str)
    check_kind("topic", topic, Topic)


def _create_set(url: str, topic: Topic, own: Topic) -> Topic:
    """All of it under both locks, on the connection that holds them: once that is lost, nothing more is done."""
    with connected(url) as admin, admin.changing(topic.name), admin.changing(own.name):
        current = _made_whole(admin, topic)
        _refuse_if_being_grown(admin, current)
        mark_sets(admin, topic, own)
        own = _made_whole(admin, attrs.evolve(own, partitions=current.partitions))
        bind_set(admin, current, own)
        return own


def _create_topic(url: str, topic: Topic) -> Topic:
    with connected(url) as admin:
        if current := _complete(admin, topic):
            # A user who may not, and another process that changes the topic just now, leave its bindings as they are.
            with suppress(PermissionMissing, TopicInUse), admin.changing(topic.name, patience_s=0):
                _bind_again(admin, current)
            return current
        with admin.changing(topic.name):
            return _make(admin, topic)


def _made_whole(admin: Admin, topic: Topic) -> Topic:
    """The same, where the lock of the topic is held already."""
    current = _complete(admin, topic)
    if current is None:
        return _make(admin, topic)
    with suppress(PermissionMissing):
        _bind_again(admin, current)
    return current


def _complete(admin: Admin, topic: Topic) -> Topic | None:
    """The topic as it is, if none of its queues is missing; it may lack bindings."""
    if not admin.has_exchange(topic.marker):
        return None
    try:
        current = verify(admin, topic)
        if current.dead_letter_queue:
            admin.verify(current.dead_letter_queue)
    except (QueueMissing, TopicMissing):
        return None  # Something has been deleted since; it is created again.
    return current


def _make(admin: Admin, topic: Topic) -> Topic:
    current = current_layout(admin, topic, restores=True)
    admin.refuse_more_partitions(current)
    lost = _lost_queues(admin, current) if admin.has_exchange(current.marker) else []
    admin.declare_exchange(topic.name, {PARTITIONS_ARGUMENT: topic.partitions})
    open_layout(admin, current)
    if lost:
        logger.warning(
            "topic %s had lost queues, and what they held: %s. They are there again", topic.name, ", ".join(lost)
        )
    return current


def _bind_again(admin: Admin, topic: Topic) -> None:
    """Restores bindings that were removed by hand: AMQP does not tell which there are. Leaves them as they are to a growth
    that was interrupted, which may have closed this layout, and to a topic that was created again with another size.
    """
    is_same = admin.has_exchange(topic.size_marker) and newest_layout(admin, topic.name) == topic.layout
    if is_same and not is_being_grown(admin, topic):
        _bind(admin, topic)


def _bind(admin: Admin, topic: Topic) -> None:
    for partition, name in enumerate(topic.queue_names):
        admin.bind(name, topic.name, topic.routing_keys(partition))


def _lost_queues(admin: Admin, topic: Topic) -> list[str]:
    """The queues that are missing. Raises QueueMismatch if the others are not like those that would be made."""
    lost = []
    for queue in topic.queues:
        try:
            admin.verify(queue)
        except QueueMissing:
            lost.append(queue.name)
    return lost


def open_layout(admin: Admin, topic: Topic) -> None:
    """Declares and binds a layout's queues, then its markers: once its marker exists, the rest does."""
    if topic.dead_letter_queue:
        admin.declare(topic.dead_letter_queue)
    for queue in topic.queues:
        admin.declare(queue)
    _bind(admin, topic)
    admin.declare_exchange(topic.size_marker, {})
    admin.declare_exchange(topic.newest_marker, {})
    admin.declare_exchange(topic.marker, {PARTITIONS_ARGUMENT: topic.partitions, LAYOUT_ARGUMENT: topic.layout})


def current_layout(admin: Admin, topic: Topic, *, restores: bool = False) -> Topic:
    """Returns the newest open layout with its actual number of partitions; the topic itself unless it has been grown, or
    was created again since it had that layout.

    So a program can keep stating the number of partitions that the topic was created with. Raises QueueMissing if some
    are missing in a topic that was grown, unless the caller `restores` them.
    """
    newest = newest_layout(admin, topic.name)
    is_another = newest < topic.layout and admin.has_exchange(attrs.evolve(topic, layout=newest).marker)
    if newest <= topic.layout and not is_another:
        _refuse_other_size(admin, topic)
        return topic
    partitions = _count(admin, attrs.evolve(topic, layout=newest), restores=restores)
    if topic.partitions > partitions and not is_another:
        raise TopicMismatch(
            f"Topic {topic.name!r} at {admin.place} was grown to {counted(partitions, 'partition')}, which is less than {topic.partitions}. "
            f"{CORRECT}; or grow it: {growth(topic.name, topic.partitions)}"
        )
    return attrs.evolve(topic, partitions=partitions, layout=newest)


def _refuse_other_size(admin: Admin, topic: Topic) -> None:
    """Raises TopicMismatch if the layout was opened with another number of partitions.

    Its publishers and consumers would disagree on where a key goes, and queues that only one of them knows would never
    be processed.
    """
    if not admin.has_exchange(topic.marker) or admin.has_exchange(topic.size_marker):
        return
    if not admin.has_exchange(topic.name):
        raise TopicMismatch(
            f"Topic {topic.name!r} at {admin.place} was not deleted completely, and whether it had {counted(topic.partitions, 'partition')} is not known "
            f"any more. Delete the rest of it, then create it again: {deletion(topic.name, force=True)}"
        )
    size = recorded_size(admin, topic, list(admin.partition_numbers(topic.prefix)))
    if size is None:
        raise TopicMismatch(
            f"Topic {topic.name!r} at {admin.place} does not have {counted(topic.partitions, 'partition')}, or was created by an earlier version, which "
            f"did not record how many. {CORRECT}; or delete it and create it again: {deletion(topic.name)}"
        )
    if is_set(admin, topic):
        raise TopicMismatch(
            f"The queue set {topic.name!r} at {admin.place} has {counted(size, 'partition')}, not {topic.partitions}. It has what was published to its "
            f"topic before that was deleted and created again. Delete it, then create it again: {deletion(topic.name)}"
        )
    raise TopicMismatch(
        f"Topic {topic.name!r} at {admin.place} has {counted(size, 'partition')}, not {topic.partitions}. {CORRECT}; "
        f"a topic that does not consist of streams can be given more: {growth(topic.name)}"
    )


def _count(admin: Admin, layout: Topic, *, restores: bool = False) -> int:
    """The number of partitions that a layout was opened with, all of which must exist, unless the caller `restores` them.

    That is recorded beside its marker. Without that check, losing the last queue would spread keys over the remaining
    ones.
    """
    found = list(admin.partition_numbers(layout.prefix))
    size = recorded_size(admin, layout, found, ahead=MAX_PARTITIONS if restores else LOOK_AHEAD)
    own = set(found)  # others may have such a name by chance
    missing = next((it for it in range(size or MAX_PARTITIONS) if it not in own), None)
    if size is None or not (missing is None or restores):
        raise _incomplete(admin, layout, size, layout.queue_name(missing or 0))
    return size


def _incomplete(admin: Admin, layout: Topic, size: int | None, queue: str) -> QueueMissing:
    number = "a number of partitions that is not known" if size is None else counted(size, "partition")
    remedy = (
        "what it held is lost. To bring it back, empty, create the topic again, with the type and the options that it had: "
        f"{creation(layout.name, size)}"
    )
    if size is None:
        remedy = f"the topic was not deleted completely. Delete the rest of it: {deletion(layout.name)}"
    return QueueMissing(
        f"Queue {queue!r} or a later one was deleted: layout {layout.layout} of topic {layout.name!r} at {admin.place} was opened with "
        f"{number}. Publishers and consumers would disagree on where a key goes: {remedy}."
    )


def newest_layout(admin: Admin, name: str) -> int:
    """The number of the newest open layout."""
    layout = 1
    while admin.has_exchange(f"{name}.v{layout + 1}"):
        layout += 1
    return layout


def is_being_grown(admin: Admin, topic: Topic) -> bool:
    """Whether a newer layout is being made; its first queue exists before the old layout is closed."""
    return admin.exists(attrs.evolve(topic, layout=topic.layout + 1).queue_names[0])


def _refuse_if_being_grown(admin: Admin, topic: Topic) -> None:
    """Raises TopicInUse if a growth was interrupted.

    The queues of a set would take what is published to a layout that may be closed, and the growth could not go on.
    """
    if is_being_grown(admin, topic):
        raise TopicInUse(
            f"Topic {topic.name!r} at {admin.place} is being grown, and that was interrupted, so no queue set was created. Complete it "
            f"first, with the number of partitions that it is to have: {growth(topic.name)}"
        )


def verify_topic(url: str, topic: Topic) -> Topic:
    """Checks that the broker has exactly this topic, or has grown it. Returns the topic as it is.

    Raises:
        TopicMissing, QueueMissing, QueueMismatch, TopicMismatch: it does not.
    """
    _check_kinds(url, topic)
    with connected(url) as admin:
        return verify(admin, topic)


def verify(admin: Admin, topic: Topic) -> Topic:
    """See `verify_topic`."""
    _require_complete(admin, topic)
    current = current_layout(admin, topic)
    for queue in current.queues:
        try:
            admin.verify(queue)
        except QueueMissing:
            raise _incomplete(admin, current, current.partitions, queue.name) from None
    admin.refuse_more_partitions(current)
    return current


def check_topic(url: str, topic: Topic, *, timeout_ms: int = 10_000) -> Topic:
    """Checks that a topic with this name and size exists, or did and has been grown. Returns the topic as it is.

    This is what a publisher needs to know; unlike `verify_topic` it needs no permission to configure queues.

    Raises:
        TopicMissing, QueueMissing, TopicMismatch: there is no such topic.
    """
    _check_kinds(url, topic)
    with connected(url, timeout_ms, in_all=True) as admin:
        return check(admin, topic)


def check(admin: Admin, topic: Topic) -> Topic:
    """See `check_topic`."""
    _require_complete(admin, topic)
    current = current_layout(admin, topic)
    if missing := admin.first_missing(current.queue_names):  # another queue that is bound alike may hide that
        raise _incomplete(admin, current, current.partitions, missing)
    admin.refuse_more_partitions(current)
    return current


def read_topic(url: str, name: str) -> Topic:
    """Reads a topic from the broker; raises TopicMissing."""
    check_kind("the topic's name", name, str)
    with connected(url) as admin:
        return read(admin, name)


def read(admin: Admin, name: str) -> Topic:
    """See `read_topic`."""
    found = find(admin, name)
    arguments = admin.learn(found.queue_names[0]).arguments
    is_stream = arguments["x-queue-type"] == "stream"
    return attrs.evolve(
        found,
        queue_type=cast("QueueType", arguments["x-queue-type"]),
        delivery_limit=_limit(int(arguments.get("x-delivery-limit", DELIVERY_LIMIT))),
        dead_letter="x-dead-letter-routing-key" in arguments or is_stream,
        retention=Retention.read(arguments) if is_stream else Retention(),
    )


def _limit(declared: int) -> int:
    """A negative limit is no limit to RabbitMQ 4, and no topic's."""
    return declared if 0 <= declared <= UNLIMITED else UNLIMITED


def topic_again(admin: Admin, asked_for: Topic | str, known: Topic) -> Topic:
    """The topic as it is now, to who knew it like this and asked for it by name, or as one of a certain size.

    Raises:
        TopicMissing, QueueMissing, TopicMismatch: there is no such topic now.
    """
    try:
        return current_layout(admin, known)
    except TopicMismatch:  # it was created again
        return find(admin, asked_for) if isinstance(asked_for, str) else current_layout(admin, asked_for)


def find_topic(url: str, name: str, *, timeout_ms: int = 10_000) -> Topic:
    """Reads a topic's partitions and layout, which is what a publisher needs; raises TopicMissing.

    Unlike `read_topic` it needs no permission to configure queues, and does not learn their type.
    """
    with connected(url, timeout_ms, in_all=True) as admin:
        return find(admin, name)


def find(admin: Admin, name: str) -> Topic:
    """See `find_topic`."""
    layout = Topic(name, 1)
    _require_complete(admin, layout)
    layout = attrs.evolve(layout, layout=newest_layout(admin, name))
    return attrs.evolve(layout, partitions=_count(admin, layout))


def _require_complete(admin: Admin, topic: Topic) -> None:
    """Raises TopicMissing unless the topic was created completely: until then it looks like a smaller one."""
    admin.require_exchange(topic.name)
    first = attrs.evolve(topic, layout=1)
    if admin.has_exchange(first.marker):
        require_bound(admin, topic)
        return
    remedy = (
        f"Try again in a moment. If it stays so, create it, with its real number of partitions: {creation(topic.name)}"
    )
    if admin.exists(first.queue_names[0]):
        raise TopicMissing(
            f"Topic {topic.name!r} at {admin.place} is not complete: it is being created or deleted, which may have been interrupted. {remedy}"
        )
    raise TopicMissing(
        f"{topic.name!r} at {admin.place} is an exchange without the queue {first.queue_names[0]}, so it is not a topic yet: it is being "
        f"created or deleted, or is another program's. {remedy}"
    )


def learn_queue(url: str, name: str) -> Queue:
    """Reads an existing queue's declaration, from which its guard follows; raises QueueMissing."""
    check_kind("the queue's name", name, str)
    with connected(url) as admin:
        return admin.learn(name)


def readable_queues(url: str, names: Iterable[str]) -> list[Queue]:
    """The declarations of those queues that can be read and worked.

    Others are left out: one was deleted, is exclusive to another connection, may not be used by this user, or would be
    deleted at its first handover.
    """
    queues = []
    with connected(url) as admin:
        for name in names:
            with suppress(CobalanceError):
                queues.append(admin.learn(name))
    return [queue for queue in queues if not queue.auto_delete]


@attrs.frozen(kw_only=True)
class QueueStates:
    """What one RabbitMQ holds."""

    place: str
    """Its host and port."""
    version: str | None
    by_queue: Mapping[str, QueueState | None]
    """Ready messages and number of consumers; None for a queue that does not exist. Those for which there was no time,
    or that RabbitMQ does not know about at the moment, are left out.
    """
    silent: frozenset[str] = frozenset()
    """Those of which RabbitMQ was asked, and told nothing."""


def queue_states(url: str, queues: Iterable[str], *, timeout_ms: int = 10_000, within_ms: int = 60_000) -> QueueStates:
    """The state of each queue.

    Args:
        url: of RabbitMQ.
        queues: their names.
        timeout_ms: how long to wait for the connection, and then for each answer.
        within_ms: how long all of it may take.
    """
    give_up_at = time.monotonic() + within_ms / 1000
    asked, found = list[str](), dict[str, QueueState | None]()

    def in_time() -> Iterator[str]:
        for queue in takewhile(lambda _: time.monotonic() < give_up_at, queues):
            asked.append(queue)
            yield queue

    queues, place, version, is_done = iter(queues), "", None, False
    while not is_done:
        try:
            with connected(url, min(timeout_ms, within_ms), give_up_at=give_up_at) as admin:
                place, version = admin.place, admin.version
                # One whose process hangs leaves this connection without an answer; the others are asked on the next.
                with suppress(pika_errors.AMQPConnectionError):
                    for queue, state in admin.states(in_time()):
                        found[queue] = state
                    is_done = True
        except Unreachable:
            if not asked or time.monotonic() < give_up_at:
                raise
        is_done = is_done or time.monotonic() >= give_up_at
    silent = frozenset(asked) - found.keys()
    return QueueStates(place=place, version=version, by_queue=found, silent=silent)


def ready_messages(url: str, queues: Iterable[str], *, timeout_ms: int = 10_000) -> dict[str, int | None]:
    """Number of messages ready for the next consumer in each queue; None for a queue that does not exist.

    Messages prefetched by the current consumer are not counted.
    """
    with connected(url, timeout_ms) as admin:
        return {queue: admin.ready(queue) for queue in queues}
