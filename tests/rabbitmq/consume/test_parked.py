"""Parking: order within each key, nothing lost, and exactly the waiting messages go to the next holder."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.consumers import WITHIN_S, Place, Seen, bodies_in, channel, new_topic, until
from tests.streams import new_stream

from cobalance.errors import InvalidSettings, UsageError
from cobalance.rabbitmq import Delivery, Topic
from cobalance.rabbitmq.model.batches import Batch
from cobalance.rabbitmq.model.retries import Retries
from cobalance.rabbitmq.topics.broker import ready_messages

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def key_of(delivery: Delivery) -> str:
    """The first letter of the body."""
    return delivery.body.decode()[0]


SOON: dict[str, Any] = {"first_ms": 20, "last_ms": 20}
BY_KEY = Retries(1_000, mode="park", key=key_of, **SOON)
LATE = Retries(9, mode="park", key=key_of, first_ms=600_000, last_ms=600_000)


@pytest.fixture(params=["classic", "quorum"])
def topic(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[Topic]:
    """One partition, for each kind of queue."""
    with new_topic(amqp_url, 1, request.param) as it:
        yield it


class Failing:
    """A handler that fails on the messages in its list."""

    def __init__(self, *bad: str) -> None:
        self.seen, self.bad, self.done = Seen(), set(bad), list[str]()

    async def handle(self, delivery: Delivery) -> None:
        if self.seen.note(delivery) in self.bad:
            raise ValueError("not yet")
        self.done.append(delivery.body.decode())


# -- on a real RabbitMQ ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_plain", [True, False], ids=["plain", "async"])
async def test_only_the_key_of_a_failed_message_waits(here: Place, topic: Topic, is_plain: bool) -> None:
    """Messages with other keys go on at once; those with its key stay in order."""
    failing = Failing("a1")

    def plain(delivery: Delivery) -> Any:
        return failing.handle(delivery)

    here.publish(topic, "a1", "b1", "a2", "b2", "a3", "c1")
    async with here.member(topic, plain if is_plain else failing.handle, retries=BY_KEY):
        await until(lambda: len(failing.done) == 3)
        assert failing.done == ["b1", "b2", "c1"]
        await until(lambda: failing.seen.bodies.count("a1") > 2)
        failing.bad.clear()
        await until(lambda: len(failing.done) == 6)
    assert failing.done == ["b1", "b2", "c1", "a1", "a2", "a3"]
    assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 0}
    assert here.journal("abandoned") == []


async def test_without_a_key_nothing_waits_for_a_failed_message(here: Place, topic: Topic) -> None:
    """Parking without a key gives up order."""
    failing = Failing("a1", "a3")
    here.publish(topic, "a1", "a2", "a3", "a4")
    async with here.member(topic, failing.handle, retries=Retries(1_000, mode="park", **SOON)):
        await until(lambda: len(failing.done) == 2)
        assert failing.done == ["a2", "a4"]
        failing.bad.clear()
        await until(lambda: len(failing.done) == 4)
    assert sorted(failing.done[2:]) == ["a1", "a3"]


async def test_keys_that_always_fail_keep_others_from_no_first_try(here: Place, topic: Topic) -> None:
    """Nor do retries that are always due: they take their turn."""
    failing = Failing("a1", "b1", "c1")

    async def handle(delivery: Delivery) -> None:
        await anyio.lowlevel.checkpoint()
        await failing.handle(delivery)

    here.publish(topic, "a1", "b1", "c1", "d1", "e1")
    retries = Retries(1_000_000, mode="park", key=key_of, first_ms=0, last_ms=0)
    async with here.member(topic, handle, retries=retries):
        await until(lambda: failing.done == ["d1", "e1"])
        failing.bad.clear()
        await until(lambda: len(failing.done) == 5)
    assert sorted(failing.done) == ["a1", "b1", "c1", "d1", "e1"]


async def test_what_waits_goes_to_the_next_holder_in_its_order(here: Place, topic: Topic) -> None:
    """Messages that overtook them are acknowledged and do not come again."""
    failing, heir = Failing("a1", "c1"), Failing()
    here.publish(topic, "a1", "b1", "c1", "a2", "b2", "c2", "a3")
    async with here.member(topic, failing.handle, retries=LATE):
        await until(lambda: len(failing.done) == 2)
    async with here.member(topic, heir.handle):
        await until(lambda: len(heir.done) == 5)
    assert failing.done == ["b1", "b2"]
    assert heir.done == ["a1", "c1", "a2", "c2", "a3"]
    assert {entry.reason for entry in here.journal("abandoned", "forced")} == set()


async def test_what_waits_comes_again_after_a_lost_connection(here: Place, topic: Topic) -> None:
    """Messages that overtook it are acknowledged and do not come again."""
    failing = Failing("a1")
    here.publish(topic, "a1", "b1", "a2", "b2")
    async with here.member(topic, failing.handle, retries=LATE) as member:
        await until(lambda: len(failing.done) == 2)
        await until(lambda: _acknowledged(member) == 2)
        failing.bad.clear()
        member.partitions.connection.submit(lambda: 1 / 0)
        await until(lambda: len(failing.done) == 4)
    assert failing.seen.bodies == ["a1", "b1", "b2", "a1", "a2"]


def _acknowledged(member: Any) -> int:
    (worker,) = member.partitions.workers.values()
    return int(worker._consumer.progress.committed)


async def test_no_more_than_prefetch_wait(here: Place, topic: Topic) -> None:
    """Then the partition waits, until one of them is finished."""
    failing = Failing("a1", "b1", "c1")
    here.publish(topic, "a1", "b1", "c1", "d1")
    async with here.member(topic, failing.handle, retries=BY_KEY, prefetch=3):
        await failing.seen.wait(20)
        assert failing.done == []
        failing.bad.remove("b1")
        await until(lambda: failing.done == ["b1", "d1"])
        failing.bad.clear()
        await until(lambda: len(failing.done) == 4)


async def test_what_fails_too_often_is_given_up_and_its_key_goes_on(here: Place, topic: Topic) -> None:
    """It becomes a dead letter."""
    failing = Failing("a1")
    here.publish(topic, "a1", "a2", "b1")
    retries = Retries(2, mode="park", key=key_of, **SOON)
    async with here.member(topic, failing.handle, retries=retries, on_error="dead_letter"):
        await until(lambda: len(failing.done) == 2)
    assert failing.seen.bodies == ["a1", "b1", "a1", "a1", "a2"]
    assert bodies_in(here.amqp_url, f"{topic.name}.dead") == ["a1"]


async def test_a_partition_that_is_given_up_loses_nothing(here: Place, topic: Topic) -> None:
    """One message has failed too often, another waits: both are still there, in order."""
    failing = Failing("a1", "b1")

    here.publish(topic, "a1", "b1", "a2", "c1")
    retries = Retries(1, mode="park", key=key_of, first_ms=1_000, last_ms=1_000)  # by then, all have arrived
    async with here.member(topic, failing.handle, retries=retries, on_error="halt"):
        await until(lambda: here.resources()[topic.queue_names[0]].halted)
    assert failing.done == ["c1"]
    assert _bodies_left(here, topic, 3) == ["a1", "b1", "a2"]


def _bodies_left(here: Place, topic: Topic, count: int) -> list[str]:
    """A quorum queue has what comes back a moment after the channel was closed."""
    with channel(here.amqp_url) as it:
        arriving = it.consume(topic.queue_names[0], inactivity_timeout=WITHIN_S)
        return [body.decode() for _, (_, _, body) in zip(range(count), arriving, strict=False) if body is not None]


async def test_a_key_that_cannot_be_told_gives_the_partition_up(here: Place, topic: Topic) -> None:
    """The message behind a waiting one might have the same key."""
    failing = Failing("a1")

    def no_key(delivery: Delivery) -> str:
        return str(delivery.headers["customer"])

    here.publish(topic, "a1", "a2")
    async with here.member(topic, failing.handle, retries=Retries(9, mode="park", key=no_key, **SOON)):
        await until(lambda: here.journal("abandoned"))
    assert here.journal("abandoned")[0].reason == "failed:UsageError"
    assert _bodies_left(here, topic, 2) == ["a1", "a2"]


def test_what_cannot_be_is_refused(here: Place) -> None:
    """It is refused before anything is consumed."""

    async def handle(_: list[Delivery]) -> None: ...

    with pytest.raises(UsageError, match="batch"):
        here.member(["q"], handle, batch=Batch(2), retries=BY_KEY)
    with pytest.raises(InvalidSettings, match="in_place"):
        Retries(mode="aside")  # type: ignore[arg-type]
    with pytest.raises(InvalidSettings, match="key is for"):
        Retries(key=key_of)


async def test_a_stream_is_refused(here: Place) -> None:
    """A stream has one offset, behind which nothing can be left."""

    async def handle(_: Delivery) -> None: ...

    with new_stream(here.amqp_url) as stream, pytest.raises(UsageError, match="stream"):
        async with here.member([stream.name], handle, retries=BY_KEY):
            pass
