"""Deletes a topic with everything that belongs to it."""

from itertools import chain

import attrs

from cobalance.limits import check_kind
from cobalance.rabbitmq.model.topic import MAX_PARTITIONS, Topic
from cobalance.rabbitmq.topics.admin import LOOK_AHEAD, Admin, connected
from cobalance.rabbitmq.topics.broker import is_being_grown, newest_layout
from cobalance.rabbitmq.topics.own_queues import own_among, recorded_size
from cobalance.rabbitmq.topics.queue_sets import sets_marker


def delete_topic(url: str, name: str, *, force: bool = False) -> None:
    """Deletes a topic's exchange, the partition queues of every layout and the dead-letter queue.

    An interrupted deletion continues when it is requested again: whatever finds the rest goes after it. That is the
    marker of the first layout, or the exchange, if that layout was never opened.

    Raises:
        TopicInUse: there are messages or consumers, and `force` is not set; nothing was deleted. Or another process is
            changing it.
    """
    check_kind("the topic's name", name, str)
    first = Topic(name, 1)
    with connected(url) as admin:
        is_opened = admin.has_exchange(first.marker)
        if not is_opened:
            admin.require_exchange(name)
        with admin.changing(name):
            _delete_topic(admin, first, force=force, is_opened=is_opened)


def _delete_topic(admin: Admin, first: Topic, *, force: bool, is_opened: bool) -> None:
    name = first.name
    ahead = LOOK_AHEAD if admin.has_exchange(name) else MAX_PARTITIONS  # so many may have been deleted already
    newest = attrs.evolve(first, layout=newest_layout(admin, name))
    layouts = [_found(admin, attrs.evolve(first, layout=it), ahead) for it in range(newest.layout, 0, -1)]
    begun = attrs.evolve(first, layout=newest.layout + 1)
    layouts += [_found(admin, begun, LOOK_AHEAD)] if is_being_grown(admin, newest) else []
    for queue in [f"{name}.dead", *chain.from_iterable(it.queues for it in layouts)] if not force else ():
        admin.refuse_in_use(queue)
    if is_opened:
        admin.delete_exchange(name)
    admin.delete_exchange(sets_marker(name))
    admin.delete(f"{name}.dead")
    for it in layouts:
        if it.layout == begun:  # It is found by its first queue, which goes last.
            _delete_size(admin, it)
        for queue in it.queues:
            admin.delete(queue)
        _delete_size(admin, it)
        if it.layout == first:
            admin.delete_exchange(name)
        admin.delete_exchange(it.layout.marker)


@attrs.frozen
class _Layout:
    """What there is of a layout."""

    layout: Topic
    size: int | None
    """The number of partitions that it was opened with; None if it was not."""
    queues: list[str]
    """From its end, as queues are found by counting."""


def _found(admin: Admin, layout: Topic, ahead: int) -> _Layout:
    numbers = list(admin.partition_numbers(layout.prefix))
    size = recorded_size(admin, layout, numbers, ahead=ahead)
    queues = [f"{layout.prefix}-{number}" for number in reversed(own_among(numbers, size))]
    return _Layout(layout, size, queues)


def _delete_size(admin: Admin, found: _Layout) -> None:
    if found.size:
        sized = attrs.evolve(found.layout, partitions=found.size)
        admin.delete_exchange(sized.newest_marker)
        admin.delete_exchange(sized.size_marker)
