"""Works one stream during one tenure: finds where to start, commits, and leaves nothing uncommitted at the end.

The committed offset is kept by the coordinator, under the tenure's token, so a holder that was replaced cannot move it.
It is that of the last message processed with no gap before it; it rises as `commit_every` and `commit_interval_ms` say,
and the rest is committed by the release, in the same step. After a seek back messages are read again, but the committed
offset stays until the position has passed it again.

An offset means nothing in another stream of the same name. So messages are worked only once the group's mark was seen
after ConsumeOk: the subscription may have been long in coming, and a stream deleted after it takes the consumer along.
"""

from __future__ import annotations

import logging
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import anyio
from pika.exceptions import AMQPError

from cobalance.errors import (
    ChannelLost,
    CobalanceError,
    CommitOutcomeUnknown,
    Fenced,
    OffsetRegressed,
    OffsetUnknown,
    PublishFailed,
    QueueMismatch,
)
from cobalance.limits import STARTING
from cobalance.member.events import Abandoned, Drained
from cobalance.rabbitmq.consume.channel_loss import ChannelLosses
from cobalance.rabbitmq.consume.partition_worker import PartitionWorker
from cobalance.rabbitmq.partition.partition import PartitionState
from cobalance.rabbitmq.streams.consumer import StreamConsumer
from cobalance.rabbitmq.streams.position import BEFORE_FIRST
from cobalance.rabbitmq.streams.reading_mark import is_marked, mark, may_configure, may_mark, unmarked
from cobalance.rabbitmq.streams.start import no_offset, offset_before
from cobalance.rabbitmq.wire.lock_queue import lock_name
from cobalance.threads.wakeup import Wakeup, result_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from concurrent.futures import Future

    from cobalance.group.tenure import Tenure
    from cobalance.rabbitmq.consume.by_key import StartSoon
    from cobalance.rabbitmq.consume.partitions import Partitions
    from cobalance.rabbitmq.consume.streaming import Streams
    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.model.stream_settings import Start
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.partition.partition import PartitionConsumer
    from cobalance.rabbitmq.partition.replies import Reply

log = logging.getLogger("cobalance.rabbitmq")

LAST_COMMIT_S = 5.0
"""How long a failing member waits for its last commit."""

NOTHING_READ = {None, STARTING, BEFORE_FIRST}

SOUGHT = ChannelLost("a seek")
"""What follows is the same as after a lost channel: a new consumer for this tenure."""


class StreamWorker(PartitionWorker):
    """A :class:`cobalance.group.worker.Worker` for one stream."""

    _marks_redelivered = False

    def __init__(self, tenure: Tenure, queue: Queue, partitions: Partitions, streams: Streams) -> None:
        super().__init__(tenure, queue, partitions)
        self._streams, self._settings = streams, streams.settings
        self._losses = ChannelLosses(
            *(partitions.name, queue.name),
            key_prefix=partitions.key_prefix,
            lock=lock_name(partitions.scope, queue.name),
        )
        self._counting = threading.Lock()  # guards the fields below
        self._position: int | None = None if tenure.committed == STARTING else tenure.committed
        """The last message processed without a gap, over all consumers of the tenure. None until a start is found."""
        self._committed = tenure.committed
        self._covered = BEFORE_FIRST  # by what the user has committed ahead of the position
        self._finished = self._since_commit = 0
        self._seeking: Start | None = None
        self.seeks = 0
        """How many there were: a commit that was asked for before one covers nothing of what is read again."""
        self._recognized: PartitionConsumer | None = None  # it surely reads the stream of which an offset is known
        self._replying: dict[Future[bool], tuple[PartitionConsumer, int]] = {}
        """Replies under way, with the consumers and the offsets of their requests."""
        self._progress, self._commit_due = Wakeup(), Wakeup()
        self._ending, self._all_committed = anyio.Event(), anyio.Event()

    # -- for the user (on the event loop) ------------------------------------------------------------------------------

    def seek(self, start: Start) -> None:
        """Continues from there, once the current message is finished."""
        self.seeks += 1
        self._seeking = start
        self.stopping = True
        self._lost = SOUGHT
        self._wakeup.notify()

    async def answer(self, offset: int) -> None:
        """Sends the replies to messages up to an offset that is about to be committed.

        Raises:
            PublishFailed: RabbitMQ may not have one of them, so its request has to come again.
        """
        consumer = self._consumer
        if not isinstance(consumer, StreamConsumer):
            return
        for request, reply in consumer.take_replies(offset):
            self._reply(consumer, request, reply)
        for sent, (of, at) in list(self._replying.items()):
            if of is consumer and at <= offset:
                await result_of(sent)
        waits = any(it.tenure is consumer.tenure and (it.offset or 0) <= offset for it in list(self.refused))
        if waits or consumer.is_kept(offset):
            raise PublishFailed(
                f"RabbitMQ may not have the reply to a message of {self.queue.name!r} up to offset {offset}, so that this is not committed: "
                "it is sent again, or the message comes again",
                outcome="not_executed",
            )

    def committed(self, offset: int, *, covers: bool) -> None:
        """The user, or this worker, has committed this offset. `covers`: everything up to it counts as processed."""
        consumer = self._consumer
        with self._counting:
            self._committed = offset if self._committed is None else max(offset, self._committed)
            ahead = covers and self._position is not None and offset > self._position
            if ahead:
                self._covered, self.may_be_settled = max(offset, self._covered), True
        if ahead and isinstance(consumer, StreamConsumer):
            self.share.leave(consumer.done_up_to(offset))
            self._note(consumer)

    # -- on the event loop ---------------------------------------------------------------------------------------------

    async def finish(self) -> Drained | Abandoned:
        """Closes the channel; what is not committed yet is committed in the step that releases the stream."""
        resource, token = self.tenure.resource, self.tenure.token
        if self._consumer is not None:
            with suppress(CobalanceError):  # Acks mean nothing here: what is finished is known without RabbitMQ.
                await result_of(self._consumer.release())
            self._guard(proven=False)
        if self._given_up is not None:
            return Abandoned(resource, token, self._given_up)
        return Drained(resource, token, self._finished, self._finished, self._uncommitted())

    async def _subscribe(self) -> None:
        await self.close_old()
        if await self._wait_connected() and await self._find_position():
            await super()._subscribe()
        if self._seeking is not None:  # another seek came meanwhile
            self.seek(self._seeking)

    async def _find_position(self) -> bool:
        """False if it cannot be found, or not yet."""
        try:
            if self._position is None and not await self._begin():
                return False
            if self._seeking is not None:
                await self._seek(self._seeking)
        except CobalanceError as error:
            connected = self.partitions.connection.is_open
            reason = await self._reason(error)
            verdict = self._losses.judge(reason, consumed=False, delivered=0, connected=connected)
            self._given_up = self._given_up or verdict.give_up
            await self.wait_while(lambda: self.tenure.active, verdict.pause_ms)
            return False
        return self.tenure.active

    async def _reason(self, error: CobalanceError) -> CobalanceError:
        """A queue of another type has no mark of the group, either, and no offset would help."""
        if not isinstance(error, OffsetUnknown | QueueMismatch) or await self._streams.is_stream(self.queue):
            return error
        with suppress(CobalanceError, AMQPError):
            await self.partitions.read_again(self.queue)  # for its next tenure
        return QueueMismatch(
            f"Queue {self.queue.name!r} is no stream any more: it was deleted and created again with another type. It can be consumed as it is, by "
            "programs that name it; a Topic or a Queue has to describe it."
        )

    async def _seek(self, start: Start) -> None:
        await self._recognize()  # what it passes over is committed
        self._place(await offset_before(self.partitions.connection, self.queue.name, start))
        offset = self._uncommitted()
        if offset is not None:  # what is passed over would come again after a crash, and nothing else may come for long
            await self._commit(offset)
        if self._seeking == start:
            self._seeking = None

    async def _begin(self) -> bool:
        """False if the tenure is over."""
        is_new = self._committed == STARTING or await self._is_new()
        if is_new and not await self._note_beginning():
            return False
        if self._seeking is None:
            start = self._settings.start if is_new else self._unknown_start()
            after = await offset_before(self.partitions.connection, self.queue.name, start)
            await self._commit(after)  # or the next holder would decide again, and skip what was published in between
            self._place(after)
        return True

    async def _is_new(self) -> bool:
        """Whether nothing can ever have been committed."""
        return await self._streams.offsets_known() or (not await self._ask(is_marked) and await self._insist(may_mark))

    async def _note_beginning(self) -> bool:
        """Marks the stream, once Redis knows that whoever finds the mark and no offset has a start to finish."""
        if self._committed is None:
            await self._commit(STARTING)
        if self._committed is not None:
            await self._insist(mark)
        return self._committed is not None

    async def next_deliveries(self, consumer: PartitionConsumer) -> list[Delivery]:
        if consumer is not self._recognized and not await self._is_recognized(consumer):
            return []
        return await super().next_deliveries(consumer)

    async def _is_recognized(self, consumer: PartitionConsumer) -> bool:
        """Whether what a consumer brings may be worked. If it is subscribed, this is found out, or the consumer is lost."""
        if consumer.state not in {PartitionState.CONSUMING, PartitionState.HALTING}:
            return False
        try:
            await self._recognize()
        except CobalanceError as error:
            self._lost = self._lost or error
            self.notify()
            return False
        self._recognized = consumer
        return True

    async def _recognize(self) -> None:
        """Raises OffsetUnknown if the group's mark has gone with the stream that was read."""
        if await self._ask(is_marked) or not await self._insist(may_mark):
            return
        if not NOTHING_READ.issuperset({self._position, self._committed}):
            raise unmarked(self.queue.name)  # whoever comes next has to find it as we did
        await self._insist(mark)

    async def _insist(self, question: Callable[..., Future[bool]]) -> bool:
        """As `_ask`. A refusal is believed of a user who may read the stream, or all may be permitted in a moment."""
        if await self._ask(question):
            return True
        await result_of(may_configure(self.partitions.connection, self.queue))
        return await self._ask(question)

    async def _ask(self, question: Callable[..., Future[bool]]) -> bool:
        """Asks RabbitMQ about the group's mark of this stream, or has it made, if we may."""
        its = self.partitions
        return await result_of(question(its.connection, its.scope, self.queue.name))

    def _place(self, after: int) -> None:
        with self._counting:
            self._position, self._covered = after, BEFORE_FIRST

    def _unknown_start(self) -> Start:
        """What ``on_unknown_offset`` says."""
        if self._settings.stops_on_unknown_offset:
            raise no_offset(self.queue.name)
        log.warning("stream %s: no offset is known; it is read from its first message", self.queue.name)
        return "first"

    def _make_consumer(self) -> PartitionConsumer:
        after = BEFORE_FIRST if self._position is None else self._position
        return self._streams.consumer(
            self.queue,
            self.tenure.token,
            after,
            on_ready=self._wakeup.notify,
            on_event=self._consumer_event,
            on_gap=self._gap,
        )

    async def _judge_loss(self, consumer: PartitionConsumer, error: CobalanceError) -> None:
        if error is not SOUGHT:
            await super()._judge_loss(consumer, await self._reason(error))

    async def _finish_up(self, start_soon: StartSoon) -> bool:
        if await super()._finish_up(start_soon):
            return True
        self._ending.set()  # A commit in progress is awaited: after the release it would be refused.
        self._progress.notify()
        self._commit_due.notify()
        await self._all_committed.wait()
        self._ending, self._all_committed = anyio.Event(), anyio.Event()
        return False

    async def _close_at_once(self) -> None:
        """Handles a final failure: what was finished before should not be repeated."""
        await super()._close_at_once()
        offset = self._uncommitted()
        if offset is not None:
            with anyio.move_on_after(LAST_COMMIT_S, shield=True):
                await self._commit(offset)

    # -- committing ----------------------------------------------------------------------------------------------------

    async def _watch(self) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self._keep_committed)
            await super()._watch()

    async def _keep_committed(self) -> None:
        """Commits what is finished, by count and by time, until the end; the release commits the rest."""
        while not self._ending.is_set():
            await self._progress.wait()
            with anyio.move_on_after(self._settings.commit_interval_ms / 1000):
                while not self._ending.is_set() and self._since_commit < self._settings.commit_every:
                    await self._commit_due.wait()
            with self._counting:
                self._since_commit = 0
            offset = self._uncommitted()
            if offset is not None and not self._ending.is_set():
                await self._commit(offset)
        offset = self._uncommitted()
        if offset is not None and self._given_up is not None:  # a partition given up is released without an offset
            await self._commit(offset)
        self._all_committed.set()

    def _uncommitted(self) -> int | None:
        """The offset to commit, if it is above the committed one."""
        with self._counting:
            position, committed = self._position, self._committed
        return None if position is None or (committed is not None and position <= committed) else position

    async def _commit(self, offset: int) -> None:
        try:
            await self._streams.commit(self.tenure, offset)
        except Fenced:  # another member has it, so the tenure is over, though we have not been told
            self.abort("lost", lambda: None)
            self.tenure.stop_now()
        except (OffsetRegressed, CommitOutcomeUnknown) as error:
            # A higher one is there; or the tenure is over, as is the session.
            log.info("stream %s: %s", self.queue.name, error)

    # -- for handlers (any thread) -------------------------------------------------------------------------------------

    def done(self, delivery: Delivery) -> None:
        """Marks the message as processed. Does nothing if its channel is gone: it is redelivered."""
        if self._position is not None and delivery.offset is not None and delivery.offset <= self._position:
            return  # the user has committed it, which says the same
        consumer = self._current(delivery)
        if isinstance(consumer, StreamConsumer) and consumer.is_answered(delivery):
            return  # likewise, or is about to
        super().done(delivery)
        if isinstance(consumer, StreamConsumer):
            self._note(consumer)

    def is_settled(self, delivery: Delivery) -> bool:
        """Also if the user has committed past it before it came, or while it could not be settled: it is now."""
        if delivery.offset is None or delivery.offset > self._covered:
            return super().is_settled(delivery)
        consumer = self._current(delivery)
        if isinstance(consumer, StreamConsumer) and consumer.is_open(delivery):
            with suppress(ValueError):  # another thread was first
                consumer.done(delivery)
            self._note(consumer)
        return True

    def _reply(self, consumer: PartitionConsumer, delivery: Delivery, reply: Reply) -> Future[bool]:
        sent = super()._reply(consumer, delivery, reply)
        self._replying[sent] = consumer, delivery.offset or 0
        sent.add_done_callback(self._replying.pop)
        return sent

    def left(self, delivery: Delivery, *, kept: str | None = None) -> None:
        """The message's reply is confirmed, or has failed."""
        super().left(delivery, kept=kept)
        consumer = self._current(delivery)
        if isinstance(consumer, StreamConsumer) and kept is None:
            self._note(consumer)

    def _note(self, consumer: StreamConsumer) -> None:
        with self._counting:
            if consumer is not self._consumer:  # a seek came first
                return
            self._position = consumer.position
            self._finished += 1
            self._since_commit += 1
            count = self._since_commit
        if count == 1:
            self._progress.notify()
        if count == self._settings.commit_every:
            self._commit_due.notify()

    # -- for the connection (its thread) -------------------------------------------------------------------------------

    def _gap(self, first: int) -> bool:
        if self._settings.stops_on_unknown_offset:
            return False
        log.warning("stream %s: messages before offset %d are gone and were not read", self.queue.name, first)
        return True

    def _guard(self, *, proven: bool) -> None:
        super()._guard(proven=proven and self._settings.lock)
