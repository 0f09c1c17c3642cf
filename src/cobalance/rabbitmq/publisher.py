"""Publishing keyed messages to a topic, each confirmed by the broker."""

import time
import uuid
from collections.abc import Mapping
from concurrent.futures import Future
from itertools import count
from types import TracebackType
from typing import Any, Self

import anyio
from pika.spec import BasicProperties

from cobalance.errors import PublishFailed
from cobalance.limits import check_kind
from cobalance.rabbitmq.encoding import Body, encode_body, encode_properties, encode_text
from cobalance.rabbitmq.options import check_options
from cobalance.rabbitmq.outbox import Message
from cobalance.rabbitmq.outlet import Outlet
from cobalance.rabbitmq.topic import Topic
from cobalance.wakeup import result_of

Headers = Mapping[str, Any]


class _Envelopes:
    """Makes messages: persistent, stamped with the time, and with an id that no other message has."""

    def __init__(self) -> None:
        self._origin, self._numbers = uuid.uuid4().hex[:16], count(1)

    def seal(self, topic: Topic, key: bytes | str, body: Body, headers: Headers | None, *, persistent: bool) -> Message:
        message_id = f"{self._origin}-{next(self._numbers)}"
        properties = BasicProperties(
            delivery_mode=2 if persistent else 1, message_id=message_id, timestamp=int(time.time())
        )
        encoded_key, encoded = encode_text("key", key), encode_body(body)
        return Message(
            encoded_key, topic.partition_of(encoded_key), message_id, encoded, encode_properties(properties, headers)
        )


class Publisher:
    """Publishes from any number of threads, over one connection, in the order of the calls.

    At most `window` messages are under way at a time; `publish` waits for room. A lost connection fails what is unconfirmed and is
    made again by the next call, which tries for it up to its timeout. A broker that blocks publishers makes calls wait, up to their timeout.
    """

    def __init__(
        self,
        url: str,
        topic: Topic,
        *,
        window: int = 1_000,
        timeout_ms: int = 30_000,
        heartbeat_s: int = 30,
        name: str = "publisher",
    ) -> None:
        _check(url, topic, window=window, timeout_ms=timeout_ms, heartbeat_s=heartbeat_s, name=name)
        self._timeout_ms = timeout_ms
        self._envelopes = _Envelopes()
        self._outlet = Outlet(url, topic, name=name, window=window, heartbeat_s=heartbeat_s)

    @property
    def topic(self) -> Topic:
        """The topic as it is known: while it is grown, publishing goes on, and this changes."""
        return self._outlet.topic

    def __enter__(self) -> Self:
        self._outlet.open(self._timeout_ms)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def publish(
        self,
        key: bytes | str,
        body: Body,
        headers: Headers | None = None,
        *,
        persistent: bool = True,
        wait: bool = True,
    ) -> Future[int]:
        """Sends a message to its key's partition and, with `wait`, returns once the broker has it for good.

        The future's result is the partition; it cannot be cancelled. PublishFailed, raised here or by the future, says whether the
        broker may have the message (`outcome` "unknown") or does not (`outcome` "not_executed"). UsageError names what AMQP cannot
        hold.
        """
        message = self._envelopes.seal(self.topic, key, body, headers, persistent=persistent)
        if not self._outlet.ready:
            self._outlet.open(self._timeout_ms)
        self._outlet.check(message)
        self._enter()
        outcome = self._outlet.send(message)
        if wait:
            self._wait(message)
            outcome.result()
        return outcome

    def flush(self) -> bool:
        """Waits until the outcome of everything published is known; False when the timeout comes first."""
        return self._outlet.wait_until_quiet(self._timeout_ms)

    def close(self) -> None:
        """Waits for what is under way, then closes the connection."""
        self.flush()
        self._outlet.close()

    def _enter(self) -> None:
        turn = self._outlet.window.enter()
        try:
            turn.result(self._timeout_ms / 1000)
        except TimeoutError:
            self._outlet.window.give_up(turn)
            raise _no_room(self._timeout_ms) from None

    def _wait(self, message: Message) -> None:
        try:
            message.outcome.exception(self._timeout_ms / 1000)
        except TimeoutError:
            self._outlet.withdraw(message)


class AsyncPublisher:
    """The same for asyncio and trio: `async with AsyncPublisher(url, topic) as publisher: await publisher.publish(key, body)`.

    Publish from several tasks at once to have several messages under way; those of one task keep their order.
    """

    def __init__(
        self,
        url: str,
        topic: Topic,
        *,
        window: int = 1_000,
        timeout_ms: int = 30_000,
        heartbeat_s: int = 30,
        name: str = "publisher",
    ) -> None:
        _check(url, topic, window=window, timeout_ms=timeout_ms, heartbeat_s=heartbeat_s, name=name)
        self._timeout_ms = timeout_ms
        self._envelopes = _Envelopes()
        self._outlet = Outlet(url, topic, name=name, window=window, heartbeat_s=heartbeat_s)

    @property
    def topic(self) -> Topic:
        """The topic as it is known: while it is grown, publishing goes on, and this changes."""
        return self._outlet.topic

    async def __aenter__(self) -> Self:
        await self._open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    async def publish(
        self, key: bytes | str, body: Body, headers: Headers | None = None, *, persistent: bool = True
    ) -> int:
        """Sends a message to its key's partition and returns the partition once the broker has the message for good.

        Raises PublishFailed as `Publisher.publish` does. When cancelled, the message is not sent if it was not sent yet.
        """
        message = self._envelopes.seal(self.topic, key, body, headers, persistent=persistent)
        if not self._outlet.ready:
            await self._open()
        self._outlet.check(message)
        await self._enter()
        outcome = self._outlet.send(message)
        try:
            with anyio.move_on_after(self._timeout_ms / 1000):
                return await result_of(outcome)
        finally:
            if not outcome.done():  # Out of time, or cancelled.
                self._outlet.withdraw(message)
        return await result_of(outcome)

    async def aclose(self) -> None:
        """Waits for what is under way, then closes the connection."""
        with anyio.CancelScope(shield=True):
            await anyio.to_thread.run_sync(self._outlet.wait_until_quiet, self._timeout_ms)
            await anyio.to_thread.run_sync(self._outlet.close)

    async def _open(self) -> None:
        await anyio.to_thread.run_sync(self._outlet.open, self._timeout_ms, abandon_on_cancel=True)

    async def _enter(self) -> None:
        turn = self._outlet.window.enter()
        try:
            with anyio.fail_after(self._timeout_ms / 1000):
                await result_of(turn)
        except TimeoutError:
            self._outlet.window.give_up(turn)
            raise _no_room(self._timeout_ms) from None
        except anyio.get_cancelled_exc_class():
            self._outlet.window.give_up(turn)
            raise


def _check(url: str, topic: Topic, **options: object) -> None:
    check_kind("topic", topic, Topic)
    check_options({"url": url, **options})


def _no_room(timeout_ms: int) -> PublishFailed:
    return PublishFailed(
        f"A message was not sent: for {timeout_ms} ms the window was full of messages that RabbitMQ has not confirmed. Is it blocking "
        "publishers, short of memory or disk space?",
        outcome="not_executed",
    )
