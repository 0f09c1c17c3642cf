"""Consuming without async: the same consumer group, with handler and callbacks in threads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Unpack, overload

from cobalance.errors import UsageError
from cobalance.group.blocking import BlockingMembership
from cobalance.group.worker import is_async
from cobalance.limits import check_callables
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.threads.portal import now

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.group.blocking import BlockingListener
    from cobalance.rabbitmq.consume.consumer_options import ConsumerSource, PlainConsumerOptions
    from cobalance.rabbitmq.model.batches import Batch
    from cobalance.rabbitmq.model.stream_settings import Start
    from cobalance.rabbitmq.partition.delivery import Delivery

    PlainHandler = Callable[[Delivery], None]
    PlainBatchHandler = Callable[[list[Delivery]], None]


class BlockingConsumerGroup(BlockingMembership):
    """Membership in a consumer group, for programs without an event loop.

    It lasts for the length of a ``with``, or from :meth:`start` to :meth:`stop`.

    Like :class:`cobalance.ConsumerGroup`, but the handler and the callbacks are plain functions. The handler has a
    thread of its own for each partition, or, with ``order="key"``, as many as run side by side; :meth:`ack` and :meth:`reject` may be called in any thread.

    A thread cannot be cancelled, so a handler that never returns delays the end of the ``with``, but by no more than
    the drain timeout and the session timeout.

    Raises:
        CobalanceError: on entering, if a server cannot be used or a queue is not as expected.
    """

    _group: ConsumerGroup

    @overload
    def __init__(
        self,
        name: str,
        source: ConsumerSource,
        handler: PlainHandler,
        *,
        batch: None = None,
        on_assigned: BlockingListener | None = None,
        on_revoked: BlockingListener | None = None,
        on_lost: BlockingListener | None = None,
        **options: Unpack[PlainConsumerOptions],
    ) -> None: ...

    @overload
    def __init__(
        self,
        name: str,
        source: ConsumerSource,
        handler: PlainBatchHandler,
        *,
        batch: Batch,
        on_assigned: BlockingListener | None = None,
        on_revoked: BlockingListener | None = None,
        on_lost: BlockingListener | None = None,
        **options: Unpack[PlainConsumerOptions],
    ) -> None: ...

    def __init__(
        self,
        name: str,
        source: ConsumerSource,
        handler: PlainHandler | PlainBatchHandler,
        *,
        batch: Batch | None = None,
        on_assigned: BlockingListener | None = None,
        on_revoked: BlockingListener | None = None,
        on_lost: BlockingListener | None = None,
        **options: Unpack[PlainConsumerOptions],
    ) -> None:
        if is_async(handler):
            raise UsageError(
                "the handler is an async function, and here is no event loop: give a plain one, or use ConsumerGroup"
            )
        check_callables(on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        consumers: Callable[..., ConsumerGroup] = ConsumerGroup  # the overloads above pair handler and batch
        group = consumers(
            name,
            source,
            handler,
            batch=batch,
            on_assigned=self._listener(on_assigned),
            on_revoked=self._listener(on_revoked),
            on_lost=self._listener(on_lost),
            **options,
        )
        super().__init__(group)

    def ack(self, delivery: Delivery) -> None:
        """Acknowledges a processed message (``ack="manual"``); from any thread, in any order within a partition."""
        self._group.ack(delivery)

    def reject(self, delivery: Delivery) -> None:
        """Gives a message up (``ack="manual"``): it goes to the queue's dead-letter target."""
        self._call(now, self._group.reject, delivery)  # on its event loop, which no signal handler interrupts

    def seek(self, stream: str, start: Start) -> None:
        """Continues reading a stream from elsewhere; see :meth:`cobalance.ConsumerGroup.seek`."""
        self._call(self._group.seek, stream, start)
