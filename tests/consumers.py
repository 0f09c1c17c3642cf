"""Topics, messages and members for tests of consumer groups on a real RabbitMQ."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import anyio
import attrs
import pika
import pytest
from pika.adapters.blocking_connection import BlockingChannel
from pika.spec import BasicProperties
from tests.names import unique

from cobalance.coordinator.client import Coordinator, ResourceRow
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Configure
from cobalance.journal import Journal, JournalEntry
from cobalance.rabbitmq import Delivery, Topic, create_topic, delete_topic
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.rabbitmq.wire.pika_internals import bare_close_blocking
from cobalance.settings import GroupSettings, MemberSettings

SETTINGS = GroupSettings(
    session_timeout_ms=4_000, heartbeat_interval_ms=250, revocation_timeout_ms=6_000, gather_ms=0, rejoin_grace_ms=0
)
PATIENT = attrs.evolve(SETTINGS, session_timeout_ms=12_000, revocation_timeout_ms=12_000)
"""Where nothing ends by silence: a machine that is busy for seconds loses no member, and no connection to RabbitMQ."""

WITHIN_S = 60.0


class Place:
    """One RabbitMQ, and one group's Redis: in this process's memory unless a URL is given."""

    def __init__(self, amqp_url: str, redis_url: str | None = None) -> None:
        self.amqp_url = amqp_url
        self.group = unique("consumers")
        self.redis_url = redis_url or f"memory://{self.group}"
        self._transport = open_transport(self.redis_url)  # in memory, a group lives while anyone is connected
        self.coordinator = Coordinator(self._transport, self.group)
        if redis_url is not None:
            self.coordinator.create(SETTINGS)

    def close(self) -> None:
        self._transport.close()

    def doubt_offsets(self) -> None:
        """As when its first member has created it and everybody had time to claim: Redis may have lost what it read."""
        self.coordinator._configure(Configure(create=False, values=(("offsets_known", "0"),)))

    def member(self, source: Any, handler: Any, **options: Any) -> ConsumerGroup:
        """A member that has yet to be entered."""
        options.setdefault("settings", PATIENT if self.redis_url.startswith("memory:") else SETTINGS)
        options.setdefault("member", MemberSettings(drain_timeout_ms=5_000))
        options.setdefault("amqp_url", self.amqp_url)
        return ConsumerGroup(self.group, source, handler, redis_url=self.redis_url, **options)

    def publish(self, topic: Topic | str, *bodies: object, partition: int = 0) -> None:
        """Publishes to a partition, or to a queue by its name."""
        name = topic if isinstance(topic, str) else topic.queue_names[partition]
        with channel(self.amqp_url) as it:
            for body in bodies:
                properties = BasicProperties(delivery_mode=2, message_id=f"m{body}")
                it.basic_publish("", name, str(body).encode(), properties, mandatory=True)

    def resources(self) -> dict[str, ResourceRow]:
        """The group's resources by name."""
        return {row.name: row for row in self.coordinator.resources()}

    def journal(self, *kinds: str) -> list[JournalEntry]:
        """The group's journal, of these kinds only if any are named."""
        entries = Journal(self._transport, self.group).entries()
        return [entry for entry in entries if not kinds or entry.kind in kinds]


@contextmanager
def place(amqp_url: str, redis_url: str | None = None) -> Iterator[Place]:
    """A place for one test."""
    it = Place(amqp_url, redis_url)
    try:
        yield it
    finally:
        it.close()


@contextmanager
def channel(url: str) -> Iterator[BlockingChannel]:
    """A plain pika channel with publisher confirms."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        it = connection.channel()
        it.confirm_delivery()
        yield it
    finally:
        connection.close()


@contextmanager
def new_topic(amqp_url: str, partitions: int = 1, queue_type: Any = "classic", **options: Any) -> Iterator[Topic]:
    """A topic for one test."""
    topic = Topic(unique("topic"), partitions, queue_type, **options)
    create_topic(amqp_url, topic)
    try:
        yield topic
    finally:
        delete_topic(amqp_url, topic.name, force=True)


def bodies_in(amqp_url: str, queue: str) -> list[str]:
    """Consumes all messages of a queue."""
    found = []
    with channel(amqp_url) as it:
        while (got := it.basic_get(queue, auto_ack=True))[0] is not None:
            body: Any = got[2]
            found.append((body or b"").decode())
    return found


def take_in_vain(url: str, queue: str, *, ahead: int = 1) -> None:
    """Receives the first messages of a queue, one or as many as are sent ahead, and closes without acknowledging them."""
    with channel(url) as it:
        it.basic_qos(prefetch_count=ahead)
        messages = it.consume(queue)
        for _ in range(ahead):
            next(messages)
        bare_close_blocking(it)


class Seen:
    """What handlers received, in order, and a way to wait for it. On one event loop."""

    def __init__(self) -> None:
        self.bodies: list[str] = []
        self._more = anyio.Event()

    def note(self, delivery: Delivery) -> str:
        body = delivery.body.decode()
        self.bodies.append(body)
        self._more.set()
        self._more = anyio.Event()
        return body

    async def wait(self, count: int) -> list[str]:
        """Returns once there are this many."""
        with anyio.fail_after(WITHIN_S):
            while len(self.bodies) < count:
                await self._more.wait()
        return self.bodies


def handler_of(seen: Seen) -> Any:
    """A handler on the event loop that notes what it receives."""

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    return handle


def note_looks(monkeypatch: pytest.MonkeyPatch, source: Any) -> list[tuple[str, ...] | None]:
    """Returns what each look of such a source will have found, as it is found."""
    found: list[tuple[str, ...] | None] = []
    look = source.look

    def noted(self: Any, listed: Any) -> Any:
        it = look(self, listed)
        found.append(it.resources)
        return it

    monkeypatch.setattr(source, "look", noted)
    return found


async def until(condition: Any, *, within_s: float = WITHIN_S) -> Any:
    """Polls a blocking function until its result is true, as it returns: a list may be filled a moment later.

    Raises:
        TimeoutError: it never is; it says which condition, and what that looked at.
    """
    with anyio.move_on_after(within_s):
        while not (found := await anyio.to_thread.run_sync(lambda: condition() or None)):  # noqa: ASYNC110 -- it is not ours to set an event
            await anyio.sleep(0.02)
        return found
    looked_at = {name: repr(it)[:200] for name, it in inspect.getclosurevars(condition).nonlocals.items()}
    code = condition.__code__
    raise TimeoutError(f"{code.co_filename}:{code.co_firstlineno}: not true within {within_s:g} s, with {looked_at}")
