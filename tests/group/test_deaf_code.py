"""A member leaves even if the program's async code swallows its cancellation, as a bare `except` does."""

from __future__ import annotations

import logging
from collections.abc import Awaitable, Callable

import anyio
import anyio.lowlevel
import attrs
import pytest
from tests.names import unique

from cobalance import ConsumerGroup, Delivery, Group, GroupSettings, MemberSettings, Publisher, Tenure, Topic
from cobalance.group.group import PlainOptions
from cobalance.group.runner import drain_timed_out
from cobalance.rabbitmq import create_topic

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

SETTINGS = GroupSettings(session_timeout_ms=2_000, heartbeat_interval_ms=300, revocation_timeout_ms=3_000)
OWN = MemberSettings(drain_timeout_ms=300)
WITHIN_S = 60.0
FOR_EVER_S = 1_000


class Sleeper:
    """Goes on sleeping whatever happens.

    Args:
        swallows: the exceptions it catches.
    """

    def __init__(self, swallows: type[BaseException]) -> None:
        self._swallows, self.began, self.refused = swallows, anyio.Event(), 0

    async def sleep(self, _: object) -> None:
        self.began.set()
        while True:
            try:
                await anyio.sleep(FOR_EVER_S)
            except self._swallows:
                self.refused += 1


def cancellation() -> Sleeper:
    return Sleeper(anyio.get_cancelled_exc_class())


def options(place: str, own: MemberSettings = OWN) -> PlainOptions:
    """Settings of a member that gives up quickly."""
    return {"redis_url": f"memory://{place}", "settings": SETTINGS, "member": own}


async def leaves(group: Group, began: Callable[[], Awaitable[object]]) -> None:
    """Enters the group, waits until the code runs, and leaves."""
    with anyio.fail_after(WITHIN_S):
        async with group:
            await began()


# Python has a name of its own for catching everything.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("swallows", ["cancellation", "everything"])
async def test_a_member_leaves_though_its_handler_swallows_cancellation(
    swallows: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The partition is given up after the drain timeout, the log names it, and the block ends."""
    place = unique("deaf")
    url = f"memory://{place}"
    topic = create_topic(url, Topic(place, partitions=1))
    with Publisher(url, topic) as publisher:
        publisher.publish("k", b"1")
    handler = Sleeper(BaseException) if swallows == "everything" else cancellation()

    async def handle(delivery: Delivery) -> None:
        await handler.sleep(delivery)

    group = ConsumerGroup("g", topic, handle, amqp_url=url, **options(place))
    with caplog.at_level(logging.ERROR):
        await leaves(group, handler.began.wait)
    assert group.given_up == (topic.queue_names[0],)
    assert "drain_timeout_ms" in str(drain_timed_out(group))
    (said,) = [it.getMessage() for it in caplog.records if it.levelno == logging.ERROR]
    assert f"goes on ({topic.queue_names[0]})" in said


@pytest.mark.parametrize("callback", ["work", "on_assigned", "on_revoked", "on_lost"])
async def test_a_member_leaves_though_its_work_or_callback_swallows_cancellation(callback: str) -> None:
    """Whichever of the program's functions does so."""
    deaf = cancellation()

    async def hang(tenure: object) -> None:
        await deaf.sleep(tenure)

    async def work(_: Tenure) -> None:
        await anyio.sleep_forever()

    functions = {"work": work, callback: hang} if callback == "on_lost" else {callback: hang}
    group = Group("g", ["r"], **functions, **options(unique("deaf")))
    await leaves(group, group.wait_held if callback in {"on_revoked", "on_lost"} else deaf.began.wait)
    assert group.given_up == ("r",)


async def test_a_member_leaves_though_a_handler_was_found_hung_and_swallowed_that() -> None:
    """`max_processing_ms` had cancelled it without effect before the member left."""
    place = unique("deaf")
    url = f"memory://{place}"
    topic = create_topic(url, Topic(place, partitions=1))
    with Publisher(url, topic) as publisher:
        publisher.publish("k", b"1")
    handler = cancellation()

    async def handle(delivery: Delivery) -> None:
        await handler.sleep(delivery)

    own = attrs.evolve(OWN, max_processing_ms=300)
    group = ConsumerGroup("g", topic, handle, amqp_url=url, **options(place, own))

    async def is_hung() -> None:
        await handler.began.wait()
        with anyio.fail_after(WITHIN_S):
            while not handler.refused:
                await anyio.lowlevel.checkpoint()

    await leaves(group, is_hung)
    assert handler.refused


async def test_a_member_that_failed_leaves_though_on_lost_does_not_return() -> None:
    """One `work` has failed, another one runs past the drain timeout, and its `on_lost` hangs."""
    began = anyio.Event()

    async def work(tenure: Tenure) -> None:
        if tenure.resource == "bad":
            raise ZeroDivisionError
        await anyio.sleep_forever()

    async def hang(_: object) -> None:
        began.set()
        await anyio.sleep_forever()

    group = Group("g", ["bad", "good"], work=work, on_lost=hang, **options(unique("deaf")))
    with pytest.raises(ZeroDivisionError):
        await leaves(group, anyio.sleep_forever)
    assert began.is_set()
