"""Reads a topic of streams as a member of a group and prints each message's place, for tests that kill it.

Arguments: group, topic, commit_every. Commits by count alone.
"""

import os
import sys

import anyio

from cobalance import ConsumerGroup, Delivery, StreamSettings, run


async def handle(delivery: Delivery) -> None:
    sys.stdout.write(f"{os.getpid()} {delivery.queue} {delivery.offset} {delivery.token}\n")
    sys.stdout.flush()
    await anyio.sleep(0.002)


run(
    ConsumerGroup(
        sys.argv[1],
        sys.argv[2],
        handle,
        amqp_url=os.environ["COBALANCE_AMQP_URL"],
        redis_url=os.environ["COBALANCE_REDIS_URL"],
        streams=StreamSettings(commit_every=int(sys.argv[3]), commit_interval_ms=3_600_000),
    )
)
