"""The queues that this process has read, as they are declared, and what its group demands of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.errors import CobalanceError, UsageError
from cobalance.names import validate_name
from cobalance.rabbitmq.consume.last_tries import check_limit
from cobalance.rabbitmq.model.queues import Guard, Queue
from cobalance.rabbitmq.topics.broker import learn_queue
from cobalance.rabbitmq.wire.failures import unguarded

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from cobalance.rabbitmq.consume.subscription import Subscription


MOST_ENDED = 1_000
"""So many queues are remembered that were found later and are not worked any more: where queues come and go, they never end."""


@attrs.frozen(kw_only=True)
class QueueRules:
    """What a group demands of a queue."""

    require_guard: bool
    parks: bool
    """Whether a failed message may be tried again behind others."""
    dead_letters: bool
    stream_lock: bool
    reads_as_stream: Callable[[Queue], bool]

    def check(self, queue: Queue) -> None:
        """Raises :class:`UsageError` if the group cannot consume it."""
        validate_name("queue", queue.name)
        if queue.auto_delete:
            raise UsageError(
                f"queue {queue.name!r} is an auto-delete queue: RabbitMQ deletes it with its messages when its only consumer goes, which "
                "happens at each handover. Declare it without auto_delete, and delete it when it is not needed any more; with x-expires "
                "it would be deleted with its messages whenever nobody works it for as long, as during a pause after failures"
            )
        check_limit(queue)
        is_open = queue.kind == "stream" or (self.require_guard and queue.guard is Guard.NONE)
        if is_open and not self.reads_as_stream(queue):
            raise unguarded(queue)
        if self.parks and self.reads_as_stream(queue):
            raise UsageError(f"{queue.name!r} is a stream, which has one offset: its messages are tried again in place")
        if self.dead_letters and "x-dead-letter-exchange" not in queue.arguments:
            raise UsageError(
                f"queue {queue.name!r} has no dead-letter target, so messages given up would be lost: "
                f"declare one, or use on_error='pause'"
            )

    def is_guarded(self, queue: Queue) -> bool:
        """Whether RabbitMQ serves only one member at a time, whenever it is worked."""
        return self.stream_lock if self.reads_as_stream(queue) else queue.guard is not Guard.NONE


class KnownQueues:
    """By name. `on_read` is called for each that is read after the group was entered."""

    def __init__(self, amqp_url: str, rules: QueueRules, on_read: Callable[[Queue], None]) -> None:
        self.rules = rules
        self._amqp_url, self._on_read = amqp_url, on_read
        self._queues: dict[str, Queue] = {}
        self._outdated: set[str] = set()
        """Of these, the ones to be read again before they are worked."""
        self._learned: set[str] = set()
        """Of these, the ones that were not there when the group was entered."""
        self._ended: dict[str, None] = {}
        """Of these, the ones that are not worked now, in the order of their ends."""

    def __contains__(self, name: str) -> bool:
        return name in self._queues

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._queues)

    @property
    def are_guarded(self) -> bool:
        """Whether all of them are."""
        return all(map(self.rules.is_guarded, self._queues.values()))

    def among(self, names: Iterable[str]) -> list[str]:
        """The names of those that are not streams."""
        return sorted(it for it in names if it in self._queues and not self.rules.reads_as_stream(self._queues[it]))

    def enter(self, queues: Iterable[Queue], subscribed: Subscription, group: str) -> None:
        """Takes those that the group begins with; raises :class:`UsageError` if one that it names cannot be consumed."""
        self._queues = {queue.name: queue for queue in queues}
        if not self._queues and not subscribed.may_be_empty:
            raise UsageError(f"group {group!r} was given no queues: name a topic, or at least one queue")
        for queue in list(self._queues.values()):
            try:
                self.rules.check(queue)
            except CobalanceError:
                if subscribed.names(queue.name):
                    raise
                del self._queues[queue.name]  # its holder says why, and halts it

    def current(self, name: str) -> Queue | None:
        """None if it has to be read before it is worked."""
        self._ended.pop(name, None)
        return None if name in self._outdated else self._queues.get(name)

    def learn(self, name: str) -> Queue:
        """Reads a queue, and checks it. From then on it may be worked. Blocks."""
        queue = self._read(name)
        self.rules.check(queue)
        self._learned.add(name)
        self._note(queue)
        return queue

    def note_end(self, name: str) -> None:
        """It is not worked any more: of very many of these, the first are forgotten, and read again when they are."""
        if name in self._learned:
            self._ended[name] = None
        if len(self._ended) > MOST_ENDED:
            first = next(iter(self._ended))
            del self._ended[first], self._queues[first]
            self._learned.discard(first)
            self._outdated.discard(first)

    def read_again(self, queue: Queue) -> Queue | None:
        """The queue as it is declared now; None if that is the same, or cannot be worked in its present tenure. Blocks.

        In the latter case it is read once more for its next tenure, when an operator has resumed it.
        """
        self._outdated.add(queue.name)
        found = self._read(queue.name)
        try:
            self.rules.check(found)
        except CobalanceError:
            return None
        if found == queue or self.rules.reads_as_stream(found) != self.rules.reads_as_stream(queue):
            return None
        self._note(found)
        return found

    def _read(self, name: str) -> Queue:
        queue = learn_queue(self._amqp_url, name)
        self._on_read(queue)
        return queue

    def _note(self, queue: Queue) -> None:
        self._queues[queue.name] = queue
        self._outdated.discard(queue.name)
