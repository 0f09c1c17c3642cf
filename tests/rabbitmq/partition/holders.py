"""What the tests of a queue's holders have in common: its kinds, and one partition during one tenure."""

import queue
import threading
import time
from typing import Any

from pika.adapters.blocking_connection import BlockingChannel

from cobalance.errors import CobalanceError
from cobalance.rabbitmq import Queue
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.partition.partition import PartitionConsumer, PartitionEvent, PartitionState
from cobalance.rabbitmq.wire.connection import BrokerConnection

WAIT_S = 60
CLASSIC = Queue("partition.classic", {"x-queue-type": "classic"})
QUORUM = Queue("partition.quorum", {"x-queue-type": "quorum", "x-single-active-consumer": True})
LIMITED = Queue(
    "partition.limited",
    {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": 20},
)


class Member:
    """A partition consumer as seen by a thread."""

    def __init__(self, connection: BrokerConnection, queue_: Queue, token: int, **arguments: object) -> None:
        self.connection = connection
        self.events = queue.SimpleQueue[PartitionEvent]()
        self.ready = threading.Event()
        self.wakeups = 0
        self.partition = PartitionConsumer(
            connection,
            queue_,
            token=token,
            on_ready=self.wake,
            on_event=self.events.put,
            **arguments,  # type: ignore[arg-type]
        )

    def wake(self) -> None:
        """Stands in for the notification of the event loop."""
        self.wakeups += 1
        self.ready.set()

    def start(self) -> None:
        """Starts, and waits until it consumes."""
        self.partition.start()
        assert self.next_event() == PartitionEvent(PartitionState.CONSUMING)

    def next_event(self) -> PartitionEvent:
        """The next event at the broker."""
        return self.events.get(timeout=WAIT_S)

    def await_io(self) -> None:
        """Returns once the I/O thread has done everything requested so far."""
        done = threading.Event()
        self.connection.submit(done.set)
        assert done.wait(WAIT_S)

    def ended_with(self) -> CobalanceError:
        """The error of an unrequested end."""
        event = self.next_event()
        assert event.state is PartitionState.ENDED
        assert event.error is not None
        assert self.partition.closed.exception(WAIT_S) is event.error
        return event.error

    def take(self, count: int) -> list[Delivery]:
        """Waits for exactly `count` messages."""
        taken: list[Delivery] = []
        while len(taken) < count:
            self.ready.clear()
            taken += (more := self.partition.take(count - len(taken)))
            assert more or self.ready.wait(WAIT_S)
        return taken

    def work(self, count: int) -> list[int]:
        """Takes and finishes `count` messages; returns their numbers."""
        seen: list[int] = []
        while len(seen) < count:
            for delivery in self.take(1):
                seen.append(int(delivery.body))
                self.partition.done(delivery)
        return seen


def declare(broker: BlockingChannel, queue_: Queue) -> None:
    """Declares an empty queue."""
    broker.queue_delete(queue_.name)
    broker.queue_declare(queue_.name, durable=queue_.durable, arguments=queue_.declaration)


def publish(broker: BlockingChannel, queue_: Queue, count: int) -> None:
    """Publishes numbered messages."""
    for number in range(count):
        broker.basic_publish("", queue_.name, str(number).encode())


def left(broker: Any, name: str) -> int:
    """Number of ready messages."""
    return int(broker.queue_declare(name, passive=True).method.message_count)


def await_left(broker: Any, name: str, count: int) -> None:
    """Waits for this number of ready messages."""
    within = time.monotonic() + WAIT_S
    while left(broker, name) != count:
        assert time.monotonic() < within
