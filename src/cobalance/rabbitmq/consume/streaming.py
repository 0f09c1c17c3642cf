"""The stream part of a consumer group: positions that can be moved, and offsets that outlive their holders."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
from pika.exceptions import AMQPError

from cobalance.errors import CobalanceError, NotHeld, Unreachable, UsageError
from cobalance.group.group import Group
from cobalance.rabbitmq.consume.stream_worker import StreamWorker
from cobalance.rabbitmq.consume.unknown_queue import UnknownQueueWorker
from cobalance.rabbitmq.model.stream_settings import StreamSettings, check_start
from cobalance.rabbitmq.streams.consumer import StreamConsumer
from cobalance.rabbitmq.streams.extent import streams_among
from cobalance.rabbitmq.wire.lock_queue import lock_name
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.group.tenure import Tenure
    from cobalance.group.worker import Worker
    from cobalance.rabbitmq.consume.workers import Workers
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.model.stream_settings import Start
    from cobalance.rabbitmq.partition.partition import PartitionEvent
    from cobalance.rabbitmq.wire.connection import BrokerConnection

log = logging.getLogger("cobalance.rabbitmq")

ASK_AGAIN_S = 0.2


class Streaming(Group):
    """A group whose resources may be streams, such as :class:`cobalance.ConsumerGroup`."""

    connection: BrokerConnection
    key_prefix: str
    _amqp_url: str
    _workers: Workers
    _prefetch: int
    _ack_every: int
    _ack_interval_ms: float
    _streams: StreamSettings

    async def seek(self, stream: str, start: Start) -> None:
        """Continues reading a stream from elsewhere: ``"first"``, ``"last"``, ``"next"``, an offset or a time.

        This moves the position of the current tenure, not the committed offset, which never falls: after a seek back,
        messages are read again, and the offset is committed again once the position has passed it; a handover or a
        crash before that resumes after the committed one. To move it for good, use ``cobalance group reset-offsets``. A
        seek forward skips messages, and that is committed. Messages handed out before and not acknowledged yet
        (``ack="manual"``) are forgotten.

        Raises:
            NotHeld: this member does not hold the stream.
            UsageError: it is a queue, or the start is invalid. Where only RabbitMQ can say that it is a queue, and has
                not said so yet, this is a warning in the log instead.
        """
        check_start(start)
        held = self.membership.roster.current(stream)
        if held is None or held.tenure is None or not held.tenure.active:
            raise NotHeld(f"this member does not hold {stream!r}: seek only what you hold")

        unknown = held.worker if isinstance(held.worker, UnknownQueueWorker) else None
        worker = held.worker if unknown is None else unknown.actual
        if unknown is not None and worker is None:
            unknown.then(lambda found: _seek_if_stream(found, stream, start))
        elif isinstance(worker, StreamWorker):
            worker.seek(start)
        else:
            raise UsageError(_is_a_queue(stream))

    async def commit_tenure(self, tenure: Tenure, offset: int) -> None:
        """Commits as :meth:`Group.commit_tenure`; in a stream, everything up to this offset counts as processed.

        Requests up to there are answered first; the commit is not made if RabbitMQ may not have a reply.
        """
        worker = self._workers.get(tenure.resource)
        if not isinstance(worker, StreamWorker) or worker.tenure is not tenure:
            await self.membership.commit(tenure, offset)
            return
        await worker.answer(offset)
        await self.membership.commit(tenure, offset)
        worker.committed(offset)

    async def offsets_known(self) -> bool:
        """See :class:`cobalance.rabbitmq.consume.stream_worker.Streams`."""
        while True:
            try:
                return (await in_thread(self.membership.coordinator.state))["offsets_known"] == "1"
            except Unreachable:
                await anyio.sleep(ASK_AGAIN_S)

    async def is_stream(self, queue: Queue) -> bool:
        """Whether a queue that was read as a stream is still one, as far as RabbitMQ can be asked."""
        try:
            found = await in_thread(lambda: streams_among(self._amqp_url, [queue.name]))
        except (CobalanceError, AMQPError):
            return True
        return found.get(queue.name, True)

    def stream_consumer(
        self,
        queue: Queue,
        token: int,
        after: int,
        *,
        on_ready: Callable[[], None],
        on_event: Callable[[PartitionEvent], None],
        on_gap: Callable[[int], bool],
    ) -> StreamConsumer:
        """See :class:`cobalance.rabbitmq.consume.stream_worker.Streams`."""
        return StreamConsumer(
            self.connection,
            queue,
            after=after,
            lock=lock_name(self.name, queue.name),
            holds_lock=self._streams.lock,
            on_gap=on_gap,
            token=token,
            on_ready=on_ready,
            on_event=on_event,
            prefetch=self._prefetch,
            ack_every=self._ack_every,
            ack_interval_ms=self._ack_interval_ms,
        )


def _seek_if_stream(worker: Worker, stream: str, start: Start) -> None:
    if isinstance(worker, StreamWorker):
        worker.seek(start)
    else:  # whoever asked has gone on
        log.warning("%s; nothing was moved", _is_a_queue(stream))


def _is_a_queue(name: str) -> str:
    return f"{name!r} is a queue, which can be read once only: seek streams"
