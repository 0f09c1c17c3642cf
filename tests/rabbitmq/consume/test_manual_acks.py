"""``ack="manual"`` out of order: which messages are redelivered when a member leaves."""

from __future__ import annotations

import pytest
from tests.consumers import SETTINGS, Place, Seen, new_topic, until

from cobalance.rabbitmq import Delivery
from cobalance.rabbitmq.topics.broker import ready_messages
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("queue_type", ["classic", "quorum"])
async def test_what_was_acknowledged_does_not_come_again(here: Place, queue_type: str) -> None:
    """Only the older, unacknowledged messages are redelivered, in order."""
    seen, again = Seen(), Seen()
    deliveries: list[Delivery] = []

    async def handle(delivery: Delivery) -> None:
        deliveries.append(delivery)
        seen.note(delivery)

    async def handle_again(delivery: Delivery) -> None:
        again.note(delivery)

    with new_topic(here.amqp_url, 1, queue_type) as topic:
        here.publish(topic, *range(10))
        leaving = MemberSettings(drain_timeout_ms=200)
        async with here.member(topic, handle, ack="manual", member=leaving, settings=SETTINGS) as member:
            await seen.wait(10)
            for number in (9, 4, 5, 8, 1, 6):
                member.ack(deliveries[number])
        assert ready_messages(here.amqp_url, topic.queue_names) == {topic.queue_names[0]: 4}
        async with here.member(topic, handle_again):
            await until(lambda: not any(ready_messages(here.amqp_url, topic.queue_names).values()))
            assert await again.wait(4) == ["0", "2", "3", "7"]
