"""The recorded handovers: each way that a partition goes from one member to the next, on each kind of partition."""

from __future__ import annotations

import secrets
import socket
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Literal

import attrs

from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.memory import MemoryRabbitMQ
from cobalance.rabbitmq.model.stream_settings import StreamSettings
from cobalance.rabbitmq.model.topic import QueueType, Topic
from cobalance.rabbitmq.partition.delivery import Delivery
from cobalance.rabbitmq.publish.publisher import Publisher
from cobalance.rabbitmq.topics.broker import create_topic
from cobalance.rabbitmq.topics.deletion import delete_topic
from cobalance.settings import MemberSettings
from cobalance.testing.churn import OWN, Churn
from cobalance.testing.member import Member
from cobalance.testing.transport import OwnTransport
from cobalance.threads.wakeup import result_of
from proof.spec.handover_recorder import HandoverRecorder, RecordedGroup, number_of
from proof.spec.history import History

MESSAGES, PREFETCH = 6, 3


@attrs.frozen
class PartitionKind:
    """A kind of partition, and the guard that it has."""

    guard: Literal["exclusive", "single active", "lock", "none"]
    queue_type: QueueType
    by_key: bool = False

    @property
    def name(self) -> str:
        return f"{self.queue_type}, {self.guard}{', by key' if self.by_key else ''}"

    @property
    def keys(self) -> tuple[int, ...]:
        """The key of each message."""
        return tuple(number % 2 if self.by_key else 0 for number in range(1, MESSAGES + 1))


KINDS = (
    PartitionKind("exclusive", "classic"),
    PartitionKind("exclusive", "classic", by_key=True),
    PartitionKind("single active", "quorum"),
    PartitionKind("lock", "stream"),
    PartitionKind("none", "stream"),
)


class SharedBroker:
    """Any RabbitMQ, for a :class:`Churn`: it ends connections of members from their side, as a network would."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.groups: list[ConsumerGroup] = []

    def shut_out(self, name: str) -> None:
        if self.url.startswith("memory://"):
            MemoryRabbitMQ.named(self.url.removeprefix("memory://")).shut_out(name)
            return
        for group in self.groups:
            if group.partitions.connection.name == name:
                _cut(group)

    def let_in(self, name: str) -> None:
        if self.url.startswith("memory://"):
            MemoryRabbitMQ.named(self.url.removeprefix("memory://")).let_in(name)


def _cut(group: ConsumerGroup) -> None:
    transport: Any = group.partitions.connection._pika._transport  # type: ignore[union-attr]  # noqa: SLF001 -- there is no other way to lose it
    transport._sock.shutdown(socket.SHUT_RDWR)  # noqa: SLF001


class Play:
    """Two members, one partition with all its messages, and handlers that wait where a story holds them up."""

    def __init__(self, url: str, kind: PartitionKind) -> None:
        name = f"handover-{secrets.token_hex(4)}"
        self.kind, self._broker = kind, SharedBroker(url)
        self.churn = Churn(name, self._broker)  # type: ignore[arg-type]  # it needs no more of one
        self.recorder = HandoverRecorder(OwnTransport(self.churn._store), name)  # noqa: SLF001 -- its Redis
        self.topic = create_topic(url, Topic(name, 1, kind.queue_type))
        self._held: dict[int, Future[None]] = {}
        with Publisher(url, self.topic) as publisher:
            for number in range(1, MESSAGES + 1):
                publisher.publish("the key", str(number))

    def close(self) -> None:
        for number in list(self._held):
            self.let_go(number)
        self.churn.close()
        delete_topic(self._broker.url, self.topic.name, force=True)

    def join(self, own: MemberSettings = OWN) -> Member:
        """A member joins."""
        return self.churn.enter(lambda **given: self._group(**{**given, "member": own}))

    def _group(self, **given: Any) -> ConsumerGroup:
        given |= {"prefetch": PREFETCH, "ack_every": 2, "crash_detection": False, "require_guard": False}
        if self.kind.queue_type == "stream":
            given["streams"] = StreamSettings(commit_every=2, lock=self.kind.guard == "lock")
        if self.kind.by_key:
            given |= {"order": "key", "concurrency": 2, "key": self._key}
        group = RecordedGroup(self.churn.name, self.topic, self._handle, **given)
        group.recorder = self.recorder
        self._broker.groups.append(group)
        return group

    def _key(self, delivery: Delivery) -> str:
        return str(self.kind.keys[number_of(delivery) - 1])

    async def _handle(self, delivery: Delivery) -> None:
        number, token = number_of(delivery), delivery.token
        self.recorder.note("begin", token, x=number)
        held = self._held.get(number)
        try:
            if held is not None:
                await result_of(held)
        except BaseException:
            self.recorder.note("stop", token, x=number)
            raise
        self.recorder.note("finish", token, x=number)

    # -- what a story says ---------------------------------------------------------------------------------------------

    def hold(self, number: int) -> None:
        """The handler of this message waits."""
        self._held[number] = Future()
        self._held[number].set_running_or_notify_cancel()  # a handler that is cancelled leaves it to the next one

    def let_go(self, number: int) -> None:
        """It waits no more, and neither does who handles the message again."""
        self._held.pop(number).set_result(None)

    def until(self, kind: str, count: int = 1) -> None:
        """Waits until there were this many events of a kind."""
        self.churn.until(lambda: self.recorder.look()[kind] >= count)

    def until_worked(self) -> None:
        """Waits until all messages were finished."""
        self.churn.until(lambda: len(self._finished()) == MESSAGES)

    def _finished(self) -> set[int]:
        self.recorder.look()
        return {event["x"] for event in list(self.recorder.events) if event["is"] == "finish"}

    def lose_channel(self, member: Member) -> None:
        """Its connection is lost; it has another as soon as it tries."""
        self.recorder.note_of("cut", member.id)
        _cut(member.group)  # type: ignore[arg-type]


def _holding(play: Play, own: MemberSettings = OWN) -> Member:
    """The first member, whose handler runs and is held up."""
    play.hold(2)
    first = play.join(own)
    play.until("begin", 2)
    return first


def planned(play: Play) -> None:
    """Its holder leaves while a handler runs, and finishes what it has."""
    first = _holding(play)
    second = play.join()
    with _leaving(play, first):
        play.until("ask")
        play.let_go(2)
    play.until_worked()
    play.churn.leave(second)


def lost(play: Play) -> None:
    """The connection is lost while a handler runs: the same holder goes on, and hands over."""
    first = _holding(play)
    play.lose_channel(first)
    play.until("ended")
    play.let_go(2)
    play.until_worked()
    second = play.join()
    play.churn.leave(first)
    play.churn.leave(second)


def forced(play: Play) -> None:
    """A handler hangs past the revocation timeout: the partition is moved by force."""
    first = _holding(play)
    second = play.join()
    with _leaving(play, first):
        play.until("ask")
        play.churn.advance(20_000)
        play.until("abort")
        play.let_go(2)
        play.until_worked()
    play.churn.leave(second)


def expired(play: Play) -> None:
    """A holder is taken for dead while a handler runs, and hears of it later."""
    first = _holding(play)
    second = play.join()
    first.transport.is_cut = True
    play.churn.expire(first)
    play.until(*(("refused", 1) if play.kind.guard == "exclusive" else ("grant", 2)))
    first.transport.is_cut = False
    play.until("abort")
    play.let_go(2)
    play.until_worked()
    play.churn.leave(first)
    play.churn.leave(second)


def crashed(play: Play) -> None:
    """A holder dies, and its session ends."""
    first = _holding(play)
    second = play.join()
    play.recorder.note_of("crash", first.id)
    play.churn.crash(first)
    play.let_go(2)
    play.until_worked()
    play.churn.leave(second)


def stopped(play: Play) -> None:
    """A handler hangs, and its holder stops by its own clock."""
    first = _holding(play, attrs.evolve(OWN, drain_timeout_ms=500))
    second = play.join()
    with _leaving(play, first):
        play.until("abort")
        play.let_go(2)
    play.until_worked()
    play.churn.leave(second)


@contextmanager
def _leaving(play: Play, member: Member) -> Iterator[None]:
    """A member leaves meanwhile."""
    with ThreadPoolExecutor(1) as threads:
        leaving = threads.submit(play.churn.leave, member)
        yield
        leaving.result()


STORIES: dict[str, Callable[[Play], None]] = {
    it.__name__: it for it in (planned, lost, forced, expired, crashed, stopped)
}


def recorded(
    url: str, kinds: Sequence[PartitionKind] = KINDS, stories: Sequence[str] = tuple(STORIES)
) -> list[History]:
    """Plays each story with each kind of partition on a RabbitMQ, or on one in memory."""
    return [record(url, kind, story) for kind in kinds for story in stories]


def record(url: str, kind: PartitionKind, story: str) -> History:
    """Plays a story."""
    play = Play(url, kind)
    try:
        STORIES[story](play)
        play.recorder.look()
    finally:
        play.close()
    partition = {"is": "partition", "guard": kind.guard, "keys": kind.keys, "prefetch": PREFETCH}
    where = "memory" if url.startswith("memory:") else "RabbitMQ"
    return History(f"{story}, {kind.name}, {where}", (partition, *play.recorder.events))
