"""Programs written for pika, as members of a group: their queues, connections and threads."""

from __future__ import annotations

import queue
import threading
from typing import Any

import pika
from tests.names import unique

from cobalance.coordinator.open import open_transport
from cobalance.journal import Journal
from cobalance.rabbitmq.dropin.connection import GroupConnection
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=200, revocation_timeout_ms=10_000, gather_ms=20, rejoin_grace_ms=0
)
DEADLINE_S = 60


class Broker:
    """Queues for one test, and their contents."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._connection = pika.BlockingConnection(pika.URLParameters(url))
        self._channel = self._connection.channel()
        self.queues: list[str] = []

    def declare(self, count: int, **arguments: Any) -> list[str]:
        names = [unique("dropin") for _ in range(count)]
        for name in names:
            self._channel.queue_declare(name, durable=True, arguments=arguments or None)
        self.queues += names
        return names

    def declare_anew(self, name: str, **arguments: Any) -> None:
        self._channel.queue_delete(name)
        self._channel.queue_declare(name, durable=True, arguments=arguments)

    def publish(self, name: str, *bodies: object, headers: Any = None) -> None:
        for body in bodies:
            self._channel.basic_publish("", name, str(body).encode(), pika.BasicProperties(headers=headers))

    def left(self, name: str) -> list[tuple[str, bool]]:
        """Empties a queue; returns each body, and whether it was delivered before."""
        found = []
        while (got := self._channel.basic_get(name, auto_ack=True))[0] is not None:
            method, _, body = got
            found.append(((body or b"").decode(), bool(method.redelivered)))  # type: ignore[union-attr]
        return found

    def ready(self, name: str) -> int | None:
        """Number of ready messages."""
        return self._channel.queue_declare(name, passive=True).method.message_count

    def close(self) -> None:
        for name in self.queues:
            self._channel.queue_delete(name)
        self._connection.close()


def connect(broker: Broker, group: str, **options: Any) -> GroupConnection:
    """A program's connection to a group in this process."""
    options = {"settings": SETTINGS, **options}
    return GroupConnection(broker.url, group=group, redis_url=f"memory://{group}", **options)


def consume(connection: GroupConnection, queues: list[str], callback: Any) -> Any:
    """What every program does; returns its channel."""
    channel = connection.channel()
    channel.basic_qos(prefetch_count=10)
    for name in queues:
        channel.basic_consume(name, callback)
    return channel


Handled = queue.SimpleQueue[tuple["Program", str, str]]
"""Who handled what: program, queue, body."""


class Program:
    """A program on a thread of its own, which records what it handles."""

    def __init__(self, broker: Broker, group: str, queues: list[str], handled: Handled, **options: Any) -> None:
        self._handled = handled
        self.failure: BaseException | None = None
        self._stop = threading.Event()
        self._connection = connect(broker, group, **options)
        self._queues = queues
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def on_message(self, channel: Any, method: Any, _: Any, body: bytes) -> None:
        """Records and acknowledges."""
        self._handled.put((self, method.routing_key, body.decode()))
        channel.basic_ack(method.delivery_tag)

    def _run(self) -> None:
        try:
            with self._connection:
                consume(self._connection, self._queues, self.on_message).start_consuming()
        except BaseException as error:  # noqa: BLE001 -- shown by stop
            self.failure = error

    def stop(self) -> None:
        """Stops consuming, from the program's own thread, and waits until it has ended."""
        self._connection.add_callback_threadsafe(self._connection.stop)
        self.thread.join(DEADLINE_S)
        assert not self.thread.is_alive()
        assert self.failure is None


# -- consuming ---------------------------------------------------------------------------------------------------------


def ends(group: str) -> dict[str, int]:
    """How the tenures of a group in this process ended."""
    transport = open_transport(f"memory://{group}")
    kinds = [entry.kind for entry in Journal(transport, group).entries()]
    transport.close()
    return {kind: kinds.count(kind) for kind in ("released", "abandoned", "forced", "expired") if kind in kinds}


def reasons(group: str) -> list[str]:
    """Why tenures of a group in this process were given up."""
    transport = open_transport(f"memory://{group}")
    reasons = [entry.reason or "" for entry in Journal(transport, group).entries() if entry.kind == "abandoned"]
    transport.close()
    return reasons


# -- channels ----------------------------------------------------------------------------------------------------------
