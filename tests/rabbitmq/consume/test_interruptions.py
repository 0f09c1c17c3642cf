"""Calls of a consumer that a signal handler interrupts by raising, at each moment at which Python may run one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue
from typing import Any

import pytest
from tests.consumers import WITHIN_S, Place, bodies_in, channel, new_topic
from tests.interruptions import interrupted

from cobalance import BlockingConsumerGroup, MemberSettings
from cobalance.rabbitmq import Delivery

COUNT = 800


@pytest.mark.parametrize("step", [pytest.param(5, id="some"), pytest.param(1, id="all", marks=pytest.mark.thorough)])
def test_rejecting(here: Place, step: int) -> None:
    """What is rejected later still arrives, and each message is either a dead letter or comes again."""
    came: SimpleQueue[Delivery] = SimpleQueue()
    with new_topic(here.amqp_url) as topic, ThreadPoolExecutor(1) as other:
        here.publish(topic, *range(COUNT))
        options: dict[str, Any] = {
            "amqp_url": here.amqp_url,
            "redis_url": here.redis_url,
            "member": MemberSettings(drain_timeout_ms=0),
        }
        with BlockingConsumerGroup(here.group, topic, came.put, ack="manual", prefetch=COUNT, **options) as group:
            moment, rejected = 0, list[Delivery]()
            while True:
                rejected.append(came.get(timeout=WITHIN_S))
                if not interrupted(lambda: group.reject(rejected[-1]), moment):
                    break
                moment += step
            rejected.append(came.get(timeout=WITHIN_S))
            other.submit(group.reject, rejected[-1]).result(WITHIN_S)
            with channel(here.amqp_url) as it:
                letters = it.consume(f"{topic.name}.dead", auto_ack=True, inactivity_timeout=WITHIN_S)
                last = rejected[-1].body
                dead = list[bytes]()
                while not dead or dead[-1] != last:
                    (*_, body) = next(letters)
                    assert body is not None, "the last one does not arrive"
                    dead.append(body)
        assert moment > 25
        left = [int(it) for it in bodies_in(here.amqp_url, topic.queue_names[0])]
        assert {*map(int, dead), *left} == set(range(COUNT))
