"""Records what consumers do with one partition, in the terms of ``Handover.tla``.

The members are production ConsumerGroups. What the coordinator does is read from the journal, ahead of whatever is
recorded next: a member acts on a reply after that is in the journal, and tells the coordinator of what it has
done after that is recorded here. What a consumer does is heard from its core, under the lock that orders its events:
before an ack, a close or a subscription is sent, and before anybody hears of a message or of an end. RabbitMQ itself is
not watched, so what it did in between has to follow.
"""

from __future__ import annotations

import threading
from collections import Counter
from typing import TYPE_CHECKING, Any

from cobalance.journal import BEGINNING, Journal
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.partition.core import PartitionCore
from cobalance.rabbitmq.partition.states import SPENT, PartitionState, Step

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.coordinator.transport import Transport
    from cobalance.errors import CobalanceError
    from cobalance.group.tenure import Tenure
    from cobalance.journal import JournalEntry
    from cobalance.rabbitmq.partition.acks import Flush
    from cobalance.rabbitmq.partition.actions import Actions
    from cobalance.rabbitmq.partition.delivery import Delivery
    from cobalance.rabbitmq.partition.partition import PartitionConsumer
    from proof.spec.history import Event

MOVES = {
    "granted": "grant",
    "revoking": "ask",
    "released": "release",
    "abandoned": "abandon",
    "forced": "force",
    "expired": "force",
}
UNEXPECTED = {"cancelled", "withdrawn", "claimed", "inherited", "halted", "reset"}


class HandoverRecorder:
    """The events of one partition. Any thread."""

    def __init__(self, transport: Transport, group: str) -> None:
        self._journal, self._at = Journal(transport, group), BEGINNING
        self._lock = threading.Lock()
        self._tokens: dict[int, int] = {}
        self._members: dict[str, int] = {}
        self.events: list[Event] = []

    def note(self, kind: str, token: int, **fields: Any) -> None:
        """Something happens in the tenure of that token."""
        with self._lock:
            self._read_journal()
            self.events.append({"is": kind, "t": self._tokens[token], **fields})

    def note_of(self, kind: str, member: str) -> None:
        """Something happens to a member: its latest tenure suffers from it."""
        with self._lock:
            self._read_journal()
            self.events.append({"is": kind, "t": self._members[member]})

    def look(self) -> Counter[str]:
        """How often which kind of event has happened."""
        with self._lock:
            self._read_journal()
            return Counter(it["is"] for it in self.events)

    def _read_journal(self) -> None:
        for entry in self._journal.entries(self._at):
            self._at = entry.id
            kind = kind_of(entry)
            if kind:
                self._move(kind, entry)

    def _move(self, kind: str, entry: JournalEntry) -> None:
        token = entry.token or 0
        if kind == "grant":
            self._tokens[token] = len(self._tokens) + 1
            self._members[entry.member or ""] = self._tokens[token]
        event = {"is": kind, "t": self._tokens[token]}
        if kind == "release":
            event["offset"] = (-1 if entry.committed is None else entry.committed) + 1
        self.events.append(event)

    def watch(self, consumer: PartitionConsumer) -> PartitionConsumer:
        """Has a consumer's core tell what happens to it; before it is started."""
        core: Any = consumer._core  # noqa: SLF001
        core.__class__ = RecordedCore
        core.hear = lambda kind, **fields: self.note(kind, consumer.tenure.token, **fields)
        core.taken, core.aborting = [], False
        return consumer


class RecordedCore(PartitionCore):
    """Made of a consumer's core."""

    hear: Any
    taken: list[int]
    """The messages by delivery tag; 0 for one that was processed before."""
    aborting: bool

    def take(self, most: int = 1_000_000) -> list[Any]:
        messages: list[Delivery] = super().take(most)
        self.taken += [number_of(it) for it in messages]
        return messages

    def abort(self) -> Actions:
        if not (self.aborting or self._drained) and self.state not in SPENT - {PartitionState.DRAINING}:
            self.aborting = True
            self.hear("abort")
        return super().abort()

    def refused(self, error: CobalanceError) -> Actions:
        if self.state in {PartitionState.PROVING, PartitionState.DRAINING}:
            self.hear("refused")
        return super().refused(error)

    def _step(self, step: Step) -> PartitionState:
        before, after = self.state, super()._step(step)
        if after is PartitionState.OPENING:
            self.hear("open")
        elif step is Step.CONSUME and after is PartitionState.CONSUMING:
            self.hear("subscribed")
        elif step is Step.DRAIN and before not in SPENT and not self.aborting:
            self.hear("drain")
        elif step is Step.CLOSE:
            self.hear("close")
        elif step is Step.UNLOCK:
            self.hear("gone")
        elif step is Step.END:
            self.hear("ended")
        return after

    def _admit(self, message: Delivery, now: int) -> Actions:
        self.hear("arrive", x=number_of(message))
        return super()._admit(message, now)

    def _pass_over(self) -> Actions:
        self.taken.append(0)
        return super()._pass_over()

    def _flush(self) -> Actions:
        flushes: Any = super()._flush()
        for flush in flushes:
            some = self._acknowledged(flush)
            if some:
                self.hear("ack", some=some)
        return flushes  # type: ignore[no-any-return]

    def _acknowledged(self, flush: Flush) -> set[int]:
        """Those before have been acknowledged before."""
        tags = {*flush.singles, *range(1, (flush.ack or 0) + 1)}
        some = {self.taken[tag - 1] for tag in tags} - {0}
        for tag in tags:
            self.taken[tag - 1] = 0
        return some


class RecordedGroup(ConsumerGroup):
    """A member whose consumers are recorded."""

    recorder: HandoverRecorder

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        partitions: Any = self.partitions
        for maker in (partitions, partitions.streams):
            maker.consumer = self._watched(maker.consumer)
        self._store = self.membership.commit
        self.membership.commit = self._commit  # type: ignore[method-assign]

    def _watched(self, make: Callable[..., PartitionConsumer]) -> Callable[..., PartitionConsumer]:
        return lambda *arguments, **options: self.recorder.watch(make(*arguments, **options))

    async def _commit(self, tenure: Tenure, offset: int) -> None:
        """Offsets below 0 stand for the beginning, which is where a stream begins here."""
        if offset >= 0:
            self.recorder.note("commit", tenure.token, offset=offset + 1)
        await self._store(tenure, offset)
        if offset >= 0:
            self.recorder.note("stored", tenure.token, offset=offset + 1)


def kind_of(entry: JournalEntry) -> str:
    """What an entry of the journal is called in the document; empty if that has no need of it.

    Raises:
        ValueError: the document has nothing of the kind.
    """
    if entry.kind in UNEXPECTED:
        raise ValueError(f"Handover.tla has no {entry.kind}: record another story")
    return MOVES.get(entry.kind, "")


def number_of(delivery: Delivery) -> int:
    """Which message it is; the first is 1."""
    return int(delivery.body)
