"""A short-lived blocking connection for setup and inspection; see `broker` for what it is used for."""

from __future__ import annotations

import math
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from itertools import takewhile
from typing import TypeVar

from pika import exceptions as pika_errors
from pika.adapters.blocking_connection import BlockingChannel
from pika.exchange_type import ExchangeType

from cobalance.coordinator.advice import command
from cobalance.errors import (
    CobalanceError,
    PermissionMissing,
    QueueMismatch,
    QueueMissing,
    ServerError,
    TopicInUse,
    TopicMismatch,
    TopicMissing,
    Unreachable,
    counted,
)
from cobalance.rabbitmq.model.queues import Argument, Queue
from cobalance.rabbitmq.model.topic import Topic, set_of
from cobalance.rabbitmq.topics.queue_state import QueueState, Way, declared_state, is_unused, read_state
from cobalance.rabbitmq.wire.address import place
from cobalance.rabbitmq.wire.failures import (
    Difference,
    channel_failure,
    connect_failure,
    cut_off,
    difference,
    is_unavailable,
    loss_reason,
)
from cobalance.rabbitmq.wire.hosts import first_that_works
from cobalance.rabbitmq.wire.parameters import connection_parameters
from cobalance.rabbitmq.wire.pika_internals import PatientConnection, bare_close_blocking, look_for_all, look_unanswered
from cobalance.rabbitmq.wire.pika_log import our_connection

DIRECT = ExchangeType("direct")

LOCK_SUFFIX = ".changing"
"""Behind a topic's name: the queue that locks it."""

LOOK_AHEAD = 8
"""AMQP cannot list queues: if a number is missing, this many more are checked before the topic is taken to end."""

AT_ONCE, MOST_AT_ONCE = 64, 1024
"""How many queues are looked for in one round trip: ever more, while all of them exist."""

NO_QUEUE = re.compile("no queue '(.*)' in vhost")
"""What RabbitMQ says of a queue that does not exist, unless a long name is cut off."""

MAX_ATTEMPTS = 40
"""Reading a declaration takes one attempt per argument that differs from the default; RabbitMQ knows fewer."""

FAREWELL_S = 1.0
"""How long to wait for the answer to a close; nothing depends on it."""

LOCK_PATIENCE_S = 20.0
"""How long to wait for another process to finish changing a topic."""

T = TypeVar("T")


class PublishersBlocked(Unreachable):
    """RabbitMQ is there, and takes no messages: its memory or disk alarm. To others it answers as ever."""


@contextmanager
def connected(
    url: str, timeout_ms: int = 10_000, *, in_all: bool = False, give_up_at: float = math.inf
) -> Iterator[Admin]:
    """A connection for the length of a ``with``; raises if it cannot be made or is lost.

    The timeout applies to connecting and then to each answer, so a server that accepts connections and says nothing
    blocks no one; it begins again with whatever is sent or received, as a large message may take long. Or, `in_all`, it
    applies to everything that is asked. No answer is waited for after `give_up_at`, on the
    monotonic clock.
    """
    with our_connection():
        yield from _connected(url, timeout_ms, time.monotonic() + timeout_ms / 1000 if in_all else give_up_at)


def _connected(url: str, timeout_ms: int, give_up_at: float) -> Iterator[Admin]:
    connection, where = first_that_works(
        url, lambda single, share_ms: _connect(single, share_ms, timeout_ms), timeout_ms
    )
    connection.give_up_at, blocked = give_up_at, _why_blocked(connection)
    try:
        yield Admin(connection, where)
    except pika_errors.AMQPConnectionError as error:
        if blocked:
            raise PublishersBlocked(
                f"RabbitMQ at {where} blocks publishers: it is short of memory or disk ({blocked[-1]}).",
                outcome="unknown",
            ) from None
        if time.monotonic() >= give_up_at:
            raise Unreachable(
                f"RabbitMQ at {where}: no answer in time: it had not answered all that it was asked within {timeout_ms} ms. If it is slow or far away, "
                "allow it more time.",
                outcome="unknown",
            ) from None
        reason = loss_reason(error)
        raise Unreachable(
            f"RabbitMQ at {where} was lost while it was being asked: {reason}.", outcome="unknown"
        ) from None
    finally:
        if connection.is_open:
            connection.give_up_at = time.monotonic() + min(connection.patience_s, FAREWELL_S)
            with suppress(pika_errors.AMQPError):  # an unanswered close does not undo anything
                connection.close()
        connection.free()


class Admin:
    """A blocking connection. Each call uses its own channel, since RabbitMQ closes the channel of a failed one."""

    def __init__(self, connection: PatientConnection, place: str) -> None:
        self.place, self._connection = place, connection

    @property
    def version(self) -> str | None:
        """RabbitMQ's version."""
        told = (self._connection._impl.server_properties or {}).get("version")  # noqa: SLF001
        return str(told) if told else None

    @contextmanager
    def changing(self, topic: str, *, patience_s: float | None = None) -> Iterator[None]:
        """Locks the topic against other changes, by an exclusive queue, which is deleted with its connection. It is consumed
        meanwhile, or a policy with ``expires`` would delete it.

        Raises:
            TopicInUse: another process keeps changing it.
        """
        patience_s = LOCK_PATIENCE_S if patience_s is None else patience_s
        lock, give_up_at = f"{topic}{LOCK_SUFFIX}", time.monotonic() + patience_s
        while (channel := self._take(lock)) is None:
            if time.monotonic() > give_up_at:
                raise TopicInUse(
                    f"Topic {topic!r} at {self.place} is being changed by another process, or its dead letters are being replayed; try again."
                )
            time.sleep(0.05)
        yield
        self.delete(lock)
        if channel.is_open:
            bare_close_blocking(channel)

    def _take(self, lock: str) -> BlockingChannel | None:
        channel = self._connection.channel()
        try:
            channel.queue_declare(lock, exclusive=True)
            channel.basic_consume(lock, lambda *_: None, auto_ack=True)
        except pika_errors.ChannelClosedByBroker as error:
            if error.reply_code in {405, 404}:  # or a policy with ``expires`` has deleted it before it was consumed
                return None
            if error.reply_code == 403:
                raise PermissionMissing(
                    f"RabbitMQ refuses access to queue {lock!r} ({error.reply_text}), which is the lock of a topic that is created or changed: "
                    "that takes the permissions configure and read on it."
                ) from None
            raise _failure(error, lock) from None
        return channel

    def call(self, queue: str, use: Callable[[BlockingChannel], T]) -> T:
        """Runs `use` on a channel of its own, as :meth:`channel`."""
        with self.channel(queue) as channel:
            return use(channel)

    @contextmanager
    def channel(self, queue: str) -> Iterator[BlockingChannel]:
        """A channel; a refusal is reported as being about this queue.

        What was consumed on it and not acknowledged is back in its place afterwards.
        """
        channel = self._connection.channel()
        try:
            yield channel
        except pika_errors.ChannelClosedByBroker as error:
            raise _failure(error, queue) from None
        finally:
            if channel.is_open:
                bare_close_blocking(channel)

    def declare(self, queue: Queue) -> None:
        """Creates the queue if it does not exist; raises QueueMismatch if it differs."""
        self.call(queue.name, lambda c: self._declare(c, queue))

    def verify(self, queue: Queue) -> None:
        """Raises QueueMissing or QueueMismatch unless the queue exists as described."""
        self.call(queue.name, lambda c: self._declare_existing(c, queue))

    def bind(self, queue: str, exchange: str, routing_keys: Iterable[str]) -> None:
        """Does nothing if it is already bound."""
        with self.channel(queue) as channel:
            for key in routing_keys:
                channel.queue_bind(queue, exchange, key)

    def delete(self, queue: str) -> None:
        """Deletes the queue and its messages; does nothing if it does not exist."""
        self.call(queue, lambda c: c.queue_delete(queue))

    def exists(self, queue: str) -> bool:
        """Also if RabbitMQ does not know what it holds."""
        return self._look(queue, declared_state) is not None

    def ready(self, queue: str) -> int | None:
        """Number of ready messages; None if the queue does not exist."""
        state = self.state(queue)
        return None if state is None else state.ready

    def state(self, queue: str) -> QueueState | None:
        """Ready messages and number of consumers; None if the queue does not exist."""
        return self._look(queue, read_state)

    def _look(self, queue: str, read: Callable[[BlockingChannel, str], QueueState]) -> QueueState | None:
        channel = self._connection.channel()
        found = _state(channel, queue, read)
        if channel.is_open:
            channel.close()
        return found

    def states(self, queues: Iterable[str]) -> Iterator[tuple[str, QueueState | None]]:
        """The same of each queue, on one channel for as long as RabbitMQ leaves it open.

        Those that RabbitMQ does not know about at the moment are left out.
        """
        channel, read = self._connection.channel(), partial(read_state, way=Way())
        for queue in queues:
            if not channel.is_open:
                channel = self._connection.channel()
            try:
                found = _state(channel, queue, read)
            except Unreachable:
                continue
            yield queue, found
        if channel.is_open:
            channel.close()

    def is_unused(self, queue: str, kind: str | None = None) -> bool:
        """Whether a queue has neither ready messages nor consumers, for certain; also if it does not exist.

        Finding out its type takes the permission to declare it.
        """
        if not self.exists(queue):
            return True
        try:
            known = kind or self.kind(queue)
        except QueueMissing:
            return True
        return self.call(queue, lambda c: is_unused(c, queue, known)) and not self.ready(queue)

    def delete_unused(self, queue: str, kind: str | None = None) -> bool:
        """Deletes a queue, of this type if that is known, unless it has messages or consumers; returns whether it did.

        RabbitMQ closes the connection if it is to look at a queue of another type than classic before it deletes it. So
        those are looked at first, and nothing may be published to them any more.
        """
        try:
            kind = kind or self.kind(queue)
        except QueueMissing:
            return True
        if kind != "classic":
            if not self.is_unused(queue, kind):
                return False
            self.delete(queue)
            return True
        channel = self._connection.channel()
        try:
            channel.queue_delete(queue, if_unused=True, if_empty=True)
        except pika_errors.ChannelClosedByBroker as error:
            if error.reply_code == 406:
                return False
            raise _failure(error, queue) from None
        channel.close()
        return True

    def has_exchange(self, name: str) -> bool:
        channel = self._connection.channel()
        try:
            channel.exchange_declare(name, DIRECT, passive=True)
        except pika_errors.ChannelClosedByBroker as error:
            if error.reply_code == 404:
                return False
            raise _failure(error, name) from None
        channel.close()
        return True

    def declare_exchange(self, name: str, arguments: Mapping[str, Argument]) -> None:
        """Creates a durable direct exchange if it does not exist."""
        self.call(name, lambda c: c.exchange_declare(name, DIRECT, durable=True, arguments=dict(arguments)))

    def declare_attached(self, name: str, exchange: str) -> None:
        """Creates an exchange that RabbitMQ deletes together with another one, unless it exists."""

        def declare(channel: BlockingChannel) -> None:
            channel.exchange_declare(name, DIRECT, durable=True, auto_delete=True)
            channel.exchange_bind(exchange, name)  # without its last binding it goes

        try:
            self.call(name, declare)
        except CobalanceError as error:
            self.delete_unused_exchange(name)
            if isinstance(error, QueueMissing):
                raise TopicMissing(f"Exchange {exchange!r} at {self.place} was deleted meanwhile; try again.") from None
            raise

    def delete_unused_exchange(self, name: str) -> None:
        """Does nothing if it is bound to another one, or the user may not."""
        with suppress(CobalanceError):
            self.call(name, lambda c: c.exchange_delete(name, if_unused=True))

    def delete_exchange(self, name: str) -> None:
        """Does nothing if the exchange does not exist."""
        self.call(name, lambda c: c.exchange_delete(name))

    def unbind(self, queue: str, exchange: str, routing_keys: Iterable[str]) -> None:
        """Does nothing if the queue is not bound or does not exist."""
        with self.channel(queue) as channel:
            for key in routing_keys:
                channel.queue_unbind(queue, exchange, key)

    def learn(self, name: str) -> Queue:
        """Finds out a queue's declaration.

        AMQP cannot be asked for it, but it refuses a declaration that differs, and names the first difference.
        """
        queue = Queue(name, {"x-queue-type": "classic"})
        for _ in range(MAX_ATTEMPTS):
            refusal = self._refusal(queue)
            if refusal is None:
                return queue
            found = difference(refusal) or cut_off(refusal, queue)
            if found is None:
                break
            queue = found.applied_to(queue)
        raise QueueMismatch(
            f"The arguments of queue {name!r} at {self.place} could not be read: RabbitMQ tells them in replies of 255 bytes, which a long "
            "name fills. In place of the name give Queue(name, {...}) with its arguments, or the Topic(...) as it was created."
        )

    def partition_numbers(self, topic: str) -> Iterator[int]:
        """The partitions that exist, in order."""
        missed, first, many = 0, 0, AT_ONCE
        while missed <= LOOK_AHEAD:
            there = self._existing([f"{topic}-{number}" for number in range(first, first + many)])
            yield from range(first, first + there)
            missed = 0 if there == many else 1 if there else missed + 1
            first += there + (there < many)
            many = min(2 * many, MOST_AT_ONCE) if there == many else AT_ONCE if there else LOOK_AHEAD

    def _existing(self, queues: list[str]) -> int:
        """How many of these exist before the first that does not."""
        channel = self._connection.channel()
        try:
            look_for_all(channel, queues)
        except pika_errors.ChannelClosedByBroker as error:
            said = NO_QUEUE.search(error.reply_text)
            named = said[1] if said and said[1] in queues else ""
            if error.reply_code != 404 or is_unavailable(error):
                raise _failure(error, named or queues[0]) from None
            return queues.index(named) if named else sum(1 for _ in takewhile(self.exists, queues))
        channel.close()
        return len(queues)

    def first_missing(self, queues: Sequence[str], *, all_up: bool = False) -> str | None:
        """The first of these queues that does not exist. One that lives on a node that is down, and what follows it, are
        taken to be there; or Unreachable is raised, if they have to be `all_up`.
        """
        channel = self._connection.channel()
        try:
            for queue in queues:
                look_unanswered(channel, queue)
            channel.basic_qos()  # the answer comes after all of that, and asks no queue
        except pika_errors.ChannelClosedByBroker as error:
            if is_unavailable(error) and not all_up:
                return None
            if is_unavailable(error) or error.reply_code != 404:
                raise _failure(error, queues[0]) from None
            said = NO_QUEUE.search(error.reply_text)
            return said[1] if said and said[1] in queues else next((it for it in queues if not self.exists(it)), None)
        channel.close()
        return None

    def require_exchange(self, name: str) -> None:
        """Raises TopicMissing unless the exchange exists."""
        if self.has_exchange(name):
            return
        remedy = f"create it with: {creation(name)}"
        if self.exists(name):
            remedy = f"there is a queue of that name, which is consumed as a list of queues, [{name!r}]; or {remedy}"
        raise TopicMissing(f"There is no topic {name!r} at {self.place}; {remedy}")

    def refuse_more_partitions(self, topic: Topic) -> None:
        """Raises TopicMismatch if the topic has more partitions than expected."""
        beyond = f"{topic.prefix}-{topic.partitions}"
        if not self.exists(beyond):
            return
        remedy = "Use its real number of partitions, or another name."
        if set_of(topic.name):
            remedy += f" If that is left of a queue set that was not created completely, delete it first: {deletion(topic.name)}"
        raise TopicMismatch(
            f"Topic {topic.name!r} at {self.place} has more than {counted(topic.partitions, 'partition')}: the queue {beyond} exists. {remedy}"
        )

    def refuse_in_use(self, queue: str) -> None:
        """Raises TopicInUse if the queue has messages or consumers."""
        found = self.state(queue)
        if found is None:
            return
        what = f"{counted(found.ready, 'message')} and {counted(found.consumers, 'consumer')}"
        if found == QueueState(0, 0):
            if self.is_unused(queue):
                return
            what = "messages or consumers"
        raise TopicInUse(
            f"Queue {queue!r} at {self.place} still has {what}; nothing was deleted. Stop the consumers and drain it, or force the deletion."
        )

    def kind(self, name: str) -> str:
        """The type of a queue: classic, quorum or stream; unknown if RabbitMQ's replies are cut off before that.

        It is compared behind those arguments whose names come first. Raises QueueMissing.
        """
        asked = Queue(name, {"x-queue-type": "classic"})
        for _ in range(MAX_ATTEMPTS):
            refusal = self._refusal(asked)
            if refusal is None:
                return asked.kind
            found = difference(refusal)
            if "'x-queue-type'" in refusal:
                if found is not None or asked.kind == "quorum":
                    return "stream" if found is None else str(found.current)
                found = Difference("x-queue-type", "quorum")
            found = found or cut_off(refusal, asked)
            if found is None:
                break
            asked = found.applied_to(asked)
        return "unknown"

    def _refusal(self, queue: Queue) -> str | None:
        """RabbitMQ's own words for refusing the declaration; None if it is equivalent to the queue's."""
        channel = self._connection.channel()
        try:
            self._declare_existing(channel, queue)
        except pika_errors.ChannelClosedByBroker as error:
            if error.reply_code == 406:
                return error.reply_text
            raise _failure(error, queue.name) from None
        channel.close()
        return None

    def _declare_existing(self, channel: BlockingChannel, queue: Queue) -> None:
        """Declaring alone would create a queue that is deleted meanwhile."""
        look_unanswered(channel, queue.name)
        self._declare(channel, queue)

    @staticmethod
    def _declare(channel: BlockingChannel, queue: Queue) -> object:
        return channel.queue_declare(
            queue.name, durable=queue.durable, auto_delete=queue.auto_delete, arguments=queue.declaration
        )


def _state(
    channel: BlockingChannel, queue: str, read: Callable[[BlockingChannel, str], QueueState]
) -> QueueState | None:
    try:
        return read(channel, queue)
    except pika_errors.ChannelClosedByBroker as error:
        if error.reply_code == 404 and not is_unavailable(error):
            return None
        raise _failure(error, queue) from None


def creation(name: str, partitions: int | None = None) -> str:
    """The command that creates a topic, or a group's queue set."""
    topic, group = set_of(name) or (name, "")
    of_group = {"group": group} if group else {}
    return command("topic create", topic, key_prefix=None, partitions=partitions or "N", **of_group)


def growth(name: str, partitions: int | None = None) -> str:
    """The command that grows a topic."""
    return command("topic grow", name, key_prefix=None, partitions=partitions or "N")


def deletion(name: str, *, force: bool = False) -> str:
    """The command that deletes a topic, or a group's queue set."""
    return command("topic delete", name, key_prefix=None, **({"force": True} if force else {}))


def _failure(error: pika_errors.ChannelClosedByBroker, queue: str) -> Exception:
    if is_unavailable(error):
        return Unreachable(
            f"Queue {queue!r} cannot be used yet: RabbitMQ is starting, or the node that the queue lives on is down."
        )
    if "cannot declare queue" in error.reply_text:
        return ServerError(f"RabbitMQ refused to create queue {queue!r}: {error.reply_code} {error.reply_text}.")
    return channel_failure(error, queue) or error


def _why_blocked(connection: PatientConnection) -> list[str]:
    """RabbitMQ's own reason, while it blocks this connection; it does so once something is published on it."""
    reasons = list[str]()
    impl = connection._impl  # noqa: SLF001 -- as pika tells it of a blocking one between two calls only
    impl.add_on_connection_blocked_callback(lambda _, frame: reasons.append(frame.method.reason))
    impl.add_on_connection_unblocked_callback(lambda *_: reasons.clear())
    return reasons


def _connect(url: str, connect_ms: int, timeout_ms: int) -> tuple[PatientConnection, str]:
    where, parameters = place(url), connection_parameters(url, "cobalance set-up", 60, connect_ms)
    parameters.blocked_connection_timeout = timeout_ms / 1000  # while RabbitMQ blocks publishers
    try:
        return PatientConnection(parameters, timeout_ms / 1000), where
    except Exception as error:  # noqa: BLE001 -- whatever pika stumbles over when a server resets connections
        raise connect_failure(error, where) from None
