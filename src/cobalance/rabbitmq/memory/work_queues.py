"""Classic and quorum queues: the messages in order, and which consumer is served next."""

from __future__ import annotations

from bisect import insort
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar

from cobalance.rabbitmq.memory.queue import PRIORITY, TYPE, MemoryQueue
from cobalance.rabbitmq.memory.refusal import access_refused, not_supported, precondition_failed

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pika.spec import BasicProperties

    from cobalance.rabbitmq.memory.message import Message
    from cobalance.rabbitmq.memory.queue import Consumer, Declaration, Surroundings

DEAD_LETTER = frozenset({"x-dead-letter-exchange", "x-dead-letter-routing-key"})
MESSAGE_TTL, QUEUE_TTL = "x-message-ttl", "x-expires"
SINGLE_ACTIVE = "x-single-active-consumer"
LIMIT = "x-delivery-limit"
OF_STREAMS = frozenset({"x-max-age", "x-stream-max-segment-size-bytes"})


class ClassicQueue(MemoryQueue):
    """A classic queue."""

    supported = DEAD_LETTER | {TYPE, MESSAGE_TTL, QUEUE_TTL, SINGLE_ACTIVE}
    refused = OF_STREAMS | {LIMIT}
    takes_of_consumers = frozenset({PRIORITY})
    must_last = False
    waits_by_priority: ClassVar[bool] = True
    """Whether of those that wait for a single active consumer the one with the highest is next, or who came first."""

    def __init__(self, declaration: Declaration, surroundings: Surroundings) -> None:
        super().__init__(declaration, surroundings)
        self._clock = surroundings.clock
        self._ready: list[Message] = []
        self._out = self._places = 0
        self._unused_since_ms = 0.0
        self.used()

    @classmethod
    def check_new(cls, asked: Declaration) -> None:
        super().check_new(asked)
        for argument in (MESSAGE_TTL, QUEUE_TTL):
            _check_duration(argument, asked)

    def used(self) -> None:
        """Postpones the deletion of a queue that nobody uses."""
        lifetime_ms = self.arguments.get(QUEUE_TTL)
        if lifetime_ms is not None:
            self._unused_since_ms = self._clock.now_ms
            self._clock.call_at(self._unused_since_ms + lifetime_ms, self._delete_unused)

    def _delete_unused(self) -> None:
        if not self.consumers and self._unused_since_ms + self.arguments[QUEUE_TTL] <= self._clock.now_ms:
            self._surroundings.expire_queue(self)

    def check_deletion(self, *, if_unused: bool, if_empty: bool) -> None:
        if if_unused and self.consumers:
            raise precondition_failed(f"queue '{self.name}' in vhost '/' in use")
        if if_empty and not self.is_empty:
            raise precondition_failed(f"queue '{self.name}' in vhost '/' not empty")

    # -- consuming -----------------------------------------------------------------------------------------------------

    def attach(self, consumer: Consumer) -> None:
        has_single = consumer.exclusive and self.arguments.get(SINGLE_ACTIVE)
        if has_single or (self.consumers and any(it.exclusive for it in (consumer, *self.consumers))):
            raise access_refused(f"queue '{self.name}' in vhost '/' in exclusive use")
        self._line_up(consumer)

    def _line_up(self, consumer: Consumer) -> None:
        _check_integer(PRIORITY, consumer.arguments.get(PRIORITY, 0), self.name)
        super().attach(consumer)

    def detach(self, consumer: Consumer) -> None:
        was_first = self.consumers[:1] == [consumer]
        super().detach(consumer)
        if was_first and self.waits_by_priority:
            self.consumers.sort(key=attrgetter("priority"), reverse=True)
        self.used()

    def serve(self) -> None:
        while self._ready:
            self._drop_expired()
            consumer = self._next() if self._ready else None
            if consumer is None:
                return
            self._deliver(consumer, self._ready.pop(0))

    def _deliver(self, consumer: Consumer, message: Message) -> None:
        self._out += not consumer.without_acks
        consumer.deliver(self, message)

    def _next(self) -> Consumer | None:
        if self.arguments.get(SINGLE_ACTIVE):
            return next((it for it in self.consumers[:1] if it.has_room), None)
        free = max((it for it in self.consumers if it.has_room), key=attrgetter("priority"), default=None)
        if free is not None:  # in turn
            self.consumers.remove(free)
            self.consumers.append(free)
        return free

    # -- messages ------------------------------------------------------------------------------------------------------

    @property
    def contents(self) -> Sequence[Message]:
        self._drop_expired()
        return self._ready

    @property
    def is_empty(self) -> bool:
        return not self.contents and not self._out

    def push(self, message: Message) -> None:
        message.place = self._place(returned=False)
        self._limit_life(message)
        consumer = None if self.contents else self._next()
        if consumer is not None:  # in time, even if it is to expire at once
            self._deliver(consumer, message)
            return
        self._ready.append(message)
        self._drop_expired()

    def _place(self, *, returned: bool) -> tuple[bool, int]:
        self._places += 1
        return (not returned, self._places)

    def _limit_life(self, message: Message) -> None:
        lives = [it for it in (message.expiration_ms(), self.arguments.get(MESSAGE_TTL)) if it is not None]
        if lives:
            message.expires_at_ms = self._clock.now_ms + min(lives)
            self._clock.call_at(message.expires_at_ms, self._drop_expired)

    def _drop_expired(self) -> None:
        """Only the first message can expire: others wait until they are first."""
        while self._ready and (due_ms := self._ready[0].expires_at_ms) is not None and due_ms <= self._clock.now_ms:
            self._surroundings.dead_letter(self, self._ready.pop(0), "expired")

    def take(self, *, without_acks: bool) -> Message | None:
        self.used()
        if not self.contents:
            return None
        self._out += not without_acks
        return self._ready.pop(0)

    def purge(self) -> int:
        purged = len(self.contents)
        self._ready.clear()
        return purged

    def acked(self) -> None:
        self._out -= 1

    def requeue(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._put_back(message)

    def abandon(self, messages: Sequence[Message]) -> None:
        for message in messages:
            self._put_back(message)

    def _put_back(self, message: Message) -> None:
        self._out -= 1
        message.redelivered = True
        insort(self._ready, message, key=lambda it: it.place)

    def reject(self, message: Message) -> None:
        self._out -= 1
        self._surroundings.dead_letter(self, message, "rejected")


class QuorumQueue(ClassicQueue):
    """A quorum queue, which counts how often a message was returned, and ignores that a consumer is exclusive.

    What is returned comes before all other messages, in the order of the returns. But without a delivery limit, what a
    consumer sends back goes behind all others.
    """

    supported = ClassicQueue.supported | {LIMIT}
    refused = OF_STREAMS | {"x-max-priority"}
    must_last = True
    waits_by_priority = False

    def check_deletion(self, *, if_unused: bool, if_empty: bool) -> None:
        for flag, is_set in (("if-empty", if_empty), ("if-unused", if_unused)):
            if is_set:
                raise not_supported(
                    f"cannot delete queue '{self.name}' in vhost '/'. queue.delete operations with {flag} flag set are not supported "
                    "by quorum queues"
                )

    def attach(self, consumer: Consumer) -> None:
        self._line_up(consumer)

    def properties_of(self, message: Message) -> BasicProperties:
        return message.with_headers({"x-delivery-count": message.returns}) if message.returns else message.properties

    def requeue(self, messages: Sequence[Message]) -> None:
        self._return(messages, to_head=self._limit is not None)

    def abandon(self, messages: Sequence[Message]) -> None:
        self._return(messages, to_head=True)

    def _return(self, messages: Sequence[Message], *, to_head: bool) -> None:
        for message in messages:
            message.returns += 1
            message.place = self._place(returned=to_head)
            if self._limit is not None and message.returns > self._limit:
                self._out -= 1
                self._surroundings.dead_letter(self, message, "delivery_limit")
            else:
                self._put_back(message)

    @property
    def _limit(self) -> int | None:
        limit = self.arguments.get(LIMIT)
        return limit if isinstance(limit, int) and limit >= 0 else None


def _check_duration(argument: str, asked: Declaration) -> None:
    value = asked.arguments.get(argument, 0)
    _check_integer(argument, value, asked.name)
    if value < 0:
        raise precondition_failed(f"{_invalid(argument, asked.name)}: {{value_negative,{value}}}")


def _check_integer(argument: str, value: Any, queue: str) -> None:
    if isinstance(value, bool) or not isinstance(value, int):
        got = "bool" if isinstance(value, bool) else "longstr"
        raise precondition_failed(f'{_invalid(argument, queue)}: "expected integer, got {got}"')


def _invalid(argument: str, queue: str) -> str:
    return f"invalid arg '{argument}' for queue '{queue}' in vhost '/'"
