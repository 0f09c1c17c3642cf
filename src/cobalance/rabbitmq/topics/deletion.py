"""Deletes a topic with everything that belongs to it.

Unless it is forced, no message is deleted that RabbitMQ has confirmed, and tells of: the topic is *checked*, then
*closed*, which no message gets past, and each queue is asked *again* before it is deleted. A message that came in
between keeps its queue, and the topic stays closed: a publisher fails, which loses nothing, while a queue set could take
a message alone.
"""

from __future__ import annotations

import time
from contextlib import ExitStack
from itertools import chain

import attrs

from cobalance.errors import TopicInUse
from cobalance.limits import check_kind
from cobalance.rabbitmq.model.topic import MAX_PARTITIONS, Topic, set_of
from cobalance.rabbitmq.topics.admin import LOOK_AHEAD, Admin, connected, creation, deletion
from cobalance.rabbitmq.topics.broker import is_being_grown, newest_layout
from cobalance.rabbitmq.topics.layouts import SETTLE_MS
from cobalance.rabbitmq.topics.own_queues import own_among, recorded_size
from cobalance.rabbitmq.topics.queue_sets import bound_marker, is_set, sets_marker, unbind_set


def delete_topic(url: str, name: str, *, force: bool = False) -> None:
    """Deletes a topic's exchange, the partition queues of every layout and the dead-letter queue.

    An interrupted deletion continues when it is requested again: whatever finds the rest goes after it. That is the
    marker of the first layout, or the exchange, if that layout was never opened, or what marks a queue set as one.

    RabbitMQ does not tell of messages of a classic queue that a program without a consumer holds, which are deleted: stop
    such programs first.

    Raises:
        TopicInUse: there are messages or consumers, and `force` is not set; none of them was deleted. Or another
            process is changing it, or the topic of which it is a set.
    """
    check_kind("the topic's name", name, str)
    first = Topic(name, 1)
    with connected(url) as admin, ExitStack() as locks:
        whose = set_of(name) if is_set(admin, first) else None
        if not whose and not admin.has_exchange(first.marker):
            admin.require_exchange(name)
        if whose:  # its topic's lock first, as where a set is created
            locks.enter_context(admin.changing(whose[0]))
        locks.enter_context(admin.changing(name))
        _delete_topic(admin, first, force=force)
        if whose:  # a creation that died may not have bound it yet, so it does not go with the set's
            admin.delete_unused_exchange(sets_marker(whose[0]))


def _delete_topic(admin: Admin, first: Topic, *, force: bool) -> None:
    is_opened = admin.has_exchange(first.marker)
    layouts = _layouts(admin, first)
    queues = [f"{first.name}.dead", *chain.from_iterable(it.queues for it in layouts)]
    if not force:
        for queue in queues:
            admin.refuse_in_use(queue)
    _close(admin, first, layouts, is_opened=is_opened)
    if not force:
        time.sleep(SETTLE_MS / 1000)
        _refuse_what_came(admin, first.name, queues)
    kind = None if force else next((admin.kind(it) for it in queues if admin.exists(it)), "classic")
    _delete_queues(admin, first.name, queues[:1], kind)
    for it in layouts:
        if not it.is_open:  # It is found by its first queue, which goes last.
            _delete_size(admin, it)
        _delete_queues(admin, first.name, it.queues, kind)
        _delete_size(admin, it)
        if it.layout == first:
            admin.delete_exchange(bound_marker(first))
            admin.delete_exchange(sets_marker(first.name))
            admin.delete_exchange(first.name)
        admin.delete_exchange(it.layout.marker)


def _close(admin: Admin, first: Topic, layouts: list[_Layout], *, is_opened: bool) -> None:
    """Nothing is published to the queues from here on. The exchange of a topic that was never opened has to stay."""
    if is_opened:
        admin.delete_exchange(first.name)
    size = next((it.size for it in layouts if it.layout == first), None)
    if size and (whose := set_of(first.name)) and is_set(admin, first):  # one without a size was never bound
        topic = Topic(whose[0], size, layout=newest_layout(admin, whose[0]))
        unbind_set(admin, topic, attrs.evolve(first, partitions=size))


def _refuse_what_came(admin: Admin, name: str, queues: list[str]) -> None:
    for queue, state in admin.states(queues):
        if state is not None and (state.ready or state.consumers):
            raise _came(admin, name, queue)


def _delete_queues(admin: Admin, name: str, queues: list[str], unused_kind: str | None) -> None:
    """Those of this type only if nobody uses them; None: whatever they have."""
    for queue in queues:
        if unused_kind is None:
            admin.delete(queue)
        elif not admin.delete_unused(queue, unused_kind):
            raise _came(admin, name, queue)


def _came(admin: Admin, name: str, queue: str) -> TopicInUse:
    return TopicInUse(
        f"Queue {queue!r} at {admin.place} has messages or consumers, which came while topic {name!r} was being deleted; they are still "
        f"there, and nothing can be published any more. To go on with them, create the topic again, as it was: {creation(name)}. To delete "
        f"them, too: {deletion(name, force=True)}"
    )


@attrs.frozen
class _Layout:
    """What there is of a layout."""

    layout: Topic
    is_open: bool
    """False for one that an interrupted growth has left."""
    size: int | None
    """The number of partitions that it was opened with; None if it was not."""
    queues: list[str]
    """From its end, as queues are found by counting."""


def _layouts(admin: Admin, first: Topic) -> list[_Layout]:
    """From the newest open one on, then what an interrupted growth has left."""
    newest = attrs.evolve(first, layout=newest_layout(admin, first.name))
    ahead = LOOK_AHEAD if admin.has_exchange(first.name) else MAX_PARTITIONS  # so many may have been deleted already
    found = [_found(admin, attrs.evolve(first, layout=it), ahead) for it in range(newest.layout, 0, -1)]
    if is_being_grown(admin, newest):
        found.append(_found(admin, attrs.evolve(first, layout=newest.layout + 1), LOOK_AHEAD, is_open=False))
    return found


def _found(admin: Admin, layout: Topic, ahead: int, *, is_open: bool = True) -> _Layout:
    numbers = list(admin.partition_numbers(layout.prefix))
    size = recorded_size(admin, layout, numbers, ahead=ahead)
    queues = [f"{layout.prefix}-{number}" for number in reversed(own_among(numbers, size))]
    return _Layout(layout, is_open, size, queues)


def _delete_size(admin: Admin, found: _Layout) -> None:
    if found.size:
        sized = attrs.evolve(found.layout, partitions=found.size)
        admin.delete_exchange(sized.newest_marker)
        admin.delete_exchange(sized.size_marker)
