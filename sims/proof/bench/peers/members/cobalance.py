"""A member of a Cobalance group: ``python -m proof.bench.peers.members.cobalance NAME REDIS AMQP``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import anyio

from cobalance import ConsumerGroup, run
from proof.bench.peers.members import report

if TYPE_CHECKING:
    from cobalance import Delivery


async def handle(delivery: Delivery) -> None:
    """Takes its time, as every peer's handler does."""
    partition, number = report.partition_of(delivery.queue), int(delivery.body)
    report.begun(partition, number)
    await anyio.sleep(report.HANDLER_S)
    report.ended(partition, number)


if __name__ == "__main__":
    report.end_with_parent()
    name, redis_url, amqp_url = sys.argv[1:]
    group = ConsumerGroup(name, name, handle, redis_url=redis_url, amqp_url=amqp_url)
    report.started()
    run(group)  # leaves at SIGTERM
