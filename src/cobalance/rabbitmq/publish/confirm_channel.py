"""The publishing side of a connection: a channel in confirm mode, reopened when it is lost.

On RabbitMQ 3, each partition that may be a stream has a channel of its own. When a stream gets another leader, RabbitMQ sends it again what was
not confirmed, but under the numbers of the channel's confirms instead of the stream's own. On a channel to several
streams those are higher, so it takes what follows for repeated: it confirms and drops it.
"""

import atexit
import itertools
import logging
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial

import anyio
import attrs
from pika.channel import Channel
from pika.frame import Method
from pika.spec import Basic, BasicProperties

from cobalance.backoff import Backoff
from cobalance.errors import CobalanceError, ServerError, TopologyError, Unreachable, UsageError, counted
from cobalance.rabbitmq.model.outcomes import Failures
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.publish.confirms import Confirms, UnconfirmedMessage, refused, unconfirmed
from cobalance.rabbitmq.publish.rerouting import Returned, current_topic, is_same_layout
from cobalance.rabbitmq.publish.window import Window
from cobalance.rabbitmq.topics.admin import connected, creation, deletion
from cobalance.rabbitmq.topics.broker import check, find
from cobalance.rabbitmq.topics.queue_sets import sets_marker
from cobalance.rabbitmq.wire.connection import COUNTED_MS, BrokerConnection
from cobalance.rabbitmq.wire.failures import loss_reason, too_large
from cobalance.threads.gate import shielded
from cobalance.threads.log_lines import ServiceThread
from cobalance.threads.worker_threads import SharedCall

logger = logging.getLogger("cobalance.rabbitmq")

BACKOFF_S = Backoff(0.05, 2.0)
"""Pauses between attempts to restore a lost connection."""

TOGETHER_MS = 50.0
"""Messages that time out within this are ended together."""

NOT_FOUND = 404

LATE_MS = 500
"""By how much a message may end later than its time is up, unless a callback holds up the publisher's thread."""

NO_ANSWER = "no answer in time"
NACKED = "it answered with a nack: one of the queues was full, or failed, and others may have it"

AFFECTED = "3."
"""How the versions begin that confuse these numbers; the README of `streams` has the source."""


@attrs.define(eq=False)
class Lane:
    """A channel, and what is in flight on it. I/O thread only."""

    channel: Channel = attrs.field(init=False)
    confirms: Confirms = attrs.field(init=False)
    taken: list[tuple[str, UnconfirmedMessage]] = attrs.field(factory=list, init=False)
    """Messages that were confirmed, whose queues are to be looked for, where others may have taken them instead."""
    looked_for: list[tuple[str, UnconfirmedMessage]] = attrs.field(factory=list, init=False)
    """Those whose queues are being looked for."""


class ConfirmChannel:
    """Sends messages and settles their outcomes; shared by `Publisher` and `AsyncPublisher`."""

    def __init__(self, url: str, topic: Topic | str, *, name: str, window: int, heartbeat_s: int) -> None:
        self.window, self.failures = Window(window), Failures()
        self._url, self._asked_for = url, topic
        self._topic = topic if isinstance(topic, Topic) else None
        self._connection = BrokerConnection(url, name, heartbeat_s=heartbeat_s, on_blocked=self._blocked)
        self._connecting = threading.Lock()
        self._closing = threading.Event()  # ends attempts in progress
        self._attempts = SharedCall(lambda: self._connect(self._timeout_ms))
        self._why_lost = ""  # how the last attempt has failed, while none has succeeded
        self._was_open, self._closed, self._process = False, False, 0
        self._most_body = 0
        """The largest body that RabbitMQ accepts, once known."""
        # The rest belongs to the I/O thread.
        self._lanes: list[Lane] = []  # empty unless all are open
        self._numbers = itertools.count(1)
        self._held: deque[UnconfirmedMessage] = deque()
        self._returned_messages = Returned()
        self._looking = False
        self._newer: Topic | None = None  # in use once all in flight is settled
        self._opening: set[Lane] = set()  # those that are not open yet, or not again
        self._has_sets = False
        """Whether other groups' queues take a message that a partition's own would not, so that RabbitMQ does not return it."""
        self._timeout_ms = 30_000
        self._is_timed = False  # whether a timer will look for messages that have timed out

    @property
    def topic(self) -> Topic:
        """The topic as known so far; raises UsageError while only its name is known."""
        if self._topic is None:
            raise UsageError(f"topic {self._asked_for!r} is looked up when its publisher is entered")
        return self._topic

    @property
    def connection(self) -> BrokerConnection:
        """The one that it sends on."""
        return self._connection

    @property
    def is_copy(self) -> bool:
        """Whether a fork copied a connected publisher: it has no I/O thread, and the connection is the original's."""
        return self._process not in {0, os.getpid()}

    def _check_usable(self) -> None:
        if self._closed:
            raise UsageError("this publisher is closed: publish within its `with`, or make another one")
        self._check_process()

    def _check_process(self) -> None:
        if self.is_copy:
            raise UsageError(
                "this publisher was entered before the process was forked: make another one in each process"
            )

    @property
    def in_callback(self) -> bool:
        """Whether a future's callback runs this, on the thread that hears of confirms: it must not wait for them."""
        return self._connection.is_own_thread

    def check_may_wait(self, call: str, instead: str) -> None:
        """Raises UsageError in a future's callback."""
        if self.in_callback:
            raise UsageError(
                f"{call} cannot wait in a future's callback, which runs on the thread that hears of confirms: {instead}"
            )

    @property
    def ready(self) -> bool:
        """Whether it is connected, as far as we know."""
        self._check_usable()
        return bool(self._opening) or self._is_open

    @property
    def _is_open(self) -> bool:
        lanes = self._lanes
        return bool(lanes) and lanes[0].channel.is_open

    def allow(self) -> None:
        """Allows to open it, again if it was closed."""
        self._closed = False

    def open(self, timeout_ms: int) -> None:
        """Connects if necessary; raises if it cannot, in which case nothing was sent. Blocks.

        The first connection is tried once, so that a wrong URL shows at once; a lost one is retried at growing
        intervals until the timeout.
        """
        self._timeout_ms = timeout_ms
        if self.in_callback:
            raise self._unreachable("the connection is lost, and a future's callback cannot wait for another")
        if shielded(partial(self._connect, timeout_ms)):
            return
        self._check_usable()
        raise self._not_opened()

    async def opened(self, begun: float, timeout_ms: int) -> None:
        """Like `open`, for tasks, whose time runs from when their calls began. All of them wait for the same attempt to
        connect. It goes on without those that are cancelled; those that have time left after it make the next one.
        """
        self._timeout_ms = timeout_ms
        with anyio.move_on_after(begun + timeout_ms / 1000 - time.monotonic()):
            while not self.ready:
                await self._attempts.result()
            return
        raise self._not_opened()

    def _connect(self, timeout_ms: int) -> bool:
        """Whether it is open; if not, the time was up, or it was closed meanwhile."""
        give_up_at = time.monotonic() + timeout_ms / 1000
        if not self._connecting.acquire(timeout=timeout_ms / 1000):
            return False
        try:
            return self._try(give_up_at)
        finally:
            self._connecting.release()

    def _try(self, give_up_at: float) -> bool:
        failures = 0
        while not self._closed and not self.ready:
            allowed = self._connection.channels_allowed
            try:
                self._open(give_up_at)
            except Unreachable as error:
                failures += 1
                self._why_lost = str(error)
                delay_s = BACKOFF_S.pause(failures)
                if not self._was_open and self._connection.channels_allowed == allowed:
                    raise self._not_opened() from None
                if time.monotonic() + delay_s > give_up_at or self._closing.wait(delay_s):
                    return False
        self._why_lost = ""
        return not self._closed

    def _not_opened(self) -> Unreachable:
        return Unreachable(self._why_lost, outcome="not_executed") if self._why_lost else self._unreachable(NO_ANSWER)

    def _open(self, give_up_at: float) -> None:
        self._connection.close()  # The channel may be gone while the connection is not.
        begun = time.monotonic()
        self._topic = self._find_topic(_ms_until(give_up_at))
        looked_s = time.monotonic() - begun
        try:
            self._connection.connect(_ms_until(give_up_at))
        except Unreachable as error:
            if time.monotonic() < give_up_at:
                raise
            raise Unreachable(
                f"{error} Looking up topic {self.topic.name} had taken {looked_s:.1f} s of the timeout."
            ) from None
        opened: Future[CobalanceError | None] = Future()
        if not self._connection.submit(lambda: self._open_lanes(opened)):
            opened.set_result(self._unreachable("the connection was lost as soon as it was made"))
        try:
            failure = opened.result(_ms_until(give_up_at) / 1000)
        except TimeoutError:
            self._connection.close(timeout_ms=0)
            failure = self._unreachable(NO_ANSWER)
        if failure is not None:
            raise failure
        if not self._was_open:
            atexit.register(self._end_with_program)
        self._was_open, self._process = True, os.getpid()

    def _find_topic(self, timeout_ms: int) -> Topic:
        with connected(self._url, timeout_ms, in_all=True) as admin:
            asked_for = self._asked_for
            topic = find(admin, asked_for) if isinstance(asked_for, str) else check(admin, self._topic or asked_for)
            self._has_sets = admin.has_exchange(sets_marker(topic.name))
            if self._has_sets:
                admin.first_missing(topic.queue_names, all_up=True)
            return topic

    def _unreachable(self, why: str) -> Unreachable:
        return Unreachable(f"RabbitMQ at {self._connection.place}: {why}.", outcome="not_executed")

    def check(self, message: UnconfirmedMessage) -> None:
        """Checks a message before it is sent.

        Raises:
            UsageError: the partition does not exist, or RabbitMQ would, or might, close the connection over the headers.
            PublishFailed: the body is known to be too large.
        """
        partition = message.route(self.topic)
        if partition >= self.topic.partitions:
            raise UsageError(
                f"topic {self.topic.name!r} has {counted(self.topic.partitions, 'partition')}: {partition} is none of them"
            )
        message.properties.check_fits(self._connection.frame_max, self._connection.place)
        if message.properties.has_decimal and not self._is_of_quorum_queues:
            raise UsageError(
                f"the headers have a Decimal, over which RabbitMQ 3 closes the connection if topic {self.topic.name!r} is of streams: send it "
                "as text; or, if the topic is of quorum queues, give it as a Topic that says so"
            )
        if len(message.body) > self._most_body > 0:
            raise refused(message, _too_large(message, self._most_body))

    def send(self, message: UnconfirmedMessage, begun: float) -> None:
        """Sends the message after those sent before it, once there is room in the window; never blocks. Its time runs from
        the moment when its call began.

        Raises:
            PublishFailed: the connection is gone.
        """
        message.partition = message.route(self.topic)
        message.due = begun + self._timeout_ms / 1000
        self.window.line.append(message)
        if time.monotonic() - begun > TOGETHER_MS / 1000:  # it had to connect, and may be due before those ahead of it
            due_ms = _ms_until(message.due) + TOGETHER_MS
            self._connection.submit(lambda: self._connection.call_later(due_ms, partial(self._end_late, once=True)))
        if not self._connection.submit(self._let_in):
            message.watched = message.withdrawn = True
            message.ended.open()
            raise refused(message, "the connection is gone")

    def withdraw(self, message: UnconfirmedMessage) -> ServerError | None:
        """Gives the message up for its caller, and returns why it has failed; None if its outcome is decided.

        It is not sent from here on. The publisher's thread settles it, and may be held up. A signal handler may interrupt this.
        """
        message.watched = message.withdrawn = True
        if message.settled:
            return None
        failure = self._why_late(message)
        self._connection.submit(lambda: self._give_up(message, failure))
        return failure

    def wait_until_quiet(self, timeout_ms: int) -> bool:
        """Waits until everything sent so far is settled; False on timeout. Blocks.

        The messages' own timeout ends them first, unless the publisher's thread is held up.
        """
        self._check_process()
        self._connection.submit(self._let_in)  # an interrupted call may have left its message in the line
        return not self.window.wait_until_settled((timeout_ms + LATE_MS) / 1000)

    def close(self) -> None:
        """Closes the connection; the outcome of unconfirmed messages stays unknown. Blocks."""
        if self.is_copy:
            return
        self._closed = True
        shielded(self._disconnect)

    def abandon(self) -> None:
        """Closes it after opening has failed or was interrupted, unless it is allowed again: without waiting, as the
        attempt may still go on.
        """
        if self.is_copy:
            return
        self._closed = True
        with suppress(RuntimeError):  # the system gives no thread
            ServiceThread(self._disconnect, "cobalance call").start()

    def _disconnect(self) -> None:
        self._closing.set()
        with self._connecting:
            self._closing.clear()
            if self._closed:  # otherwise it has been entered again, after an interrupted call
                atexit.unregister(self._end_with_program)
                self._connection.close()
                self._was_open, self._process = False, 0

    def _end_with_program(self) -> None:
        """Runs at exit if the publisher was not closed.

        The I/O thread would otherwise end in the middle of its work, unnoticed. Other exit handlers may still publish.
        """
        if self.is_copy:
            return
        self._connection.submit(self._let_in)
        lost = self.window.wait_until_settled((self._timeout_ms + LATE_MS) / 1000)  # of those published meanwhile, none
        failure = self.failures.take()
        if lost:
            logger.error(
                "the publisher of topic %s was not closed, and the program ends: of %d messages it is unknown whether RabbitMQ has them",
                *(self.topic.name, lost),
            )
        if failure is not None:
            logger.error("%s", failure)

    # Everything below runs on the I/O thread.

    def _open_lanes(self, opened: Future[CobalanceError | None]) -> None:
        def ended(reason: str) -> None:
            self._lost(reason)
            if not opened.done():
                opened.set_result(self._unreachable(reason))

        def ready(lane: Lane) -> None:
            closed.discard(lane)
            if not closed and not opened.done():
                self._lanes = lanes
                opened.set_result(None)
                self._let_in()  # an interrupted call may have left its message in the line

        self._is_timed = False  # timers end with their connection
        self._connection.add_end_listener(ended)
        if opened.done():  # The connection is already gone.
            return
        lanes = [Lane() for _ in range(self._lanes_wanted())]
        closed = set(lanes)
        for lane in lanes:
            self._open_lane(lane, ready, ended)

    @property
    def _is_of_quorum_queues(self) -> bool:
        """If not, they may be streams: AMQP does not tell, nor does a topic that was given by name, or without its type."""
        return isinstance(self._asked_for, Topic) and self._asked_for.queue_type == "quorum"

    def _lanes_wanted(self) -> int:
        if self._is_of_quorum_queues or not self._connection.server_version.startswith(AFFECTED):
            return 1
        wanted, allowed = self.topic.partitions, self._connection.channels_allowed
        if not allowed or allowed >= wanted:
            return wanted
        logger.warning(
            "topic %s has %d partitions, and RabbitMQ allows this connection %d channels: they share these, so if they are streams, RabbitMQ "
            "%s may confirm messages and lose them after a stream's leader has changed. Raise channel_max or the user's max-channels, or use RabbitMQ 4",
            *(self.topic.name, wanted, allowed, self._connection.server_version),
        )
        return allowed

    def _open_lane(self, lane: Lane, ready: Callable[[Lane], None], ended: Callable[[str], None]) -> None:
        def opened(channel: Channel) -> None:
            channel.add_on_return_callback(lambda _, *returned: self._returned(lane, *returned))
            channel.confirm_delivery(partial(self._confirmed, lane), lambda _: ready(lane))

        def closed(_: Channel, error: Exception) -> None:
            if (sizes := too_large(error)) is not None:
                self._replace(lane, *sizes)
                return
            reason = loss_reason(error)
            if lane.looked_for and getattr(error, "reply_code", 0) == NOT_FOUND:
                reason = f"a queue is gone, so it may be in the queues of other groups alone ({reason})"
                logger.error(
                    "topic %s: %s. Nothing more is published before it is there again", self.topic.name, reason
                )
            ended(reason)

        lane.channel, lane.confirms = self._connection.open_channel(opened), Confirms()
        lane.channel.add_on_close_callback(closed)

    def _replace(self, lane: Lane, size: int, most: int) -> None:
        """Opens another channel after a message was too large, and sends again what was not taken after it."""
        self._opening.add(lane)
        self._most_body = most
        sent = lane.confirms.abandon()
        lane.taken, lane.looked_for = lane.looked_for + lane.taken, []
        place = next((at for at, message in enumerate(sent) if len(message.body) == size), len(sent))
        for message in sent[:place]:
            self._settle(message, unconfirmed(message, "its channel was closed over another one"))
        for message in sent[place : place + 1]:
            self._settle(message, refused(message, _too_large(message, most)))
        for message in sent[place + 1 :]:
            message.written = False
        self._hold_again(sent[place + 1 :])
        self._connection.call_later(COUNTED_MS, lambda: self._open_again(lane))
        self._change_layout()

    def _open_again(self, lane: Lane) -> None:
        if lane in self._opening and self._connection.is_open:
            self._open_lane(lane, self._opened, self._lost)

    def _open_more(self) -> None:
        """Opens the channels that a topic with more partitions needs. All in flight is settled."""
        more = [Lane() for _ in range(self._lanes_wanted() - len(self._lanes))]
        self._lanes = [*self._lanes, *more]
        self._opening.update(more)
        for lane in more:
            self._open_lane(lane, self._opened, self._lost)

    def _opened(self, lane: Lane) -> None:
        self._opening.discard(lane)
        self._look_for_queues(lane)
        self._write_held()

    def _let_in(self) -> None:
        if self.window.line and not self._is_timed:
            self._is_timed = True
            self._end_late_from(self.window.line[0].due)
        for message in self.window.let_in():
            self._write(message)

    def _end_late(self, *, once: bool = False) -> None:
        """Ends what has timed out, in order, unless a call waits for it and does that; looks again when the next one would."""
        now, due = time.monotonic(), None
        for message in sorted(self.window.timed(), key=lambda it: it.due):
            if message.due > now:
                due = message.due
                break
            self._settle(message, self._why_late(message))
        if not once:
            self._is_timed = due is not None
            if due is not None:
                self._end_late_from(due)
        self._change_layout()

    def _end_late_from(self, due: float) -> None:
        self._connection.call_later(max(TOGETHER_MS, _ms_until(due)), self._end_late)

    def _give_up(self, message: UnconfirmedMessage, failure: ServerError) -> None:
        self._settle(message, failure)
        self._change_layout()

    def _write(self, message: UnconfirmedMessage) -> None:
        if message.settled:
            return
        message.number = message.number or next(self._numbers)
        if message.withdrawn:
            self._settle(message, self._why_late(message))
        elif self._opening:
            self._hold(message)
        elif not self._is_open:
            self._settle(message, refused(message, "the connection was lost before it could be sent"))
        elif self._connection.blocked or self._held or self._newer is not None:
            self._hold(message)
        elif self._returned_messages.hold_up(message, self.topic):
            message.partition = message.route(self.topic)
            self._returned_messages.add(message)
        else:
            self._publish(message)

    def _hold_again(self, messages: list[UnconfirmedMessage]) -> None:
        """Keeps messages that were sent in vain, in the order of the calls, in which they are sent again."""
        self._held = deque(sorted([*messages, *self._held], key=lambda it: it.number))

    def _hold(self, message: UnconfirmedMessage) -> None:
        while self._held and self._held[0].settled:  # its time was up, and the window has let in another
            self._held.popleft()
        self._held.append(message)

    def _publish(self, message: UnconfirmedMessage) -> None:
        partition = message.route(self.topic)
        message.partition, message.written = partition, True
        if message.withdrawn:  # looked at last, as another thread marks it before it asks whether it was written
            message.written = False
            self._settle(message, self._why_late(message))
            return
        lane = self._lanes[partition % len(self._lanes)]
        lane.confirms.sent(message)  # First: a failure ends the connection, which settles whatever was sent.
        message.routing_key = self.topic.routing_key(partition)
        lane.channel.basic_publish(
            self.topic.name, message.routing_key, message.body, message.properties, mandatory=True
        )

    def _blocked(self, blocked: bool) -> None:
        if not blocked:
            self._write_held()

    def _write_held(self) -> None:
        held, self._held = self._held, deque()
        for message in held:
            self._write(message)

    def _confirmed(self, lane: Lane, frame: Method[Basic.Ack | Basic.Nack]) -> None:
        if not self._lanes:  # The channel of another lane was closed, and everything in flight is settled.
            return
        nacked = isinstance(frame.method, Basic.Nack)

        def settle(message: UnconfirmedMessage, returned: str | None) -> None:
            if message.settled:  # its time was up; the topic may have another layout by now
                return
            if returned is None or nacked:
                self._returned_messages.taken(message)
                if self._has_sets and not nacked:
                    lane.taken.append((self.topic.queue_name(message.partition), message))
                else:
                    self._settle(message, unconfirmed(message, NACKED) if nacked else None)
            elif why := self._returned_messages.reason(message, returned):
                self._settle(message, refused(message, why))
            else:
                self._returned_messages.add(message, returned)

        lane.confirms.settle(frame.method.delivery_tag, multiple=frame.method.multiple, settle=settle)
        self._look_for_queues(lane)
        self._look_for_layout()
        self._change_layout()

    def _look_for_queues(self, lane: Lane) -> None:
        """Settles what was confirmed once its queues were found after that. If one is gone, RabbitMQ closes the channel."""
        if not lane.taken or lane.looked_for or not lane.channel.is_open:
            return
        lane.looked_for, lane.taken = lane.taken, []
        for queue in {queue for queue, _ in lane.looked_for}:
            lane.channel.queue_declare(queue, passive=True)  # unanswered
        lane.channel.basic_qos(callback=lambda _: self._found_queues(lane))  # the answer comes after all of that

    def _found_queues(self, lane: Lane) -> None:
        found, lane.looked_for = lane.looked_for, []
        for _, message in found:
            self._settle(message, None)
        self._look_for_queues(lane)

    def _look_for_layout(self) -> None:
        if not self._returned_messages or self._looking or self._newer is not None:
            return
        self._looking = True
        lanes, partitions = self._lanes, frozenset(self._returned_messages.partitions)
        try:
            threading.Thread(
                target=lambda: self._find_layout(lanes, partitions), name="cobalance layout", daemon=True
            ).start()
        except RuntimeError:  # the system gives no more threads: what was returned has failed
            self._go_on(None, lanes, partitions)

    def _find_layout(self, lanes: list[Lane], partitions: frozenset[int]) -> None:  # on a thread of its own
        returned, found, mismatch = self._returned_messages, None, ""
        try:
            found = current_topic(self._url, self._asked_for, self.topic, self._timeout_ms, lambda: returned.is_wanted)
        except TopologyError as error:
            mismatch = str(error).removesuffix(".")
        except Exception as error:  # noqa: BLE001 -- the messages must not wait for ever
            logger.warning("the layout of topic %s could not be read: %s", self.topic.name, error)
        self._connection.submit(lambda: self._go_on(found, lanes, partitions, mismatch))

    def _go_on(self, found: Topic | None, lanes: list[Lane], partitions: frozenset[int], mismatch: str = "") -> None:
        if lanes is not self._lanes:
            return  # Returned messages were settled when the channel was lost.
        self._looking = False
        if found is not None and not is_same_layout(found, self.topic):
            self._newer = found
            self._change_layout()
            return
        released = self._returned_messages.release(partitions)
        in_vain = frozenset(message.partition for message, why in released if why and message.sent_again)
        if found is not None or mismatch:
            self._returned_messages.lose(partitions if mismatch else in_vain, mismatch)
        for message, why in released:
            if why and (found is None or mismatch or message.sent_again):
                self._settle(message, refused(message, mismatch or why))
            message.sent_again = bool(why)
        # If there is the same layout, its growth may have been called off meanwhile: all of them are sent again, once. Those
        # that come back once more are looked into, too, as another growth may have begun.
        self._hold_again([message for message, _ in released if not message.settled])
        self._write_held()
        self._look_for_layout()  # for what has come back meanwhile from other partitions

    def _change_layout(self) -> None:
        """Runs once all in flight is settled, so that returned messages are sent again after all that were accepted.

        What is confirmed later is in the old layout, which is consumed first.
        """
        if self._newer is None or any(it.confirms.outstanding for it in self._lanes):
            return
        self._topic, self._newer = self._newer, None
        returned, self._returned_messages = self._returned_messages, Returned()
        logger.info("topic %s has %d partitions now", self._topic.name, self._topic.partitions)
        for message in returned.messages:
            message.sent_again = False
        self._hold_again(returned.messages)
        self._open_more()
        self._write_held()

    def _returned(self, lane: Lane, method: Basic.Return, properties: BasicProperties, _: bytes) -> None:
        why = (
            f"no queue takes routing key {method.routing_key!r} of exchange {method.exchange!r} ({method.reply_text}): bind the partition's "
            f"queue under it; or, if that was deleted, create the topic again, as it was: {creation(self.topic.name, self.topic.partitions)}; or, if an "
            f"earlier version created the topic, {deletion(self.topic.name)}, and create it again"
        )
        lane.confirms.returned(properties.cluster_id or properties.message_id or "", why)

    def _lost(self, reason: str) -> None:
        if self._closed:
            reason = "its publisher was closed"
        lanes, self._lanes = self._lanes, []
        self._looking, self._newer, self._opening = False, None, set()
        held, self._held = self._held, deque()
        for message in itertools.chain.from_iterable(it.confirms.abandon() for it in lanes):
            self._settle(message, unconfirmed(message, reason))
        for _, message in itertools.chain.from_iterable(it.looked_for + it.taken for it in lanes):
            self._settle(message, unconfirmed(message, reason))
        returned, self._returned_messages = self._returned_messages.messages, Returned()
        for message in [*returned, *held, *self.window.let_in(all_of_them=True)]:
            self._settle(message, refused(message, reason))

    def _settle(self, message: UnconfirmedMessage, error: ServerError | None) -> None:
        if message.settled:
            return
        message.settled = True
        self.window.leave(message)  # first: a callback may publish the next one
        if self.window.line:
            self._connection.submit(self._let_in)
        if error is not None and not message.watched:
            self.failures.add(message.outcome, error)
        try:
            if error is None:
                message.outcome.set_result(message.partition)
            else:
                message.outcome.set_exception(error)
        finally:  # whatever its callbacks raise
            self.window.settled(message)

    # The rest is for any thread.

    def _why_late(self, message: UnconfirmedMessage) -> ServerError:
        if message.written:
            return unconfirmed(message, "no confirm came in time")
        if not message.is_inside and self.window.is_full:
            return refused(
                message,
                "the window was full of messages that RabbitMQ has not confirmed. Is it blocking publishers, short of memory or disk space?",
            )
        if self._newer is not None or message.partition in self._returned_messages.partitions:
            return refused(message, "its topic is being grown, and that takes longer")
        if self._connection.blocked:
            return refused(message, "it blocks publishers, being short of memory or disk space")
        return refused(
            message, "it could not be sent in time; does a callback of a future hold up the publisher's thread?"
        )


def _ms_until(moment: float) -> int:
    return max(1, round(1000 * (moment - time.monotonic())))


def _too_large(message: UnconfirmedMessage, most: int) -> str:
    return f"its body takes {len(message.body):,} bytes, more than the {most:,} of RabbitMQ's max_message_size"
