"""What a worker still does on its channel once the partition is asked back, or it gives the partition up itself.

What has been sent ahead is finished, as far as half of the time to the deadline allows. Then what is open is waited for:
messages that the program has to settle, replies and dead letters on their way. That ends with

- all of it settled: the partition is released;
- the deadline of the revocation: the engine aborts the tenure;
- the revocation cancelled: the same channel goes on, or, if something has been given back, another one, and what is open
  comes again there;
- for a partition that is given up here, where nobody has set a deadline, ``drain_timeout_ms``: the channel is closed, and
  what is open comes again elsewhere. The program hears of it as of a revocation.

A lost channel ends no wait for the program, which may be working what it has not settled.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from concurrent.futures import Future

    from cobalance.rabbitmq.consume.by_key import StartSoon
    from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
    from cobalance.rabbitmq.partition.partition import PartitionConsumer

log = logging.getLogger("cobalance.rabbitmq")


class Finish:
    """Of one consumer's work, for one revocation."""

    def __init__(self, worker: PartitionWorker, consumer: PartitionConsumer) -> None:
        self._worker, self._consumer = worker, consumer

    async def work(self, start_soon: StartSoon) -> bool:
        """Returns whether the partition is kept, and the same channel goes on."""
        worker, consumer = self._worker, self._consumer
        if worker.is_kept():  # its channel was lost; or half of the time was over, and then it was kept
            await worker.end_slots()
            return await self._go_on()
        drained = consumer.drain(finish_buffer=True)
        self._put_down()
        await self._work_arrived(drained, start_soon)
        self._put_down()
        if worker.is_kept() and worker.go_on(consumer):  # beside handlers that run
            return True
        await worker.end_slots()
        consumer.drain()
        await self._wait_settled(drained)
        return worker.is_kept() and not drained.done() and await self._go_on()

    async def _go_on(self) -> bool:
        """Returns whether it does on this channel. Otherwise that is closed: another one may be opened."""
        if self._worker.go_on(self._consumer):
            return True
        await self._worker.close_old()
        return False

    def _put_down(self) -> None:
        if put_off := self._worker.take_put_off():
            self._consumer.put_down(put_off)

    async def _work_arrived(self, drained: Future[None], start_soon: StartSoon) -> None:
        worker, consumer, by_key = self._worker, self._consumer, self._worker.by_key
        while worker.is_finishing and not drained.done():
            if by_key is not None and worker.is_doubted:  # nothing may be begun, and nobody will say that it may
                break
            deliveries = await worker.next_deliveries(consumer)
            if by_key is not None:
                by_key.add(deliveries)
                if by_key.has_failed or not worker.goes_on or not by_key.has_work:
                    break
                by_key.open_slots(start_soon)
                await worker.wait(_least(by_key.next_in, worker.revocation.hear_deadline()))
            elif not deliveries or not await worker.handle(consumer, deliveries):
                break

    async def _wait_settled(self, drained: Future[None]) -> None:
        worker = self._worker
        drained.add_done_callback(lambda _: worker.wake())
        await worker.wait_while(lambda: not (drained.done() or worker.is_kept() or worker.is_given_up))
        if worker.is_given_up and not drained.done():
            await self._wait_limited(drained)

    async def _wait_limited(self, drained: Future[None]) -> None:
        worker, consumer = self._worker, self._consumer
        within_ms = worker.partitions.own.drain_timeout_ms
        names = worker.partitions.name, worker.queue.name
        words = (
            "group %s: %s is given up once all that was handed out is settled, in %d ms at the latest; unsettled: %d"
        )
        log.info(words, *names, within_ms, consumer.unfinished)
        worker.tenure.ask_back()
        await worker.wait_while(lambda: not drained.done(), within_ms)
        if not drained.done():
            log.warning("group %s: %s is given up; unsettled, so that it comes again: %d", *names, consumer.unfinished)
            consumer.abort()


def _least(one: float | None, other: float | None) -> float | None:
    return min((it for it in (one, other) if it is not None), default=None)
