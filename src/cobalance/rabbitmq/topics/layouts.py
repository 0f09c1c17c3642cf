"""Which queues of a grown topic to consume now. `growth` describes the protocol; this is its third step.

    a closed layout holds messages, or a member is busy with it  its queues, as long as they are needed
    nothing is ready in it, and no member is busy with it        none: a holder finishes, acknowledges and releases
    no one holds a queue of it, none has a consumer or message   the next layout's; the newest layout's for good

A topic may be grown again before its first growth is worked off, so there may be several closed layouts. The
 decision uses only the state of RabbitMQ and of the group, so any member of the subscription may be its head at any
time. Once there is nothing left to decide, a look is one question, whether the layout's newest marker is still there, on
the member's own connection: a connection for each look, and a question to which the answer is no, cost RabbitMQ six
lines in its log, every five seconds and for each group.
"""

from __future__ import annotations

import logging
import time
from itertools import takewhile
from typing import TYPE_CHECKING

import attrs

from cobalance.backoff import Backoff
from cobalance.rabbitmq.model.topic import partition_named
from cobalance.rabbitmq.topics.admin import Admin, connected
from cobalance.rabbitmq.topics.broker import current_layout
from cobalance.rabbitmq.topics.own_queues import own_numbers
from cobalance.rabbitmq.topics.queue_sets import bound_marker, is_set, require_bound
from cobalance.rabbitmq.topics.queue_state import QueueState

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from cobalance.coordinator.client import ResourceRow
    from cobalance.rabbitmq.model.topic import Topic

log = logging.getLogger("cobalance.rabbitmq")

SETTLE_MS = 2_000
"""How long after a layout was seen closed a message may still be on its way to its queues, inside RabbitMQ."""

SOON_MS = Backoff(200, 5_000)
"""How soon to look again while a layout is being emptied; ever later while nothing changes there: a partition may be
halted for days, and each look takes a connection, and lines in RabbitMQ's log.
"""

RECOUNT_S = 60.0
"""How long the queues of a closed layout are taken to be the same: one that was deleted may be made again."""

REST_S = Backoff(5.0, 300.0)
"""How soon to look again at closed layouts that are empty, into which nothing should come; ever later."""

BUSY = "1"
"""The rank of a resource whose holder was busy when it was last heard of."""


@attrs.frozen
class Look:
    """What a source has found: the resources to declare (None: leave them as they are), and when to look again."""

    resources: tuple[str, ...] | None
    again_in_ms: int | None = None
    """None: at the group's usual interval."""


class LayoutSource:
    """One topic.

    Args:
        topic: as it was found.
        url: of RabbitMQ.
        is_there: whether RabbitMQ says that there is such an exchange; False also if that is not known.
    """

    def __init__(self, topic: Topic, url: str, is_there: Callable[[str], bool] = lambda _: False) -> None:
        self._topic, self._url, self._is_there = topic, url, is_there
        self._settled: Look | None = None
        """What the last look found, if that left nothing to decide."""
        self._rests, self._rest_until = 0, 0.0
        """How often closed layouts were found empty in a row, and when to look at them again."""
        self._is_set = False
        """Whether it is a group's set, which cannot be grown, but lose its topic."""
        self._newest_since = time.monotonic()
        self._last: object = None
        """What the last look found, and for how many looks it has been so."""
        self._same = 0
        self._late: set[str] = set()
        """Queues of closed layouts into which messages came, as was logged."""
        self._old_names: dict[int, list[str]] = {}
        """The queues of closed layouts: to find them takes many questions."""
        self._recount_at = 0.0

    @property
    def is_grown(self) -> bool:
        """Whether more than one layout is known."""
        return self._topic.layout > 1

    def owns(self, name: str) -> bool:
        """Whether this is a queue of one of the topic's layouts."""
        partition = partition_named(name)
        return partition is not None and partition[0] == self._topic.name

    def look(self, listed: Mapping[str, ResourceRow]) -> Look:
        """What to consume now, given the group's resources. Blocks; raises if RabbitMQ cannot be asked."""
        found, self._settled = self._settled, None
        if found is None or not self._may_rest(listed) or not self._is_there(self._resting_marker):
            found = self._look(listed)
            is_settled = set(found.resources or ()) == set(self._topic.queue_names)
            self._rests = self._rests + 1 if is_settled else 0
            self._rest_until = time.monotonic() + REST_S.pause(self._rests)
        self._settled = found if self._rests else None
        return found

    @property
    def _resting_marker(self) -> str:
        """The exchange that exists as long as everything is as it was found."""
        return bound_marker(self._topic) if self._is_set else self._topic.newest_marker

    def _may_rest(self, listed: Mapping[str, ResourceRow]) -> bool:
        if not self.is_grown:
            return True
        return _is_begun(self._topic.queue_names, listed) and time.monotonic() < self._rest_until

    def _look(self, listed: Mapping[str, ResourceRow]) -> Look:
        with connected(self._url) as admin:
            self._is_set = is_set(admin, self._topic)
            require_bound(admin, self._topic)
            topic = current_layout(admin, self._topic)
            if topic.layout != self._topic.layout:
                self._topic, self._newest_since, self._recount_at = topic, time.monotonic(), 0.0
            if topic.layout == 1:
                return Look(topic.queue_names)
            old = self._old_queues(admin, topic)
            settled = not any(old) or time.monotonic() - self._newest_since > SETTLE_MS / 1000
            resources = decide(topic.queue_names, old, listed, settled=settled)
            if not _is_begun(resources, listed) and not _are_unused(admin, topic, _before(resources, old)):
                resources = ()
        is_begun = set(topic.queue_names) <= set(resources)
        self._tell_late(set(resources).difference(topic.queue_names) if is_begun else set())
        return Look(resources, None if is_begun else self._soon_ms((resources, old)))

    def _tell_late(self, names: set[str]) -> None:
        """Once for each: what cannot be processed stays there for long."""
        if names - self._late:
            log.error("messages came into %s, whose layout is closed: they are processed now, late", _in_words(names))
        self._late = names

    def _soon_ms(self, found: object) -> int:
        self._same = self._same + 1 if found == self._last else 1
        self._last = found
        return int(SOON_MS.pause(self._same))

    def _old_queues(self, admin: Admin, topic: Topic) -> list[dict[str, QueueState]]:
        """The existing queues of each closed layout, the oldest layout first."""
        found: list[dict[str, QueueState]] = []
        if time.monotonic() >= self._recount_at:
            self._old_names.clear()
            self._recount_at = time.monotonic() + RECOUNT_S
        for number in range(1, topic.layout):
            layout = attrs.evolve(topic, layout=number)
            names = self._old_names.pop(number, None)
            if names is None:
                names = [layout.queue_name(partition) for partition in own_numbers(admin, layout)]
            states = {name: admin.state(name) for name in names}
            found.append({name: state for name, state in states.items() if state is not None})
            if None not in states.values():  # otherwise some were deleted: they are counted again
                self._old_names[number] = names
        return found


def decide(
    newest: tuple[str, ...],
    old: Sequence[Mapping[str, QueueState]],
    listed: Mapping[str, ResourceRow],
    *,
    settled: bool,
) -> tuple[str, ...]:
    """The resources to declare.

    `old` has the closed layouts, the oldest first. `listed` was read before it, so a queue no longer listed has no
    holder, whatever happens later.
    """
    if _is_begun(newest, listed):
        return tuple(sorted({*newest, *_backlog(old)}))
    begun = [number for number, layout in enumerate(old) if _is_begun(layout, listed)]
    if begun:  # what comes into an older layout meanwhile is late
        at_work = old[: begun[-1] + 1]
        staying = {name for layout in at_work for name in layout if name in listed and not listed[name].removing}
        backlog = _backlog(at_work)
        return tuple(sorted(backlog | staying)) if backlog or any(listed[it].rank == BUSY for it in staying) else ()
    due = next((number for number, layout in enumerate(old) if _backlog([layout])), len(old))
    if due and not settled:
        return ()
    if any(name in listed or state.consumers for layout in old[:due] for name, state in layout.items()):
        return ()
    return newest if due == len(old) else tuple(sorted(_backlog([old[due]])))


def _backlog(layouts: Iterable[Mapping[str, QueueState]]) -> set[str]:
    return {name for layout in layouts for name, state in layout.items() if state.ready}


def _before(resources: Collection[str], old: Iterable[Mapping[str, QueueState]]) -> list[str]:
    """The queues of the closed layouts before that of the resources."""
    older = takewhile(lambda layout: resources and layout.keys().isdisjoint(resources), old)
    return [name for layout in older for name in layout]


def _is_begun(queues: Iterable[str], listed: Mapping[str, ResourceRow]) -> bool:
    return any(name in listed and not listed[name].removing for name in queues)


def _are_unused(admin: Admin, topic: Topic, old: Iterable[str]) -> bool:
    """For certain: once a layout is consumed, what is left in an older one comes late."""
    return all(admin.is_unused(name, topic.queue_type) for name in old)


def _in_words(names: set[str]) -> str:
    return ", ".join(sorted(names))
