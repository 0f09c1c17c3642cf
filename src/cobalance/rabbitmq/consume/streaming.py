"""The stream part of a consumer group: positions that can be moved, and offsets that outlive their holders."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio
from pika.exceptions import AMQPError

from cobalance.errors import CobalanceError, NotHeld, Unreachable, UsageError
from cobalance.rabbitmq.consume.stream_worker import StreamWorker
from cobalance.rabbitmq.consume.unknown_queue import UnknownQueueWorker
from cobalance.rabbitmq.model.stream_settings import check_start
from cobalance.rabbitmq.streams.consumer import StreamConsumer
from cobalance.rabbitmq.streams.extent import streams_among
from cobalance.rabbitmq.wire.lock_queue import lock_name
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.group.membership import Membership
    from cobalance.group.tenure import Tenure
    from cobalance.group.worker import Worker
    from cobalance.rabbitmq.consume.link import Link
    from cobalance.rabbitmq.consume.partitions import Consuming
    from cobalance.rabbitmq.consume.workers import Workers
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.model.stream_settings import Start
    from cobalance.rabbitmq.partition.partition import PartitionEvent

log = logging.getLogger("cobalance.rabbitmq")

ASK_AGAIN_S = 0.2


class Streams:
    """What the workers of streams need, beside what all partitions have."""

    def __init__(self, membership: Membership, link: Link, consuming: Consuming, workers: Workers) -> None:
        self._membership, self._link, self._consuming, self._workers = membership, link, consuming, workers
        self.settings = consuming.streams

    def seek(self, stream: str, start: Start) -> None:
        """See :meth:`cobalance.ConsumerGroup.seek`."""
        check_start(start)
        held = self._membership.roster.current(stream)
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

    async def commit(self, tenure: Tenure, offset: int) -> None:
        """Commits for any tenure; in a stream, everything up to this offset counts as processed.

        Requests up to there are answered first; the commit is not made if RabbitMQ may not have a reply. After a seek
        that comes meanwhile nothing counts as processed: that reads again.
        """
        worker = self._workers.get(tenure.resource)
        if not isinstance(worker, StreamWorker) or worker.tenure is not tenure:
            await self._membership.commit(tenure, offset)
            return
        seeks = worker.seeks
        await worker.answer(offset)
        await self._membership.commit(tenure, offset)
        worker.committed(offset, covers=worker.seeks == seeks)

    async def offsets_known(self) -> bool:
        """Whether a missing offset means that none was ever committed; retried until Redis answers."""
        while True:
            try:
                return (await in_thread(self._membership.coordinator.state))["offsets_known"] == "1"
            except Unreachable:
                await anyio.sleep(ASK_AGAIN_S)

    async def is_stream(self, queue: Queue) -> bool:
        """Whether a queue that was read as a stream is still one, as far as RabbitMQ can be asked."""
        try:
            found = await in_thread(lambda: streams_among(self._consuming.amqp_url, [queue.name]))
        except (CobalanceError, AMQPError):
            return True
        return found.get(queue.name, True)

    def consumer(
        self,
        queue: Queue,
        token: int,
        after: int,
        *,
        on_ready: Callable[[], None],
        on_event: Callable[[PartitionEvent], None],
        on_gap: Callable[[int], bool],
    ) -> StreamConsumer:
        """A consumer for one tenure that starts after an offset, on the current connection."""
        return StreamConsumer(
            self._link.connection,
            queue,
            after=after,
            lock=lock_name(self._membership.coordinator.scope, queue.name),
            holds_lock=self.settings.lock,
            on_gap=on_gap,
            token=token,
            on_ready=on_ready,
            on_event=on_event,
            prefetch=self._consuming.prefetch,
            ack_every=self._consuming.ack_every,
            ack_interval_ms=self._consuming.ack_interval_ms,
        )


def _seek_if_stream(worker: Worker, stream: str, start: Start) -> None:
    if isinstance(worker, StreamWorker):
        worker.seek(start)
    else:  # whoever asked has gone on
        log.warning("%s; nothing was moved", _is_a_queue(stream))


def _is_a_queue(name: str) -> str:
    return f"{name!r} is a queue, which can be read once only: seek streams"
