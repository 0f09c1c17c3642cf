"""Sends given-up messages to their queue's dead-letter target, and reports when RabbitMQ has confirmed each.

RabbitMQ's own reject is not confirmed: it drops a message whose target is missing or bound to nothing.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from concurrent.futures import Future
from contextlib import suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Protocol

import attrs
from pika.compat import long
from pika.exceptions import ConnectionClosedByBroker

from cobalance.errors import (
    CobalanceError,
    PermissionMissing,
    PublishFailed,
    QueueMissing,
    Unreachable,
    UsageError,
)
from cobalance.rabbitmq.consume.dead_letter_target import Target, declared_key, required_target
from cobalance.rabbitmq.consume.dead_letters import ERROR, FAILURES, GROUP, QUEUE, publish, publish_nowhere
from cobalance.rabbitmq.consume.republishing import EXPIRATION, USER_ID, republished
from cobalance.rabbitmq.model.encoding import can_hold
from cobalance.rabbitmq.model.headers import DEATHS, as_number
from cobalance.rabbitmq.partition.delivery import EXCHANGE, ROUTING_KEY
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire.pika_internals import frame_max

MOST_SILENT = 1_000
"""So many ways to silent targets are remembered."""

INTERNAL_ERROR = 541
"""RabbitMQ 3 closes the connection with it over a header that a stream does not take."""

MOST_COUNTED = 2**31
"""A publisher can claim any number of earlier deaths; one more has to fit into a header."""

if TYPE_CHECKING:
    from collections.abc import Callable

    from pika.adapters.blocking_connection import BlockingChannel
    from pika.spec import BasicProperties

    from cobalance.rabbitmq.model.queues import Queue
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.topics.admin import Admin


log = logging.getLogger("cobalance.rabbitmq")


@attrs.frozen
class Reason:
    """Why a message is given up."""

    group: str
    error: str
    failures: int | None = None
    """None if the handler did not fail, but rejected the message."""


Way = tuple[str, str | None]
"""The exchange of a queue's dead letters and the routing key that the queue declares for them. Without one, each letter
keeps its own, so that its publisher chooses it, and the exchange alone tells what a silent target may hold up.
"""


@attrs.frozen
class Letter:
    """A message to send."""

    queue: Queue
    delivery: Delivery
    reason: Reason
    target: Target
    way: Way
    sent: Future[None] = attrs.field(factory=Future)


class Note(Protocol):
    """Hears whether the target of a message has confirmed it, or is silent."""

    def __call__(self, letter: Letter, *, silent: bool) -> None: ...


class DeadLetterSender:
    """Sends one message after the other, on a connection that stays open while there are any. Any thread.

    A target may confirm nothing, such as a quorum queue without a majority. What goes to it fails, the rest goes on; and
    until it confirms one, its messages are sent apart, where they hold up only those of other such targets. So are all
    messages that go the same way.
    """

    def __init__(self, url: str) -> None:
        self._lock = threading.Lock()
        self._silent: dict[Way, Target] = {}  # the target that was silent last
        self._apart = SendQueue(url, self._note)
        self._main = SendQueue(url, self._note, self._apart)

    def send(self, queue: Queue, delivery: Delivery, reason: Reason) -> Future[None]:
        """The result is done once RabbitMQ has confirmed the message; CobalanceError if it may not be there."""
        try:
            target = required_target(queue, delivery)
            letter = Letter(queue, delivery, reason, target, (target.exchange, declared_key(queue)))
        except UsageError as error:
            failed: Future[None] = Future()
            failed.set_exception(error)
            return failed
        letter.sent.set_running_or_notify_cancel()  # a waiter that gives up stops nothing
        (self._apart if letter.way in self._silent else self._main).add(letter)
        return letter.sent

    def _note(self, letter: Letter, *, silent: bool) -> None:
        with self._lock:
            is_news = silent and letter.way not in self._silent
            if silent:
                self._silent[letter.way] = letter.target
                while len(self._silent) > MOST_SILENT:
                    self._silent.pop(next(iter(self._silent)))
            elif self._silent.get(letter.way) == letter.target:
                del self._silent[letter.way]
        if is_news:
            log.warning(
                "group %s: RabbitMQ has not confirmed a dead letter for %s: until it does, what fails in %s stays there; dead letters "
                "of other queues are sent",
                *(letter.reason.group, letter.target, letter.queue.name),
            )


class SendQueue:
    """Messages that are sent one after the other. `note` hears of each that was confirmed, or got no answer. Those that
    go the same way as one without an answer are sent `apart`. Any thread.
    """

    def __init__(self, url: str, note: Note, apart: SendQueue | None = None) -> None:
        self._url, self._note, self._apart = url, note, apart
        self._lock = threading.Lock()
        self._letters: deque[Letter] = deque()
        self._running = False

    def add(self, letter: Letter) -> None:
        """Sends it after those before it."""
        with self._lock:
            self._letters.append(letter)
            first, self._running = not self._running, True
        if first:
            try:
                threading.Thread(target=self._run, name="cobalance dead letters", daemon=True).start()
            except RuntimeError as error:  # the system gives no more threads: the next letter asks for one again
                self._give_up(Unreachable(f"the message cannot be sent now: {error}"))

    def _run(self) -> None:
        asks = False
        while self._more():
            under_way: Letter | None = None
            try:
                with connected(self._url) as admin:
                    if asks:
                        with suppress(PublishFailed):  # an answer, too
                            admin.call("", publish_nowhere)
                    asks = False
                    while self._letters:
                        under_way = self._letters[0]
                        _send(under_way, admin)
                        self._note(under_way, silent=False)
                        self._letters.popleft().sent.set_result(None)
                        under_way = None
            except Exception as error:  # noqa: BLE001 -- raised where it is waited for
                asks = isinstance(error, Unreachable) and under_way is not None
                self._fail(under_way, error)

    def _fail(self, under_way: Letter | None, error: Exception) -> None:
        """A server that cannot be reached is not asked by each in turn; if it only did not answer, others may get through."""
        if not isinstance(error, Unreachable):  # it may be the connection's close that failed
            failed = [self._letters.popleft() for _ in range(min(len(self._letters), 1))]
        elif under_way is None:
            failed = [self._letters.popleft() for _ in range(len(self._letters))]
        else:
            self._note(under_way, silent=True)
            failed = self._take(lambda it: it.target == under_way.target)
            if self._apart is not None:
                for letter in self._take(lambda it: it.way == under_way.way):
                    self._apart.add(letter)
        for letter in failed:
            letter.sent.set_exception(_failure(error))

    def _take(self, wanted: Callable[[Letter], bool]) -> list[Letter]:
        with self._lock:
            taken = [it for it in self._letters if wanted(it)]
            self._letters = deque(it for it in self._letters if not wanted(it))
        return taken

    def _give_up(self, error: CobalanceError) -> None:
        with self._lock:
            unsent, self._letters, self._running = self._letters, deque(), False
        for letter in unsent:
            letter.sent.set_exception(error)

    def _more(self) -> bool:
        with self._lock:
            self._running = bool(self._letters)
        return self._running


def _send(letter: Letter, admin: Admin) -> None:
    queue, delivery, reason, target = letter.queue, letter.delivery, letter.reason, letter.target

    def send(channel: BlockingChannel) -> None:
        properties = _with_reason(queue, delivery, reason, frame_max(channel.connection))
        publish(channel, target.exchange, target.routing_key, properties, delivery.body)

    try:
        admin.call(queue.name, send)
    except ConnectionClosedByBroker as error:
        if error.reply_code != INTERNAL_ERROR:
            raise
        raise PublishFailed(
            f"RabbitMQ has closed the connection over it ({error.reply_text}): is there a stream at {target}, and do its headers have a "
            "Decimal, which no stream takes?"
        ) from None
    except QueueMissing:
        raise PublishFailed(f"there is no {target}, where dead letters of {queue.name!r} go") from None
    except PermissionMissing as error:
        exchange = target.exchange or "amq.default"
        if "internal exchange" in str(error):
            raise PublishFailed(
                f"exchange {exchange!r}, where dead letters of {queue.name!r} go, is internal: only RabbitMQ itself may publish to it; "
                "declare it without internal"
            ) from None
        raise PermissionMissing(
            f"the user needs the permission to write to exchange {exchange!r}, where dead letters of {queue.name!r} go"
        ) from None


def _with_reason(queue: Queue, delivery: Delivery, reason: Reason, most: int) -> BasicProperties:
    own = {
        QUEUE: queue.name,  # the only one that a replay needs, together with the next, if the message has it
        DEATHS: _deaths(queue.name, delivery),
        EXCHANGE: delivery.exchange,
        ROUTING_KEY: delivery.routing_key,
        EXPIRATION: delivery.properties.expiration,
        USER_ID: delivery.properties.user_id,
        FAILURES: reason.failures,
        GROUP: reason.group,
        ERROR: reason.error,
    }
    return republished(delivery.properties, own, frame_max=most)


def _deaths(queue: str, delivery: Delivery) -> list[Any]:
    """The message's deaths, this one first, as RabbitMQ has them when it rejects a message by itself: whoever moved the
    message last, its first entry says from where, and no header of a publisher does.
    """
    deaths = delivery.headers.get(DEATHS)
    # RabbitMQ loses a message that dies once more with a count that is no number.
    earlier = [
        it
        for it in (deaths if isinstance(deaths, list) else [])
        if isinstance(it, dict) and can_hold(it) and as_number(it.get("count", 0)) is not None
    ]
    same = [it for it in earlier if (it.get("queue"), it.get("reason")) == (queue, "rejected")]
    before = as_number(same[0].get("count")) if same else None
    this = {
        "count": long(min(before or 0, MOST_COUNTED) + 1),
        "reason": "rejected",
        "queue": queue,
        "time": datetime.now(UTC),
        "exchange": delivery.exchange,
        "routing-keys": [delivery.routing_key],
    }
    return [this, *(it for it in earlier if it not in same)]


def _failure(error: Exception) -> CobalanceError:
    if isinstance(error, CobalanceError):
        return error
    return PublishFailed(f"its properties cannot be sent again ({type(error).__name__})")
