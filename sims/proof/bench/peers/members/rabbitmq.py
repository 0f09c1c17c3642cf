"""A consumer on every queue, by pika alone: ``python -m proof.bench.peers.members.rabbitmq AMQP QUEUE...``.

The queues have a single active consumer each, so RabbitMQ decides who works which. At SIGTERM the running handlers end
and are acknowledged, then the channels close, as gently as Cobalance closes its own.
"""

from __future__ import annotations

import sys
from collections import deque
from typing import TYPE_CHECKING, Any

import pika

from cobalance.rabbitmq.wire.pika_internals import bare_close
from proof.bench.peers.members import report

if TYPE_CHECKING:
    from collections.abc import Sequence

PREFETCH = 20


class RabbitMQMember:
    """One connection, and a channel for each queue."""

    def __init__(self, amqp_url: str, queues: Sequence[str]) -> None:
        self.stopping = False
        self._open: set[Consumer] = set()
        self._queues = queues
        self._connection = pika.SelectConnection(pika.URLParameters(amqp_url), on_open_callback=self._opened)

    def run(self) -> None:
        """Until SIGTERM, whose handler runs between two turns of the loop."""
        self._connection.ioloop.start()

    def stop(self) -> None:
        """The loop takes note of it."""
        self._connection.ioloop.add_callback_threadsafe(self._close)

    def later(self, call: Any) -> None:
        self._connection.ioloop.call_later(report.HANDLER_S, call)

    def open_channel(self, consumer: Consumer) -> None:
        self._open.add(consumer)
        self._connection.channel(on_open_callback=consumer.start)

    def closed(self, consumer: Consumer) -> None:
        self._open.discard(consumer)
        if not self._open:
            self._connection.add_on_close_callback(lambda *_: self._connection.ioloop.stop())
            self._connection.close()

    def _opened(self, _connection: Any) -> None:
        for queue in self._queues:
            Consumer(self, queue)

    def _close(self) -> None:
        self.stopping = True
        for consumer in list(self._open):
            consumer.close_if_idle()


class Consumer:
    """One queue: its messages one after the other, beside those of other queues."""

    def __init__(self, program: RabbitMQMember, queue: str) -> None:
        self._program, self._queue, self._partition = program, queue, report.partition_of(queue)
        self._buffer: deque[tuple[int, int]] = deque()
        self._busy = False
        self._channel: Any = None
        program.open_channel(self)

    def start(self, channel: Any) -> None:
        self._channel = channel
        channel.add_on_close_callback(lambda *_: self._program.closed(self))
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(self._queue, self._arrived)

    def close_if_idle(self) -> None:
        if not self._busy:
            bare_close(self._channel)

    def _arrived(self, _channel: Any, method: Any, _properties: Any, body: bytes) -> None:
        self._buffer.append((method.delivery_tag, int(body)))
        if not self._busy:
            self._next()

    def _next(self) -> None:
        self._busy = bool(self._buffer) and not self._program.stopping
        if self._busy:
            tag, number = self._buffer.popleft()
            report.begun(self._partition, number)
            self._program.later(lambda: self._handled(tag, number))

    def _handled(self, tag: int, number: int) -> None:
        report.ended(self._partition, number)
        self._channel.basic_ack(tag)
        self._next()
        if self._program.stopping:
            self.close_if_idle()


if __name__ == "__main__":
    report.end_with_parent()
    program = RabbitMQMember(sys.argv[1], sys.argv[2:])
    report.on_sigterm(program.stop)
    report.started()
    program.run()
