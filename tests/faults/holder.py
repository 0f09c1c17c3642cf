"""A member in a process of its own, to be frozen: it holds one message until told to continue, then acks and commits.

Usage: holder.py GROUP TOPIC AMQP_URL REDIS_URL SESSION_MS [MANAGEMENT_URL]. It prints what happens, one line each.
"""

from __future__ import annotations

import sys

import anyio
import anyio.to_thread

from cobalance import ConsumerGroup, Delivery
from cobalance.errors import CobalanceError
from cobalance.settings import GroupSettings


async def main(*arguments: str) -> None:
    """Serves until its standard input ends."""
    group_name, topic, amqp_url, redis_url, session_ms, *management = arguments
    go_on = anyio.Event()

    async def handle(delivery: Delivery) -> None:
        print("got", delivery.body.decode(), delivery.token, flush=True)  # noqa: T201
        with anyio.CancelScope(shield=True):  # a handler that nothing can stop
            await go_on.wait()

    settings = GroupSettings(
        session_timeout_ms=int(session_ms),
        heartbeat_interval_ms=int(session_ms) // 8,
        revocation_timeout_ms=2 * int(session_ms),
        gather_ms=0,
    )
    url = management[0] if management else None
    group = ConsumerGroup(
        group_name, topic, handle, amqp_url=amqp_url, redis_url=redis_url, settings=settings, management_url=url
    )
    async with group:
        (tenure,) = await group.wait_held()
        print("holding", group.member, tenure.token, flush=True)  # noqa: T201
        await anyio.to_thread.run_sync(sys.stdin.readline)
        go_on.set()
        try:
            await tenure.commit(99)
        except CobalanceError as error:
            print("commit", type(error).__name__, flush=True)  # noqa: T201
        else:
            print("commit stored", flush=True)  # noqa: T201
        await anyio.to_thread.run_sync(sys.stdin.readline)


if __name__ == "__main__":
    anyio.run(main, *sys.argv[1:])
