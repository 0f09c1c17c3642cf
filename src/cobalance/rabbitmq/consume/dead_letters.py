"""Dead letters: listing, replaying and dropping messages that were given up.

A message is only acknowledged in one queue once RabbitMQ has confirmed it in the other. A crash in between leaves it in
both.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from datetime import datetime
from functools import cache, partial
from typing import Any
from uuid import uuid4

import attrs
from pika import exceptions as pika_errors
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties

from cobalance.errors import (
    CobalanceError,
    PermissionMissing,
    PublishFailed,
    TopicInUse,
    TopicMissing,
    TopologyError,
    Unreachable,
    UsageError,
)
from cobalance.limits import check_kind
from cobalance.rabbitmq.consume.dead_letter_target import target_of
from cobalance.rabbitmq.consume.republishing import EXPIRATION, USER_ID, encoding_of, republished
from cobalance.rabbitmq.model.batches import MOST_MESSAGES
from cobalance.rabbitmq.model.headers import DEATHS, as_name, as_number, as_short, as_text, last_death
from cobalance.rabbitmq.model.topic import Topic, partition_named
from cobalance.rabbitmq.partition.delivery import EXCHANGE, ROUTING_KEY
from cobalance.rabbitmq.topics.admin import Admin, connected
from cobalance.rabbitmq.topics.broker import newest_layout
from cobalance.rabbitmq.topics.queue_state import read_state
from cobalance.rabbitmq.wire.header_table import number_among
from cobalance.rabbitmq.wire.pika_internals import Unreadable, frame_max
from cobalance.redact import printable, redact

ERROR, QUEUE, GROUP = "x-cobalance-error", "x-cobalance-queue", "x-cobalance-group"
FAILURES = "x-cobalance-failures"
"""The headers of a dead letter, together with ``EXCHANGE``, ``ROUTING_KEY``, ``EXPIRATION`` and ``USER_ID``."""

NOT_THE_MESSAGES = ("x-cobalance-", DEATHS, "x-first-death-", "x-last-death-")
"""Headers about the message's death; they are removed when it is sent back."""

MOST_TEXT, MOST_READ = 300, 4_000
"""Characters kept of an exception's text, and those that they are taken from: it may be mostly blanks."""

OFTEN = 10
"""After this many deliveries a message that stays is published again.

RabbitMQ 4 drops a message that a quorum queue has delivered 20 times without an ack, and looking at one is a delivery.
"""

MOST_AT_ONCE = 5_000
"""RabbitMQ sends no more ahead than are needed or so many, since they fill the memory. Of more letters than that, looking
at a few may change the order."""

SILENCE_S = 2.0
"""If nothing arrives for this long, RabbitMQ is asked whether anything will."""

RETURN_S, LOOK_S = 2.0, 0.02
"""How long, and how often, what comes back is waited for; somebody else may have it."""

MOST_SILENCES = 5
"""So many in a row, though messages wait, are an error."""

log = logging.getLogger("cobalance.rabbitmq")


@attrs.frozen(kw_only=True)
class DeadLetter:
    """A message that was given up, as its headers describe it."""

    message_id: str | None
    """What is not UTF-8 in it, or in the other texts, is shown with a backslash, such as ``\\xe9``."""
    queue: str | None
    """The partition queue that it came from."""
    routing_key: str | None
    """The routing key it was published with."""
    exchange: str | None
    """The exchange it was published to."""
    error: str
    """Type and text of the handler's exception, or RabbitMQ's reason; or that the headers cannot be read."""
    group: str | None
    """The group whose handler failed."""
    failures: int | None
    died_at: int | None
    """Unix time in seconds."""
    expiration: str | None
    """The time to live that it was published with, in ms. A dead letter does not expire by it."""
    user_id: str | None
    """The user who published it, if it says so."""
    size: int
    """Size of the body, in bytes."""

    @classmethod
    def read(cls, topic: str, properties: BasicProperties, size: int) -> DeadLetter:
        """Reads a message in the topic's dead-letter queue."""
        headers: Mapping[str, Any] = properties.headers or {}
        death = last_death(headers, topic)
        died, (exchange, routing_key) = death.get("time"), _published(headers, death)
        return cls(
            message_id=_legible(properties.message_id),
            queue=as_name(death.get("queue")) or as_name(headers.get(QUEUE)),  # which a publisher may have set
            routing_key=_legible(routing_key),
            exchange=_legible(exchange),
            error=_unreadable(properties) or as_text(headers.get(ERROR)) or as_text(death.get("reason")) or "unknown",
            group=as_text(headers.get(GROUP)),
            failures=as_number(headers.get(FAILURES)),
            died_at=int(died.timestamp()) if isinstance(died, datetime) else None,
            expiration=as_text(headers.get(EXPIRATION)) or as_text(death.get("original-expiration")),
            user_id=as_text(headers.get(USER_ID)) or _legible(properties.user_id),
            size=size,
        )

    def is_named(self, message_ids: Sequence[str]) -> bool:
        """Whether its id is among these, as it is or as commands print it, where control characters are escaped."""
        return self.message_id is not None and not {self.message_id, printable(self.message_id)}.isdisjoint(message_ids)


def _published(headers: Mapping[str, Any], death: Mapping[str, Any]) -> tuple[str | bytes | None, str | bytes | None]:
    """The exchange and the routing key that a message was published with, as far as its headers say so."""
    exchange, keys = as_short(headers.get(EXCHANGE)), death.get("routing-keys")
    key = keys[0] if isinstance(keys, list) and keys else None
    return (
        as_short(death.get("exchange")) if exchange is None else exchange,
        as_short(headers.get(ROUTING_KEY)) or as_short(key),
    )


def _legible(short: str | bytes | None) -> str | None:
    """As text: pika has what is not UTF-8 as bytes."""
    return printable(short) if isinstance(short, bytes) else short


def _unreadable(properties: BasicProperties) -> str | None:
    if not isinstance(properties, Unreadable):
        return None
    return f"its headers cannot be read ({type(properties.error).__name__})"  # whose text may quote one


# -- giving up ---------------------------------------------------------------------------------------------------------


def words_of(error: Exception) -> str:
    """Type and text of a program's exception in one line, shortened, without passwords."""
    kind = type(error).__name__
    try:
        text = printable(" ".join(redact(str(error), MOST_READ).split()))
    except Exception:  # noqa: BLE001 -- whatever the program's own __str__ raises
        text = ""
    return f"{kind}: {text}"[:MOST_TEXT] if text else kind


def publish(
    channel: BlockingChannel, exchange: str, routing_key: Any, properties: BasicProperties, body: bytes
) -> None:
    """Returns once RabbitMQ has confirmed that a queue has the message; raises PublishFailed."""
    channel.confirm_delivery()
    try:
        channel.basic_publish(exchange, routing_key, body, properties, mandatory=True)
    except pika_errors.UnroutableError:
        raise PublishFailed(
            f"no queue takes routing key {routing_key!r} of exchange {exchange!r}: bind one, or correct the dead-letter target"
        ) from None
    except pika_errors.NackError:
        raise PublishFailed(
            "RabbitMQ refused the message: is its queue full (x-max-length with reject-publish)?"
        ) from None


# -- afterwards --------------------------------------------------------------------------------------------------------


def read_dead_letters(url: str, topic: str, *, most: int = 100) -> list[DeadLetter]:
    """Returns a topic's dead letters, oldest first, and leaves them where they are.

    One process at a time looks at them, replays or drops them. A user who may not lock them looks all the same, and misses
    what another one has in hand.

    Raises:
        TopicMissing: the topic has no dead-letter queue.
        TopicInUse: another process keeps having them in hand.
    """
    found: list[DeadLetter] = []

    def look(_: Sender, letter: DeadLetter, *__: object) -> bool:
        found.append(letter)
        return False

    _visit(url, topic, look, most)
    return found


def replay_dead_letters(url: str, topic: str, *message_ids: str, everything: bool = False) -> list[DeadLetter]:
    """Sends dead letters, those with the given ids or ``everything``, back to their partition queues, behind what is
    there.

    They go to no other queue. Headers are kept, except those about their death; the original exchange and routing key
    become headers, which ``Delivery.exchange`` and ``Delivery.routing_key`` read. In a topic that has grown since, they
    go to the partition of the same number, since nobody consumes the queue they came from; the other messages of their
    keys may be in another partition. One whose headers cannot be read stays, and is logged.

    Properties are kept but for two, which are in the headers ``x-cobalance-expiration`` and ``x-cobalance-user-id``: a
    time to live has mostly passed by now, so that the message would be gone before it is handled, and RabbitMQ takes no
    other ``user_id`` than that of the connection.

    Meanwhile the topic is locked: a growth, and a prune of the queues that were consumed before it, wait.

    Raises:
        UsageError: neither ids nor ``everything`` are given, or both.
        TopicMissing: the topic has no dead-letter queue.
        TopicInUse: another process keeps changing the topic, or having its dead letters in hand.
        PublishFailed: one could not be sent back; it and those behind it are still dead letters.
    """
    check_kind("the topic's name", topic, str)
    _check_choice(message_ids, everything=everything)
    first = Topic(topic, 1)
    with connected(url) as sending, sending.changing(topic):  # so that nothing is sent once the lock is lost
        newest = attrs.evolve(first, layout=newest_layout(sending, topic))
        return _settle(url, topic, message_ids, partial(_send_back, Homes(url, newest)), sending)


def drop_dead_letters(url: str, topic: str, *message_ids: str, everything: bool = False) -> list[DeadLetter]:
    """Deletes dead letters for good: those with the given ids, or ``everything``.

    Raises:
        UsageError: neither ids nor ``everything`` are given, or both.
        TopicMissing: the topic has no dead-letter queue.
        TopicInUse: another process keeps having them in hand.
    """
    check_kind("the topic's name", topic, str)
    _check_choice(message_ids, everything=everything)
    return _settle(url, topic, message_ids, lambda *_: True)


def _check_choice(message_ids: Sequence[object], *, everything: bool) -> None:
    """An empty selection is not all of them."""
    for it in message_ids:
        check_kind("the id of a message", it, str)
    check_kind("everything", everything, bool)
    if everything == bool(message_ids):
        raise UsageError(
            "Name the ids of messages, or give everything=True for all dead letters; no ids are none of them."
        )


def dead_letter_queue(topic: str) -> str:
    """The name of a topic's dead-letter queue."""
    return f"{topic}.dead"


Sender = Callable[[], BlockingChannel]
"""Opens a channel to publish on when it is first called."""

Deal = Callable[[Sender, DeadLetter, BasicProperties, bytes], bool]
"""Deals with a letter, and returns whether it is settled."""


def _settle(
    url: str, topic: str, message_ids: Sequence[str], deal: Deal, sending: Admin | None = None
) -> list[DeadLetter]:
    settled: list[DeadLetter] = []

    def settle(sender: Sender, letter: DeadLetter, properties: BasicProperties, body: bytes) -> bool:
        if message_ids and not letter.is_named(message_ids):
            return False
        if not deal(sender, letter, properties, body):
            return False
        settled.append(letter)
        return True

    _visit(url, topic, settle, keeps=bool(message_ids), sending=sending)
    return settled


def _visit(
    url: str, topic: str, deal: Deal, most: int | None = None, *, keeps: bool = True, sending: Admin | None = None
) -> None:
    """Takes the dead letters out one after the other; those that `deal` has not settled go back. Without `keeps`, these
    are expected to be few.

    They are sent over a connection of their own: RabbitMQ would put the confirm of the first behind all the others.

    Others are kept out meanwhile: they would miss what is held here, and put things back in between.
    """
    check_kind("the topic's name", topic, str)
    queue = dead_letter_queue(topic)
    with connected(url) as admin, ExitStack() as stack:
        _keep_others_out(stack, admin, topic, needed=most is None)
        count = admin.ready(queue)
        if count is None:
            raise TopicMissing(
                f"There is no queue {queue!r} at {admin.place}: {topic!r} is no topic, or one without dead letters."
            )
        number = count if most is None else min(count, most)
        if number:
            _prove_publishing(url, admin, queue)
            sender = cache(lambda: stack.enter_context((sending or stack.enter_context(connected(url))).channel(queue)))
            at_once = min(count, max(number if keeps else 0, MOST_AT_ONCE))
            with admin.channel(queue) as channel:
                settled = _deal_with_each(topic, count, deal, channel, sender, number=number, at_once=at_once)
            _await_return(admin, queue, count - settled)


def _keep_others_out(stack: ExitStack, admin: Admin, topic: str, *, needed: bool) -> None:
    try:
        stack.enter_context(admin.changing(dead_letter_queue(topic)))
    except TopicInUse:
        raise TopicInUse(
            f"The dead letters of topic {topic!r} at {admin.place} are being listed, replayed or dropped by another process; try again."
        ) from None
    except PermissionMissing:
        if needed:
            raise


def _await_return(admin: Admin, queue: str, count: int) -> None:
    """A quorum queue has what comes back only a moment after the channel was closed, and the next look would miss it."""
    give_up_at = time.monotonic() + RETURN_S
    while (admin.ready(queue) or 0) < count and time.monotonic() < give_up_at:
        time.sleep(LOOK_S)


def _prove_publishing(url: str, admin: Admin, queue: str) -> None:
    """Raises PublishFailed if nothing can be published, unless looking at this queue is harmless: see `OFTEN`."""
    try:
        with connected(url) as sending:
            sending.call(queue, publish_nowhere)
    except CobalanceError as error:
        if not _is_classic(admin, queue):
            raise PublishFailed(
                f"Nothing was taken out of queue {queue!r}: RabbitMQ deletes a message that a quorum queue has delivered too often, so what "
                f"is looked at must be published again at times, and now nothing can be published: {error} The user needs the "
                "permission to write to the default exchange (amq.default); during an alarm, try again later."
            ) from None


def publish_nowhere(channel: BlockingChannel) -> None:
    """Returns if RabbitMQ answers what is published; raises PublishFailed if the user may not publish."""
    nowhere = f"cobalance.nowhere.{uuid4()}"
    try:
        publish(channel, "", nowhere, BasicProperties(), b"")
    except PublishFailed:  # as no queue has this name
        pass
    except pika_errors.ChannelClosedByBroker as error:
        raise PublishFailed(f"{error.reply_code} {error.reply_text}.") from None


def _is_classic(admin: Admin, queue: str) -> bool:
    try:
        return admin.kind(queue) == "classic"
    except PermissionMissing:  # to declare it
        return False


def _deal_with_each(
    topic: str, count: int, deal: Deal, channel: BlockingChannel, sender: Sender, *, number: int, at_once: int
) -> int:
    """Takes so many out, of which up to `at_once` are not settled, and deals with the first `number` of them. Returns how
    many are settled.

    What is not acknowledged is back in its place once the channel is closed, if one consumer has had all: a quorum
    queue shuffles what was taken by more than 32, as which basic_get counts, and puts what comes back for the second
    time behind what came back before.

    After one that is published again, and so goes behind the others, all others are, too, so that they keep their
    order.
    """
    queue = dead_letter_queue(topic)
    failure: CobalanceError | None = None
    publishes, count_settled = False, 0
    channel.basic_qos(prefetch_count=at_once if at_once <= MOST_MESSAGES else 0)  # 0 is all
    for place, (method, properties, body) in zip(range(count), _arriving(channel, queue), strict=False):
        if place >= number and not publishes:
            break
        try:
            settled = (
                failure is None
                and place < number
                and deal(sender, DeadLetter.read(topic, properties, len(body)), properties, body)
            )
        except CobalanceError as error:
            settled, failure = False, error
        count_settled += settled
        publishes = publishes or (not settled and _deliveries(properties) >= OFTEN)
        moves = publishes and not settled
        if moves:
            again = republished(properties, frame_max=frame_max(sender().connection))
            publish(sender(), "", queue, again, body)
        if moves or settled:
            channel.basic_ack(method.delivery_tag)
        elif failure is not None and not publishes:
            break
    _await_acks(channel, queue, any_sent=publishes or count_settled > 0)
    if failure is not None:
        raise failure
    return count_settled


def _await_acks(channel: BlockingChannel, queue: str, *, any_sent: bool) -> None:
    """Before the channel is closed: a further consumer is answered when a quorum queue has applied them, see `unapplied.py`."""
    if any_sent:
        channel.basic_qos(prefetch_count=1)
        channel.basic_consume(queue, lambda *_: None)


def _arriving(channel: BlockingChannel, queue: str) -> Iterator[tuple[Any, Any, Any]]:
    """What is delivered, until RabbitMQ says that nothing more is there: somebody else may have taken some."""
    silences = 0
    for method, properties, body in channel.consume(queue, inactivity_timeout=SILENCE_S):
        if method is not None:
            silences = 0
            yield method, properties, body
            continue
        state = read_state(channel, queue)  # answered behind what was sent
        if channel.get_waiting_message_count():
            continue
        silences += 1
        if state.consumers and not state.ready:  # it knows of this one
            return
        if silences == MOST_SILENCES:
            raise Unreachable(f"RabbitMQ has sent nothing of {queue!r} for {SILENCE_S * silences:.0f} s; try again.")


def _deliveries(properties: BasicProperties) -> int:
    return number_among(encoding_of(properties), "x-delivery-count") or 0


def _send_back(homes: Homes, sender: Sender, letter: DeadLetter, properties: BasicProperties, body: bytes) -> bool:
    if isinstance(properties, Unreadable):
        log.warning("%s: a dead letter of %d bytes stays: %s", homes.topic, letter.size, letter.error)
        return False
    home = homes.find(letter, properties)
    if home is None:
        raise UsageError(
            f"Message {printable(letter.message_id or 'without an id')} does not say which queue it came from, or one that has its dead letters elsewhere: it was not "
            "given up by a group, nor by RabbitMQ."
        )
    own: dict[str, Any] = {EXPIRATION: letter.expiration, USER_ID: letter.user_id}
    headers = properties.headers or {}
    exchange, routing_key = _published(headers, last_death(headers, homes.topic))
    if routing_key is not None and exchange is not None:
        own = {EXCHANGE: exchange, ROUTING_KEY: routing_key, **own}
    again = republished(properties, own, without=NOT_THE_MESSAGES, frame_max=frame_max(sender().connection))
    publish(sender(), "", home, again, body)
    return True


class Homes:
    """The queues that dead letters of a topic go back to. A publisher can claim any in a header of its own, but the first
    entry of ``x-death`` is RabbitMQ's or ours once the message has been dead-lettered.
    """

    def __init__(self, url: str, newest: Topic) -> None:
        self.topic = newest.name
        self._url, self._newest = url, newest
        self._known: dict[str, bool] = {}

    def find(self, letter: DeadLetter, properties: BasicProperties) -> str | None:
        """A partition goes by its number in the layout that is consumed; the older ones have fewer."""
        if letter.queue is None:
            return None
        match partition_named(letter.queue):
            case self._newest.name, number:
                return self._newest.queue_name(number)
        died_there = letter.queue == last_death(properties.headers or {}, self._newest.name).get("queue")
        return letter.queue if died_there or self._leads_here(letter.queue) else None

    def _leads_here(self, queue: str) -> bool:
        if queue not in self._known:
            with connected(self._url) as admin:
                self._known[queue] = self._is_source(admin, queue)
        return self._known[queue]

    def _is_source(self, admin: Admin, queue: str) -> bool:
        """An exchange may be bound to the dead-letter queue; bindings cannot be queried."""
        try:
            target = target_of(admin.learn(queue), "")
        except TopologyError:  # missing, or not readable
            return False
        return target is not None and (
            bool(target.exchange) or target.routing_key == dead_letter_queue(self._newest.name)
        )
