"""Works a queue that this process did not know when it was granted, after reading its declaration."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import anyio

from cobalance.errors import CobalanceError, QueueMissing, ServerError, sentence
from cobalance.member.events import Abandoned, Drained
from cobalance.rabbitmq.consume.channel_loss import (
    BACKOFF_MS,
    STILL_UNCONNECTED,
    Unconnected,
    granted_patience_ms,
    halted,
    log_unconnected,
)
from cobalance.threads.worker_threads import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.group.tenure import Tenure
    from cobalance.group.worker import Worker
    from cobalance.member.actions import AbortReason
    from cobalance.rabbitmq.consume.partitions import Partitions

log = logging.getLogger("cobalance.rabbitmq")


class UnknownQueueWorker:
    """A :class:`cobalance.group.worker.Worker` that first reads the queue.

    `make` does so (it blocks) and returns a function that makes the actual worker.
    """

    def __init__(self, tenure: Tenure, partitions: Partitions, make: Callable[[], Callable[[], Worker]]) -> None:
        self._tenure, self._partitions, self._make = tenure, partitions, make
        self._group = partitions.name
        self._worker: Worker | None = None
        self._then: list[Callable[[Worker], None]] = []
        self._given_up = ""
        self._warned = False
        self._unconnected = Unconnected(partitions.link)

    async def run(self) -> None:
        """Reads the queue's declaration, repeatedly if necessary, then runs the worker."""
        failures = 0
        while self._worker is None and self._tenure.active:
            if await self._learn() or self._lacks_rabbitmq():
                continue
            failures += 1
            with anyio.move_on_after(BACKOFF_MS.pause(failures) / 1000):
                await self._tenure.wait_draining()
        if self._worker is not None:
            for do in self._then:
                do(self._worker)
            await self._worker.run()

    def then(self, do: Callable[[Worker], None]) -> None:
        """Calls it with the actual worker, as soon as there is one; it must not raise."""
        self._then.append(do)

    @property
    def actual(self) -> Worker | None:
        """The actual worker, once the queue was read."""
        return self._worker

    async def _learn(self) -> bool:
        try:
            make = await in_thread(self._make)
            if not self._tenure.aborted:  # the queue may be the next tenure's by now, whose worker this would replace
                self._worker = make()
        except (QueueMissing, ServerError) as error:  # it may come, come back, or be permitted
            if not self._warned:
                until = "it is there" if isinstance(error, QueueMissing) else "it can be used"
                log.warning("group %s: %s Trying again until %s.", self._group, sentence(error), until)
            self._warned = True
            return False
        except CobalanceError as error:
            self._given_up = halted(self._group, self._tenure.resource, error, self._partitions.key_prefix)
            self._tenure.ask_back()
        return True

    def _lacks_rabbitmq(self) -> bool:
        """Whether there has been no RabbitMQ for as long as a partition is kept unworked; it is given up then."""
        past_ms, patience_ms = self._unconnected.look(), self._partitions.unconnected_ms
        if patience_ms is None or past_ms < granted_patience_ms(patience_ms):
            return False
        log_unconnected(self._group, self._tenure.resource, granted_patience_ms(patience_ms))
        self._given_up = STILL_UNCONNECTED
        self._tenure.ask_back()
        return True

    async def finish(self) -> Drained | Abandoned:
        """As the actual worker does."""
        if self._worker is not None:
            return await self._worker.finish()
        resource, token = self._tenure.resource, self._tenure.token
        return Abandoned(resource, token, self._given_up) if self._given_up else Drained(resource, token)

    def abort(self, reason: AbortReason, stopped: Callable[[], None]) -> None:
        """As the actual worker does."""
        if self._worker is not None:
            self._worker.abort(reason, stopped)
        else:
            stopped()

    @property
    def busy_since(self) -> int | None:
        """As the actual worker does."""
        return None if self._worker is None else self._worker.busy_since

    @property
    def surely_idle(self) -> bool:
        """As the actual worker is."""
        return self._worker is None or self._worker.surely_idle
