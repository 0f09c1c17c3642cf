"""One bad message in a fleet with the default ``on_error``."""

from __future__ import annotations

import logging
from contextlib import AsyncExitStack

import pytest
from tests.consumers import SETTINGS, Place, Seen, new_topic, until

from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.model.retries import Retries

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

ONCE = Retries(1, first_ms=5)


async def test_one_bad_message_ends_no_process(here: Place, caplog: pytest.LogCaptureFixture) -> None:
    """Two members try it, as often as each may; then only its partition waits; nothing is lost or skipped."""
    seen = Seen()
    is_bad = True

    async def handle(delivery: Delivery) -> None:
        if seen.note(delivery) == "bad" and is_bad:
            raise ValueError("no such customer")

    with new_topic(here.amqp_url, 2) as topic:
        poisoned, _ = topic.queue_names
        async with AsyncExitStack() as stack:
            for _ in range(3):
                await stack.enter_async_context(here.member(topic, handle, retries=ONCE, settings=SETTINGS))
            here.publish(topic, "bad", "next")
            await until(lambda: here.resources()[poisoned].paused_until_ms)
            assert here.resources()[poisoned].halted == "given up again and again (failed:ValueError)"
            assert here.coordinator.state()["members"] == "3"
            assert seen.bodies == ["bad"] * 4
            here.publish(topic, "other", partition=1)
            assert await seen.wait(5) == ["bad"] * 4 + ["other"]
            is_bad = False  # the cause is removed: it resumes by itself
            assert await seen.wait(7) == ["bad"] * 4 + ["other", "bad", "next"]
    assert [entry.reason for entry in here.journal("abandoned")] == ["failed:ValueError"] * 2
    assert "ERROR" in {record.levelname for record in caplog.records}


async def test_a_group_that_ends_beside_a_program_that_goes_on_says_so(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It logs one line at ERROR and sets ``failed``, which a program that embeds the group can check at any time."""

    async def handle(_: Delivery) -> None:
        raise ValueError("no such customer")

    with new_topic(here.amqp_url) as topic:
        member = here.member(topic, handle, retries=0, on_error="raise")
        here.publish(topic, 1)
        with pytest.raises(ValueError, match="no such customer"):
            async with member:
                await member.wait_left()
        assert isinstance(member.failed, ValueError)
    ends = [it for it in caplog.records if it.levelno == logging.ERROR and "ends the membership" in it.getMessage()]
    assert len(ends) == 1
    assert here.group in ends[0].getMessage()


async def test_a_group_that_ended_well_has_not_failed(here: Place) -> None:
    """A group that is still running has not failed, either."""
    seen = Seen()

    async def handle(delivery: Delivery) -> None:
        seen.note(delivery)

    with new_topic(here.amqp_url) as topic:
        async with here.member(topic, handle, settings=SETTINGS) as member:
            here.publish(topic, 1)
            await seen.wait(1)
            assert member.failed is None
        assert member.failed is None
