"""What the worker of a partition needs of its consumer group."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Sequence
    from concurrent.futures import Future

    from cobalance.errors import CobalanceError
    from cobalance.member.events import Abandoned, GuardChanged
    from cobalance.rabbitmq.consume.by_key import ByKey
    from cobalance.rabbitmq.consume.metering import Step
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.partition.in_flight import Share
    from cobalance.rabbitmq.partition.partition import PartitionConsumer, PartitionEvent
    from cobalance.rabbitmq.partition.replies import Reply
    from cobalance.rabbitmq.wire.connection import BrokerConnection
    from cobalance.settings import MemberSettings


class Partitions(Protocol):
    """What a worker needs of its consumer group."""

    name: str
    """The group's name."""
    own: MemberSettings
    connection: BrokerConnection
    unconnected_ms: int | None
    """How long a partition is kept unworked without a connection to RabbitMQ."""
    manual: bool
    """Whether the program acknowledges messages itself."""
    batch: Batch | None
    """What the handler is given at a time; None for single messages."""

    async def wait_connected(self) -> None:
        """Returns once there is a connection to RabbitMQ."""

    def consumer(
        self, queue: Queue, token: int, on_ready: Callable[[], None], on_event: Callable[[PartitionEvent], None]
    ) -> PartitionConsumer:
        """A consumer for one tenure, on the current connection."""

    def by_key(self, worker: PartitionWorker) -> ByKey | None:
        """What works a partition's messages side by side; None if they are worked in order."""

    def share(self) -> Share:
        """Room for the unfinished messages of one tenure."""

    def is_sure(self, *, guarded: bool) -> bool:
        """Whether, by our own clock, no one else can have been admitted yet. Any thread."""

    async def handle(self, deliveries: Sequence[Delivery], worker: PartitionWorker) -> int:
        """Has the messages handled in order, as long as the worker goes on; returns how many are done with."""

    async def read_again(self, queue: Queue) -> Queue | None:
        """The queue as it is declared now; None if the program describes it itself, or it cannot be worked like that.

        Raises:
            CobalanceError: it is not there, or cannot be read.
        """

    def reply(self, reply: Reply) -> Future[bool]:
        """Sends a reply; the result is whether there was a queue for it, once confirmed. Any thread."""

    async def follow_refusal(
        self, request: Delivery, reply: Reply, error: CobalanceError, worker: PartitionWorker
    ) -> None:
        """RabbitMQ has refused a reply: its request has failed."""

    def post(self, event: Abandoned | GuardChanged) -> None:
        """Passes an event to the session."""

    def moved(self, resource: str, token: int, step: Step) -> None:
        """Tells meters what becomes of a tenure. Any thread."""

    def start_soon(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Starts a task on the event loop. Any thread."""

    def end_soon(self, error: Exception) -> None:
        """Ends the membership with this error, even if handlers are still running. Any thread."""
