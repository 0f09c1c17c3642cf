"""Which queues of a grown topic to consume now. `growth` describes the protocol; this is its third step.

    closed layouts hold messages, or a member is busy with one  their queues, as long as they are needed
    nothing is ready in them, and no member is busy with one    none: a holder finishes, acknowledges and releases
    no one holds one, and none has a consumer or a message      the newest layout's, for good

The decision uses only the state of RabbitMQ and of the group, so any member of the subscription may be its head at any
time.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING

import attrs

from cobalance.rabbitmq.model.topic import partition_named
from cobalance.rabbitmq.topics.admin import Admin, QueueState, connected
from cobalance.rabbitmq.topics.broker import current_layout

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cobalance.coordinator.client import ResourceRow
    from cobalance.rabbitmq.model.topic import Topic

log = logging.getLogger("cobalance.rabbitmq")

SETTLE_MS = 2_000
"""How long after a layout was seen closed a message may still be on its way to its queues, inside RabbitMQ."""

SOON_MS = 200
"""How soon to look again while a layout is being emptied."""

BUSY = "1"
"""The rank of a resource whose holder was busy when it was last heard of."""


@attrs.frozen
class Look:
    """What a source has found: the resources to declare (None: leave them as they are), and when to look again."""

    resources: tuple[str, ...] | None
    again_in_ms: int | None = None
    """None: at the group's usual interval."""


class LayoutSource:
    def __init__(self, topic: Topic, url: str) -> None:
        self._topic, self._url = topic, url
        self._newest_since = time.monotonic()

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
        with connected(self._url) as admin:
            topic = current_layout(admin, self._topic)
            if topic.layout > self._topic.layout:
                self._topic, self._newest_since = topic, time.monotonic()
            if topic.layout == 1:
                return Look(topic.queue_names)
            old = _old_queues(admin, topic)
        settled = not old or time.monotonic() - self._newest_since > SETTLE_MS / 1000
        resources = decide(topic.queue_names, old, listed, settled=settled)
        return Look(resources, None if set(topic.queue_names) <= set(resources) else SOON_MS)


def decide(
    newest: tuple[str, ...], old: Mapping[str, QueueState], listed: Mapping[str, ResourceRow], *, settled: bool
) -> tuple[str, ...]:
    """The resources to declare.

    `listed` was read before `old`, so a queue no longer listed has no holder, whatever happens later.
    """
    backlog = {name for name, state in old.items() if state.ready}
    if any(name in listed and not listed[name].removing for name in newest):
        if backlog:
            log.error("messages came into %s, whose layout is closed: they are processed now, late", _in_words(backlog))
        return tuple(sorted({*newest, *backlog}))
    staying = {name for name, row in listed.items() if name in old and not row.removing}
    if backlog or any(listed[name].rank == BUSY for name in staying):
        return tuple(sorted(backlog | staying))
    if any(name in listed for name in old) or any(state.consumers for state in old.values()) or not settled:
        return ()
    return newest


def _old_queues(admin: Admin, topic: Topic) -> dict[str, QueueState]:
    prefixes = [attrs.evolve(topic, layout=layout).prefix for layout in range(1, topic.layout)]
    names = [f"{prefix}-{number}" for prefix in prefixes for number in admin.partition_numbers(prefix)]
    return {name: state for name in names if (state := admin.state(name)) is not None}


def _in_words(names: set[str]) -> str:
    return ", ".join(sorted(names))
