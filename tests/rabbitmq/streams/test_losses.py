"""Stream channels that end unexpectedly, without a broker: what counts as progress."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from pika.spec import Basic, BasicProperties

from cobalance import StreamSettings, Tenure
from cobalance.rabbitmq.consume.stream_worker import StreamWorker
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.streams.consumer import StreamConsumer
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.failures import channel_lost
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio

STREAM = Queue("s", {"x-queue-type": "stream"})


def consumer_that_got(*offsets: int) -> StreamConsumer:
    """A consumer that continues after offset 5, and whose messages were all taken."""
    consumer: Any = StreamConsumer(
        BrokerConnection("amqp://localhost", "g/m"), STREAM, after=5, token=1, on_ready=lambda: None
    )
    for event in (consumer._core.start, consumer._core.opened, consumer._core.subscribed):
        event()
    for tag, offset in enumerate(offsets, 1):
        consumer._message(None, Basic.Deliver("c", tag), BasicProperties(headers={"x-stream-offset": offset}), b"")
    consumer.take()
    return consumer  # type: ignore[no-any-return]


async def test_the_message_at_the_position_is_no_progress() -> None:
    """It arrives on every channel, so a channel lost right after it is retried at growing intervals."""
    connection = SimpleNamespace(is_open=True)
    group: Any = SimpleNamespace(
        name="g",
        key_prefix="cobalance",
        scope="cobalance g",
        own=MemberSettings(),
        share=lambda: None,
        by_key=lambda _: None,
        manual=False,
        prefetch_of=lambda _: 10,
        connection=connection,
        link=SimpleNamespace(connection=connection, reconnection=SimpleNamespace(losses=0), lasting_ms=60_000),
    )
    streams: Any = SimpleNamespace(settings=StreamSettings())
    worker: Any = StreamWorker(Tenure("s", 1, 5, group), STREAM, group, streams)
    pauses: list[float | None] = []

    async def note(_: Callable[[], bool], ms: float | None = None) -> None:
        pauses.append(ms)

    worker.wait_while = note
    for _ in range(4):
        await worker._judge_loss(consumer_that_got(5), channel_lost("s", "x"))
    assert len(pauses) == 3
    assert pauses == sorted(set(pauses), key=float)  # type: ignore[arg-type]
    await worker._judge_loss(consumer_that_got(5, 6), channel_lost("s", "x"))
    assert len(pauses) == 3
