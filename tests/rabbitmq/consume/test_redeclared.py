"""Queues that are deleted and declared with other arguments while they are consumed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AsyncExitStack
from typing import Any

import pytest
from tests.consumers import Place, Seen, bodies_in, channel, until
from tests.names import unique

from cobalance.errors import UsageError
from cobalance.rabbitmq import Delivery, MatchingQueues, Queue
from cobalance.rabbitmq.consume.subscription import Subscription
from cobalance.rabbitmq.model.topic import Topic

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def declare(here: Place, name: str, **arguments: Any) -> None:
    with channel(here.amqp_url) as it:
        it.queue_delete(name)
        it.queue_declare(name, durable=True, arguments=arguments or None)


@pytest.fixture
def queue(here: Place) -> Iterator[str]:
    name = unique("queue")
    declare(here, name)
    yield name
    with channel(here.amqp_url) as it:
        it.queue_delete(name)


class Team:
    """Members of one group that note what they handle."""

    def __init__(self, here: Place, source: Any) -> None:
        self.here, self.source, self.seen = here, source, Seen()

    def member(self) -> Any:
        return self.here.member(self.source, self._handle)

    async def _handle(self, delivery: Delivery) -> None:
        self.seen.note(delivery)

    async def begin(self, name: str, **other: Any) -> None:
        """Consumes the queue, which is then declared with another argument, or the given ones."""
        self.here.publish(name, 1)
        assert await self.seen.wait(1) == ["1"]
        declare(self.here, name, **(other or {"x-message-ttl": 600_000}))
        self.here.publish(name, 2)


@pytest.mark.parametrize("members", [1, 3])
async def test_a_queue_given_by_name_is_consumed_as_it_is_now(here: Place, queue: str, members: int) -> None:
    """Also by the others, which knew it as it was when they get it."""
    team = Team(here, [queue])
    async with AsyncExitStack() as stack:
        joined = [await stack.enter_async_context(team.member()) for _ in range(members)]
        await team.begin(queue)
        assert await team.seen.wait(2) == ["1", "2"]
        for number in range(3, members + 2):
            holder = next(it for it in joined if it.tenures)
            await holder.leave()
            here.publish(queue, number)
            await team.seen.wait(number)
            joined = [it for it in joined if it is not holder]
        assert here.resources()[queue].halted is None


async def test_a_queue_that_the_program_describes_stays_halted(here: Place, queue: str) -> None:
    """What the program says of it does not hold, until the queue is again as described."""
    team = Team(here, [Queue(queue)])
    async with team.member():
        await team.begin(queue)
        await until(lambda: here.resources()[queue].halted == "QueueMismatch")
        declare(here, queue)
        here.publish(queue, 3)
        assert here.coordinator.resume(queue) == {queue: "OK"}
        assert await team.seen.wait(2) == ["1", "3"]


async def test_a_queue_that_became_unguarded_is_halted_and_read_again_when_it_is_resumed(
    here: Place, queue: str
) -> None:
    """Two members might consume it at a time."""
    team = Team(here, [queue])
    async with team.member():
        here.publish(queue, 1)
        await team.seen.wait(1)
        declare(here, queue, **{"x-queue-type": "quorum"})
        await until(lambda: here.resources()[queue].halted)
        declare(here, queue, **{"x-queue-type": "quorum", "x-single-active-consumer": True})
        here.publish(queue, 2)
        assert here.coordinator.resume(queue) == {queue: "OK"}
        assert await team.seen.wait(2) == ["1", "2"]


async def test_a_queue_that_cannot_be_read_again_is_halted_and_ends_nobody(here: Place) -> None:
    """RabbitMQ's refusal ends before the argument's value, where names are long."""
    name, target = unique("a-queue-with-a-name-that-fills-the-reply"), "x" * 150
    declare(here, name)
    team = Team(here, [name])
    async with team.member() as first, team.member() as second:
        await team.begin(name, **{"x-dead-letter-exchange": target, "x-dead-letter-routing-key": target})
        await until(lambda: here.resources()[name].halted == "QueueMismatch")
        assert first.failed is second.failed is None
    with channel(here.amqp_url) as it:
        it.queue_delete(name)


def test_what_the_program_describes() -> None:
    """A name, or a way to find queues, says nothing about their arguments."""
    parts: list[Any] = [Topic("orders", 2), Queue("refunds"), "legacy", MatchingQueues("o.*")]
    described = Subscription(parts, "amqp://", None)
    names = ["orders-0", "orders-7", "orders.v2-3", "refunds", "legacy", "other"]
    assert [it for it in names if described.describes(it)] == ["orders-0", "orders-7", "orders.v2-3", "refunds"]
    assert not Subscription("orders", "amqp://", None).describes("orders-0")


@pytest.mark.parametrize("described", [False, True], ids=["by name", "described"])
@pytest.mark.parametrize(
    ("hazard", "words"),
    [
        ({"x-expires": 600_000}, ("x-expires=600000", "with its messages")),
        (
            {"x-max-length": 20, "x-max-length-bytes": 9},
            ("x-max-length=20 and x-max-length-bytes=9", "drops its oldest"),
        ),
        ({"x-max-length": 20, "x-overflow": "reject-publish"}, None),
        ({"x-message-ttl": 600_000}, ("x-message-ttl=600000", "drops what waits for longer")),
        (
            {"x-message-ttl": 9_000, "x-dead-letter-exchange": "dead"},
            ("x-message-ttl=9000", "dead-letters what waits for longer"),
        ),
        ({"x-max-priority": 5}, ("x-max-priority=5", "the order of a key")),
    ],
    ids=["expires", "drops", "refuses", "message ttl", "message ttl and dead letters", "priorities"],
)
async def test_a_queue_that_loses_or_reorders_messages_is_warned_of(
    here: Place,
    described: bool,
    hazard: dict[str, Any],
    words: tuple[str, str] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A pause may outlast its expiry, or that of messages; a handover brings back what a full queue then drops."""
    name = unique("queue")
    arguments: dict[str, Any] = {"x-queue-type": "classic", **hazard}
    with channel(here.amqp_url) as it:
        it.queue_declare(name, durable=True, arguments=arguments)
    try:
        with caplog.at_level("WARNING"):
            async with Team(here, [Queue(name, arguments) if described else name]).member() as member:
                await member.wait_held(name)
        said = [it for it in caplog.messages if "is declared with" in it]
        assert all(word in "".join(said) for word in words) if words else not said
    finally:
        with channel(here.amqp_url) as it:
            it.queue_delete(name)


def count_in(here: Place, queue: str) -> int:
    """RabbitMQ serves a single active consumer's queue to no ``basic_get``."""
    with channel(here.amqp_url) as it:
        return it.queue_declare(queue, passive=True).method.message_count or 0


def with_limit(limit: int) -> dict[str, Any]:
    """A quorum queue's arguments."""
    return {"x-queue-type": "quorum", "x-single-active-consumer": True, "x-delivery-limit": limit}


@pytest.mark.parametrize("limit", [0, 1])
@pytest.mark.parametrize("described", [False, True], ids=["by name", "described"])
async def test_a_delivery_limit_that_handovers_alone_use_up_is_refused(
    here: Place, queue: str, limit: int, described: bool
) -> None:
    """RabbitMQ would drop or dead-letter messages that no handler was given."""
    declare(here, queue, **with_limit(limit))
    source = Queue(queue, with_limit(limit)) if described else queue
    with pytest.raises(
        UsageError, match=rf"Queue '{queue}' has a delivery limit of {limit}: .*x-delivery-limit of at least 2"
    ):
        async with Team(here, [source]).member():
            pass


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_queue_whose_limit_became_too_low_is_halted(here: Place, queue: str, limit: int) -> None:
    """Nothing of it is lost. RabbitMQ 3 drops with -1 what is returned once; to RabbitMQ 4 it is no limit."""
    team = Team(here, [queue])
    async with team.member():
        here.publish(queue, 1)
        assert await team.seen.wait(1) == ["1"]
        declare(here, queue, **with_limit(limit))
        here.publish(queue, 2)
        await until(lambda: here.resources()[queue].halted)
    assert team.seen.bodies == ["1"]
    assert count_in(here, queue) == 1


async def test_a_negative_limit_halts_a_queue_of_rabbitmq_3(
    here: Place, queue: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Its version is known only once the member is connected. Other queues go on."""
    other = unique("other")
    declare(here, other)
    declare(here, queue, **with_limit(-1))
    here.publish(queue, 1)
    team = Team(here, [queue, other])
    with caplog.at_level("ERROR"):
        async with team.member() as member:
            await until(lambda: here.resources()[queue].halted == "UsageError")
            here.publish(other, 2)
            assert await team.seen.wait(1) == ["2"]
            assert member.failed is None
    assert "has a delivery limit of -1" in caplog.text
    assert count_in(here, queue) == 1
    with channel(here.amqp_url) as it:
        it.queue_delete(other)


@pytest.mark.parametrize("described", [False, True], ids=["by name", "described"])
async def test_an_auto_delete_queue_is_refused(here: Place, described: bool) -> None:
    """RabbitMQ would delete it, with the messages in it, at its first handover."""
    name = unique("queue")
    source = Queue(name, auto_delete=True) if described else name
    with channel(here.amqp_url) as it:
        it.queue_declare(name, durable=True, auto_delete=True)
    try:
        with pytest.raises(UsageError, match=r"auto-delete.*with x-expires it would be deleted"):
            async with Team(here, [source]).member():
                pass
        with channel(here.amqp_url) as it:
            it.queue_declare(name, passive=True)
    finally:
        with channel(here.amqp_url) as it:
            it.queue_delete(name)


async def test_a_queue_that_became_an_auto_delete_queue_is_halted(here: Place, queue: str) -> None:
    """Nothing of it is lost."""
    team = Team(here, [queue])
    async with team.member():
        here.publish(queue, 1)
        assert await team.seen.wait(1) == ["1"]
        with channel(here.amqp_url) as it:
            it.queue_delete(queue)
            it.queue_declare(queue, durable=True, auto_delete=True)
        here.publish(queue, 2)
        await until(lambda: here.resources()[queue].halted)
    assert team.seen.bodies == ["1"]
    assert bodies_in(here.amqp_url, queue) == ["2"]
