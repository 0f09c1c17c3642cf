"""What one process consumes: any mix of topics, queues, and queues to be looked for."""

from __future__ import annotations

from contextlib import suppress
from functools import cached_property
from typing import TYPE_CHECKING

from cobalance.coordinator.requests import LOOKED_FOR
from cobalance.errors import CobalanceError, QueueMissing
from cobalance.member.declaration import digest
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.model.topic import Topic, partition_named
from cobalance.rabbitmq.topics.broker import learn_queue, read_topic, readable_queues, verify_topic
from cobalance.rabbitmq.topics.layouts import LayoutSource, Look
from cobalance.rabbitmq.topics.sources import BoundQueues, ManagedSource, MatchingQueues
from cobalance.rabbitmq.wire.failures import topic_in_place_of_queue

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from cobalance.coordinator.client import ResourceRow
    from cobalance.rabbitmq.consume.consumer_options import Part


class Subscription:
    """The parts of a consumer group's source.

    Processes that found the same for the same source have the same :attr:`id` and share one list; one member, the head,
    is elected to look for what changes by itself. Those that started before a topic was grown, and those that started
    after that, have one each, of the same queues.

    Args:
        parts: a string in a list is a queue's name; alone it is a topic's.
        amqp_url, management_url: of RabbitMQ.
        is_there: see :class:`LayoutSource`.
    """

    def __init__(
        self,
        parts: Sequence[Part] | str,
        amqp_url: str,
        management_url: str | None,
        is_there: Callable[[str], bool] = lambda _: False,
    ) -> None:
        self._parts, self._amqp_url, self._management_url = parts, amqp_url, management_url
        self._is_there = is_there
        self._layouts: list[LayoutSource] = []
        self._managed: list[ManagedSource] = []
        self._fixed: list[str] = []
        self._words: list[str] = []

    def find(self) -> list[Queue]:
        """Finds the queues that exist now. Blocks; call it first, until it succeeds.

        Raises:
            CobalanceError: a server cannot be asked, or something is not as expected.
        """
        for found in (self._layouts, self._managed, self._fixed, self._words):
            found.clear()  # left by a failed attempt
        parts = [read_topic(self._amqp_url, self._parts)] if isinstance(self._parts, str) else self._parts
        queues = {queue.name: queue for part in parts for queue in self._found(part)}
        return list(queues.values())

    def _found(self, part: Part) -> Sequence[Queue]:
        if isinstance(part, BoundQueues | MatchingQueues):
            source = ManagedSource(part, self._amqp_url, self._management_url)
            self._managed.append(source)
            self._words.append(str(part))
            # The holder of one that cannot be read says why, and tries again: it is no reason not to work the others.
            return readable_queues(self._amqp_url, sorted(source.find()))
        if isinstance(part, Topic):
            return self._of_topic(verify_topic(self._amqp_url, part))
        queue = part if isinstance(part, Queue) else self._learn(part)
        self._fixed.append(queue.name)
        return [queue]

    def _learn(self, name: str) -> Queue:
        try:
            return learn_queue(self._amqp_url, name)
        except QueueMissing as error:
            missing: CobalanceError = error
        with suppress(CobalanceError):  # there is none, or we may not know
            missing = topic_in_place_of_queue(read_topic(self._amqp_url, name))
        raise missing

    def _of_topic(self, topic: Topic) -> Sequence[Queue]:
        if topic.queue_type == "stream":  # streams are never grown
            self._fixed += topic.queue_names
        else:
            self._layouts.append(LayoutSource(topic, self._amqp_url, self._is_there))
            # Each member declares these queues at first: those of a topic created again with another size are another list.
            self._words.append(f"topic {topic.name} {topic.routing_key(0)}")
        return topic.queues

    def describes(self, queue: str) -> bool:
        """Whether the program itself says how the queue is declared, and not only which it is."""
        if isinstance(self._parts, str):
            return False
        topic = (partition_named(queue) or ("",))[0]
        described = (it for it in self._parts if isinstance(it, Queue | Topic))
        return any(it.name == (queue if isinstance(it, Queue) else topic) for it in described)

    @property
    def changes(self) -> bool:
        """Whether a member has to look for some of it."""
        return bool(self._layouts or self._managed)

    @property
    def is_certain(self) -> bool:
        """Whether every member finds the same as long as nothing changes: then every member may declare it."""
        return not self._managed and not any(layout.is_grown for layout in self._layouts)

    @property
    def may_be_empty(self) -> bool:
        """Whether queues may appear later."""
        return bool(self._managed)

    @cached_property
    def id(self) -> str:
        """Identifies what processes with the same source share."""
        if not self.changes:
            return digest(tuple(sorted(set(self._fixed))))
        return LOOKED_FOR + digest(tuple(sorted({*self._words, *(f"queue {name}" for name in self._fixed)})))

    def look(self, listed: Mapping[str, ResourceRow], ask_declared: Callable[[], Collection[str]]) -> Look:
        """What to consume now. Blocks.

        `listed`: the group's resources; `ask_declared` returns those that this subscription names.
        """
        found, again = set(self._fixed), []
        for layout in self._layouts:
            look = layout.look(listed)
            found.update(look.resources or ())
            again.append(look.again_in_ms)
        if self._managed:
            declared = ask_declared()
            theirs = {name: row for name, row in listed.items() if name in declared and not self.names(name)}
            for source in self._managed:
                resources = source.look(theirs).resources
                found.update(theirs if resources is None else resources)
        return Look(tuple(sorted(found)), min((it for it in again if it is not None), default=None))

    def names(self, name: str) -> bool:
        """Whether the program itself names the queue, or its topic, instead of having it looked for."""
        return name in self._fixed or any(layout.owns(name) for layout in self._layouts)
