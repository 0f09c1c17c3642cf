"""A topic: N partition queues behind one exchange, and the mapping from keys to partitions."""

import re
from typing import Literal, get_args

import attrs

from cobalance.errors import UsageError
from cobalance.names import MAX_NAME_BYTES, validate_name
from cobalance.rabbitmq.model.hashing import partition_of
from cobalance.rabbitmq.model.queues import Argument, Queue
from cobalance.rabbitmq.model.retention import Retention

MAX_PARTITIONS = 2_000
"""Each partition needs a channel, and RabbitMQ allows 2,047 channels per connection."""

DELIVERY_LIMIT = 200
"""How often a message of a quorum queue is delivered before it is dead-lettered, if nothing else is chosen."""

LEAST_LIMIT = 2
"""Of a quorum queue that members work. A handover returns what was sent ahead, and the next one may come before it has
arrived again: with a limit of 1, RabbitMQ would drop or dead-letter it, though no handler was given it.
"""

UNLIMITED = 2**31 - 1
"""The limit of quorum queues without dead letters: whatever reaches a limit would be dropped. RabbitMQ 4 has a limit of
20 where none is declared, and -1, which stands for none there, has RabbitMQ 3 drop all that is returned once.
"""

QueueType = Literal["classic", "quorum", "stream"]

BYTES_OF_PARTITION = 20
"""Left for what a partition's name has beyond its topic's, such as ``.v12-1999``, however often that is grown."""


def set_of(name: str) -> tuple[str, str] | None:
    """The topic and the group of whose queue set this is the name, if it is one's: see :meth:`Topic.for_group`."""
    topic, at, group = name.partition("@")
    return (topic, group) if at and topic and group else None


def partition_named(queue: str) -> tuple[str, int] | None:
    """The topic and the number of the partition that has a queue of this name, in any layout; None if none can."""
    found = re.fullmatch(r"(.+?)(?:\.v\d+)?-(\d+)", queue)
    return (found[1], int(found[2])) if found else None


def _valid_name(_: object, __: object, value: str) -> None:
    validate_name("topic", value, MAX_NAME_BYTES - BYTES_OF_PARTITION)
    if re.search(r"\.v\d+(\.(bound|\d+(\.newest)?))?$", value):
        raise UsageError(f"{value!r} ends like the layouts of topics that were grown, so it cannot be a topic's name.")
    if value.endswith(".sets"):
        raise UsageError(
            f"{value!r} ends like the exchange that marks a topic as having queue sets, so it cannot be a topic's name."
        )


def _valid_partitions(_: object, __: object, value: int) -> None:
    if type(value) is not int or not 1 <= value <= MAX_PARTITIONS:  # a bool is not a number here
        raise UsageError(f"A topic has 1 to {MAX_PARTITIONS} partitions, not {value!r}.")


def _valid_limit(_: object, __: object, value: int | None) -> None:
    if value is not None and (type(value) is not int or not 0 <= value <= UNLIMITED):
        raise UsageError(f"A topic's delivery_limit is a number of deliveries, or None, not {value!r}.")


def _valid_queue_type(_: object, __: object, value: str) -> None:
    if value not in get_args(QueueType):
        raise UsageError(f"A topic's queues are of type classic, quorum or stream, not {value!r}.")


@attrs.frozen
class Topic:
    """A direct exchange and its partition queues `name-0` … `name-(N-1)`, all durable.

    The routing key is the partition's number and the number of partitions, as in ``3/12``.

    Choose four to eight times as many partitions as you expect processes: growing a topic (`grow_topic`) moves almost
    every key, and pauses the topic until everything it held before is processed.

    Messages that a handler rejects go to the queue `name.dead`; so do, on quorum queues, those delivered
    `delivery_limit` times without success.
    """

    name: str = attrs.field(validator=_valid_name)
    partitions: int = attrs.field(validator=_valid_partitions)
    queue_type: QueueType = attrs.field(default="classic", validator=_valid_queue_type)
    """classic: one node, fastest. quorum: replicated; guarded by a single active consumer. stream: replicated, can be
    read by offset any number of times; nothing is dead-lettered.
    """
    delivery_limit: int | None = attrs.field(default=None, validator=_valid_limit)
    """Quorum queues only: how often a message is delivered before it is dead-lettered. None is 200, or never if there
    are no dead letters: whatever reached a limit would be dropped, even if no handler was ever given it. No more than
    half of it is sent ahead to a member. ``create_topic`` refuses less than 2, which handovers alone use up.
    """
    dead_letter: bool = True
    """Whether there is a dead-letter queue. Without one, messages cannot be rejected."""
    retention: Retention = attrs.field(factory=Retention)
    """Streams only: how long messages are kept."""
    layout: int = attrs.field(default=1, kw_only=True)
    """1 when created, one more each time the topic was grown. Leave it out: it is read from RabbitMQ."""

    def __attrs_post_init__(self) -> None:
        if self.retention.arguments and self.queue_type != "stream":
            raise UsageError(
                f"retention is for queue_type='stream', and this topic is {self.queue_type}: leave it out."
            )
        if self.delivery_limit == self._default_limit:
            object.__setattr__(self, "delivery_limit", None)  # two ways of saying the same

    @property
    def _default_limit(self) -> int:
        return DELIVERY_LIMIT if self.dead_letter or self.queue_type != "quorum" else UNLIMITED

    @property
    def drops(self) -> bool:
        """Whether RabbitMQ drops messages that were delivered too often."""
        return self.queue_type == "quorum" and not self.dead_letter and self.delivery_limit is not None

    @property
    def prefix(self) -> str:
        """The prefix of the layout's queue names."""
        return self.name if self.layout == 1 else self.marker

    def for_group(self, group: str) -> "Topic":
        """Returns the group's own copy of the topic, if ``create_topic(…, group=…)`` made it: it gets every message."""
        return attrs.evolve(self, name=f"{self.name}@{validate_name('group', group)}", layout=1)

    @property
    def marker(self) -> str:
        """The exchange that marks the layout as complete and open by existing. Nothing is published to it."""
        return f"{self.name}.v{self.layout}"

    @property
    def size_marker(self) -> str:
        """The exchange whose name records the number of partitions that the layout was opened with."""
        return f"{self.marker}.{self.partitions}"

    @property
    def newest_marker(self) -> str:
        """The exchange that exists only until the topic is grown: to find it costs RabbitMQ no error, unlike to find
        that there is no newer layout. A topic that was made without it is looked at all the same.
        """
        return f"{self.size_marker}.newest"

    @property
    def queues(self) -> tuple[Queue, ...]:
        """The partition queues, by partition number."""
        return tuple(Queue(name, self._arguments()) for name in self.queue_names)

    @property
    def queue_names(self) -> tuple[str, ...]:
        """The names of the partition queues, by partition number."""
        return tuple(map(self.queue_name, range(self.partitions)))

    def queue_name(self, partition: int) -> str:
        """Returns the name of a partition's queue."""
        return f"{self.prefix}-{partition}"

    @property
    def dead_letter_queue(self) -> Queue | None:
        """The queue for rejected messages; None if they are dropped."""
        dead_letters = self.dead_letter and self.queue_type != "stream"
        return Queue(f"{self.name}.dead", {"x-queue-type": self.queue_type}) if dead_letters else None

    def routing_key(self, partition: int) -> str:
        """Returns the routing key for a partition: ``3/12``, or ``v2.3/12`` once the topic was grown.

        It names the size, so that it leads nowhere in a topic by this name that was created again with another one.
        """
        return f"{self._number(partition)}/{self.partitions}"

    def routing_keys(self, partition: int) -> tuple[str, str]:
        """Returns all under which a partition's queue is bound; the second, its number, is for other programs."""
        return self.routing_key(partition), self._number(partition)

    def _number(self, partition: int) -> str:
        return str(partition) if self.layout == 1 else f"v{self.layout}.{partition}"

    def partition_of(self, key: bytes | str) -> int:
        """Returns the partition of a key; see `cobalance.rabbitmq.model.hashing`."""
        return partition_of(key, self.partitions)

    def _arguments(self) -> dict[str, Argument]:
        arguments: dict[str, Argument] = {"x-queue-type": self.queue_type}
        if self.queue_type == "stream":
            return arguments | self.retention.arguments
        if self.queue_type == "quorum":
            limit = self._default_limit if self.delivery_limit is None else self.delivery_limit
            arguments |= {"x-single-active-consumer": True, "x-delivery-limit": limit}
        if self.dead_letter:
            # The default exchange routes to the queue by name: one thing less to declare, bind and lose.
            arguments |= {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": f"{self.name}.dead"}
        return arguments
