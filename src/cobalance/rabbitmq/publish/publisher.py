"""Publishes keyed messages to a topic, each confirmed by the broker."""

import logging
import time
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Literal, Self, Unpack, get_args

import anyio

from cobalance.errors import UsageError
from cobalance.limits import check_kind
from cobalance.names import validate_name
from cobalance.rabbitmq.model.encoding import Body
from cobalance.rabbitmq.model.topic import Topic
from cobalance.rabbitmq.options import check_options
from cobalance.rabbitmq.publish.confirm_channel import ConfirmChannel
from cobalance.rabbitmq.publish.envelopes import Envelopes, Headers, Key, Properties
from cobalance.rabbitmq.publish.metering import Publishing, PublishMeter
from cobalance.threads.wakeup import Crossing
from cobalance.threads.worker_threads import in_thread

logger = logging.getLogger("cobalance.rabbitmq")

Unseen = Literal["raise", "log"]


class _Publishing:
    """What both publishers have in common."""

    def __init__(
        self,
        url: str,
        topic: Topic | str,
        *,
        window: int = 1_000,
        timeout_ms: int = 30_000,
        heartbeat_s: int = 30,
        name: str = "publisher",
        telemetry: PublishMeter | None = None,
    ) -> None:
        _check(
            url, topic, window=window, timeout_ms=timeout_ms, heartbeat_s=heartbeat_s, name=name, telemetry=telemetry
        )
        self._timeout_ms = timeout_ms
        self._meter, self._name = telemetry, topic if isinstance(topic, str) else topic.name
        self._envelopes = Envelopes(url)
        self._channel = ConfirmChannel(url, topic, name=name, window=window, heartbeat_s=heartbeat_s)

    @property
    def topic(self) -> Topic:
        """The topic as known so far; it changes when the topic is grown, while publishing goes on.

        If the topic was given by name, it is looked up when the publisher is entered, and only its partitions are
        known.
        """
        return self._channel.topic


class Publisher(_Publishing):
    """Publishes from any number of threads, over one connection, in the order of the calls.

    The topic may be given by name. At most `window` messages are in flight at a time; `publish` waits for room. When a
    connection is lost, unconfirmed messages fail; the next call reconnects, trying up to its timeout. While the broker
    blocks publishers, messages wait, up to their timeout.

    Leaving the ``with``, and `flush`, raise if messages have failed whose futures nobody has checked; with
    `unseen_failures="log"` they are logged instead. A publisher does not survive a fork: each process needs its own.

    Without a ``with``, it connects on the first call, and `close` ends it. If it is not closed, it ends with the
    program, which waits up to the timeout for messages in flight and logs any losses as an error. A closed publisher
    refuses to publish until it is entered again.

    `telemetry` traces what it publishes; see :class:`cobalance.operate.Telemetry`.
    """

    def __init__(
        self,
        url: str,
        topic: Topic | str,
        *,
        window: int = 1_000,
        timeout_ms: int = 30_000,
        heartbeat_s: int = 30,
        name: str = "publisher",
        telemetry: PublishMeter | None = None,
        unseen_failures: Unseen = "raise",
    ) -> None:
        super().__init__(
            url,
            topic,
            window=window,
            timeout_ms=timeout_ms,
            heartbeat_s=heartbeat_s,
            name=name,
            telemetry=telemetry,
        )
        if unseen_failures not in get_args(Unseen):
            raise UsageError(f"unseen_failures is {unseen_failures!r}: give 'raise' or 'log'")
        self._unseen_failures: Unseen = unseen_failures

    def __enter__(self) -> Self:
        self._channel.check_may_wait("with", "enter it in another thread")
        try:
            self._channel.allow()
            self._channel.open(self._timeout_ms)
            return self
        except BaseException:
            self._channel.abandon()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(self._unseen_failures if error is None else "log")  # does not hide another error

    def publish(
        self,
        key: Key,
        body: Body,
        headers: Headers | None = None,
        *,
        partition: int | None = None,
        persistent: bool = True,
        wait: bool = True,
        **properties: Unpack[Properties],
    ) -> Future[int]:
        """Sends a message to its key's partition and, with `wait`, returns once the broker has it for good.

        Without a key (None) it goes to any partition; with `partition`, to that one. `Properties` lists AMQP's other
        properties of a message, such as `message_id`, `content_type` or `reply_to`. A priority is refused, since a
        partition's messages are in order, and RabbitMQ 4's quorum queues would deliver this one ahead of older ones.

        The future's result is the partition; it fails without a confirm within `timeout_ms`, of which waiting for a
        connection, and for room in the window, takes its part. It cannot be cancelled. What could not be sent by then,
        as while the broker blocks publishers, is not sent later ("not_executed"). Its callbacks run on the publisher's
        own thread, so they hold it up, and must not wait for it. They may publish on with `wait=False`: what has no
        room in the window yet is sent when it has.

        Raises:
            PublishFailed: raised here or by the future. The broker may have the message (`outcome` "unknown") or does
                not ("not_executed").
            UsageError: AMQP cannot hold the message; the partition does not exist; the publisher is closed, or was
                entered before a fork; or a future's callback would wait.
            Unreachable, AuthenticationRefused, VirtualHostMissing, NotRabbitMQ: it had to connect, and could not.
            TopicMissing, TopicMismatch, QueueMissing: it had to connect, and found no such topic, or another
                one of that name.
        """
        if self._meter is None:
            return self._publish(key, body, headers, properties, partition=partition, persistent=persistent, wait=wait)
        with Publishing(self._meter, self._name, headers, self._channel.connection) as it:
            return self._publish(
                key, body, it.headers, properties, partition=partition, persistent=persistent, wait=wait, metered=it
            )

    def _publish(
        self,
        key: Key,
        body: Body,
        headers: Headers | None,
        properties: Properties,
        *,
        partition: int | None,
        persistent: bool,
        wait: bool,
        metered: Publishing | None = None,
    ) -> Future[int]:
        if wait:
            self._channel.check_may_wait("publish", "give wait=False")
        begun = time.monotonic()
        message = self._envelopes.seal(
            key, body, headers, partition=partition, persistent=persistent, properties=properties
        )
        if not self._channel.ready:
            self._channel.open(self._timeout_ms)
        self._channel.check(message)
        message.watched, message.is_timed = wait, not wait
        try:
            self._channel.send(message, begun)
            if metered is not None:
                metered.follow(message)
            left_s = begun + self._timeout_ms / 1000 - time.monotonic()
            if wait:
                in_time = message.ended.wait(left_s)
            else:  # in a callback there is no waiting for room, since only this thread can make it
                in_time = self._channel.in_callback or self._channel.window.wait_for_room(message, left_s)
            failure = None if in_time else self._channel.withdraw(message)
        except BaseException:  # A signal handler may raise anywhere in here, and may not be the last.
            self._channel.withdraw(message)
            raise
        if failure is not None:
            raise failure
        if wait:
            message.outcome.result()
        return message.outcome

    def flush(self) -> bool:
        """Waits until the outcome of everything published is known. Not in a future's callback.

        What is not confirmed in time has failed. So False, for a timeout, says that a callback holds up the
        publisher's thread.

        Raises PublishFailed, or logs it, as `unseen_failures` says, if messages have failed that no call waited for and
        whose futures nobody has checked.
        """
        self._channel.check_may_wait("flush", "call it in another thread")
        is_quiet = self._channel.wait_until_quiet(self._timeout_ms)
        self._report_unseen(self._unseen_failures)
        return is_quiet

    def close(self) -> None:
        """Waits for messages in flight, closes the connection, and reports failures as `flush` does. Not in a future's callback."""
        self._close(self._unseen_failures)

    def _close(self, unseen: Unseen) -> None:
        if self._channel.is_copy:
            return
        self._channel.check_may_wait("close", "call it in another thread")
        self._channel.wait_until_quiet(self._timeout_ms)
        self._channel.close()
        self._report_unseen(unseen)

    def _report_unseen(self, how: Unseen) -> None:
        failure = self._channel.failures.take()
        if failure is not None and how == "raise":
            raise failure
        if failure is not None:
            logger.error("%s", failure)


class AsyncPublisher(_Publishing):
    """Publishes from asyncio or trio.

    Use it as `async with AsyncPublisher(url, topic) as publisher: await publisher.publish(key, body)`.

    Publish from several tasks to have several messages in flight; those of one task keep their order.
    """

    _crossing: Crossing | None = None

    async def __aenter__(self) -> Self:
        try:
            self._channel.allow()
            await self._channel.opened(time.monotonic(), self._timeout_ms)
        except BaseException:
            self._channel.abandon()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def publish(
        self,
        key: Key,
        body: Body,
        headers: Headers | None = None,
        *,
        partition: int | None = None,
        persistent: bool = True,
        **properties: Unpack[Properties],
    ) -> int:
        """Sends a message to its key's partition; returns the partition once the broker has the message for good.

        Arguments and errors are those of `Publisher.publish`. If cancelled before the message was sent, it is not sent.
        """
        if self._meter is None:
            return await self._publish(key, body, headers, properties, partition=partition, persistent=persistent)
        with Publishing(self._meter, self._name, headers, self._channel.connection) as it:
            return await self._publish(
                key, body, it.headers, properties, partition=partition, persistent=persistent, metered=it
            )

    async def _publish(
        self,
        key: Key,
        body: Body,
        headers: Headers | None,
        properties: Properties,
        *,
        partition: int | None,
        persistent: bool,
        metered: Publishing | None = None,
    ) -> int:
        begun = time.monotonic()
        message = self._envelopes.seal(
            key, body, headers, partition=partition, persistent=persistent, properties=properties
        )
        if not self._channel.ready:
            await self._channel.opened(begun, self._timeout_ms)
        self._channel.check(message)
        message.is_timed = True
        self._channel.send(message, begun)
        if metered is not None:
            metered.follow(message)
        try:
            return await self._here().result_of(message.outcome)
        finally:
            if not message.outcome.done():  # cancelled
                self._channel.withdraw(message)

    async def aclose(self) -> None:
        """Waits for messages in flight, then closes the connection."""
        with anyio.CancelScope(shield=True):
            await in_thread(partial(self._channel.wait_until_quiet, self._timeout_ms))
            await in_thread(self._channel.close)

    def _here(self) -> Crossing:
        """The crossing to the current event loop."""
        crossing = self._crossing
        if crossing is None or not crossing.loop.is_current():
            crossing = self._crossing = Crossing()
        return crossing


def _check(url: str, topic: Topic | str, **options: object) -> None:
    if isinstance(topic, str):
        validate_name("topic", topic)
    else:
        check_kind("topic", topic, Topic)
    check_options({"url": url, **options})
