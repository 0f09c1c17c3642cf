"""Reconnecting to RabbitMQ, without a broker: leaving during an attempt."""

from __future__ import annotations

import threading

import anyio
import anyio.to_thread
import pytest

from cobalance import ConsumerGroup, Delivery
from cobalance.rabbitmq.partition.replies import Replies
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.reconnection import BACKOFF_MS, Reconnection

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


class SlowConnection(BrokerConnection):
    """A connection whose attempt to connect ends on request."""

    def __init__(self) -> None:
        super().__init__("amqp://localhost", "g/m")
        self.calls: list[str] = []
        self.begun, self.go_on = threading.Event(), threading.Event()

    def connect(self, timeout_ms: int = 10_000) -> None:
        self.begun.set()
        self.go_on.wait(timeout_ms / 1000)
        self.calls.append("connected")

    def close(self, timeout_ms: int = 5_000) -> None:
        del timeout_ms
        self.calls.append("closed")


async def test_leaving_closes_what_an_attempt_under_way_opens() -> None:
    """Otherwise it would stay open until the process ends."""

    async def handle(_: Delivery) -> None: ...

    async def confirm() -> None: ...

    connection, group = SlowConnection(), ConsumerGroup("g", ["q"], handle)
    link = group.partitions.link
    link.connection, link.reconnection = connection, Reconnection("g", connection, confirm)
    link.replies = Replies("g", "amqp://localhost", "g", heartbeat_s=1)  # never connected
    link.reconnection.lost()
    async with anyio.create_task_group() as services, anyio.create_task_group() as tasks:
        services.start_soon(link.reconnection.run)
        await anyio.to_thread.run_sync(connection.begun.wait, 10)
        services.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            tasks.start_soon(release_shielded, group)
            await anyio.wait_all_tasks_blocked()
            connection.go_on.set()
    assert connection.calls == ["connected", "closed"]


class EndedAtOnce(BrokerConnection):
    """RabbitMQ accepts it, and ends it before anything is done with it."""

    is_open = False

    def connect(self, timeout_ms: int = 10_000) -> None:
        del timeout_ms
        self.is_open = True


async def test_pauses_grow_until_a_connection_has_lasted(monkeypatch: pytest.MonkeyPatch) -> None:
    """A user who has no channel left would connect a dozen times a second."""
    now, pauses = 0, list[float]()

    async def pause(seconds: float) -> None:
        pauses.append(seconds * 1000)

    async def confirm() -> None: ...

    monkeypatch.setattr("cobalance.rabbitmq.wire.reconnection.monotonic_ms", lambda: now)
    monkeypatch.setattr("cobalance.rabbitmq.wire.reconnection.anyio.sleep", pause)
    connection = EndedAtOnce("amqp://localhost", "g/m")
    reconnection = Reconnection("g", connection, confirm)

    async def lose() -> None:
        connection.is_open = False
        reconnection.lost()
        await reconnection.run()

    await reconnection.open()
    for _ in range(12):
        now += 1
        await lose()
    assert all(half <= it <= 2 * half for it, half in zip(pauses, (25 * 2**n for n in range(7)), strict=False))
    assert pauses[-1] >= BACKOFF_MS.longest / 2
    now += int(BACKOFF_MS.longest)
    await lose()
    assert pauses[-1] <= BACKOFF_MS.first


async def release_shielded(group: ConsumerGroup) -> None:
    """Releases as at the end of a membership."""
    with anyio.CancelScope(shield=True):
        await group._release_servers()
