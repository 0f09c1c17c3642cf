"""A member process of the crash benchmark: ``python -m proof.bench.crash_member GROUP TOPIC REDIS AMQP SETTINGS``.

It writes a line for each message: its process, the queue, and when, on the clock that all processes of a machine share.
"""

from __future__ import annotations

import json
import os
import sys
import time
from typing import TYPE_CHECKING

import anyio

from cobalance.rabbitmq.consume import process_identity
from cobalance.rabbitmq.consume.consumer_group import ConsumerGroup
from cobalance.settings import GroupSettings

if TYPE_CHECKING:
    from cobalance.rabbitmq.partition.delivery import Delivery


async def handle(delivery: Delivery) -> None:
    """Writes one line in one piece, so that the lines of several processes do not mix."""
    os.write(1, f"{os.getpid()} {delivery.queue} {time.monotonic():.6f}\n".encode())


async def consume(group: str, topic: str, redis_url: str, amqp_url: str, options: str) -> None:
    """Consumes until it is killed."""
    chosen = json.loads(options)
    settings = GroupSettings(**chosen["settings"])
    if chosen["apart"]:
        process_identity.own_process = str
    member = ConsumerGroup(
        group,
        topic,
        handle,
        redis_url=redis_url,
        amqp_url=amqp_url,
        settings=settings,
        crash_detection=chosen["crash_detection"],
    )
    async with member:
        await anyio.sleep_forever()


if __name__ == "__main__":
    group, topic, redis_url, amqp_url, options = sys.argv[1:]
    anyio.run(consume, group, topic, redis_url, amqp_url, options)
