"""Stream channels that end unexpectedly, without a broker: what counts as progress."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import pytest
from pika.spec import Basic, BasicProperties

from cobalance import StreamSettings, Tenure
from cobalance.errors import MessageUnreadable
from cobalance.rabbitmq.consume.stream_worker import StreamWorker
from cobalance.rabbitmq.model.queues import Queue
from cobalance.rabbitmq.partition.partition import PartitionState
from cobalance.rabbitmq.streams.consumer import StreamConsumer
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.rabbitmq.wire.failures import channel_lost
from cobalance.rabbitmq.wire.pika_internals import Unreadable
from cobalance.settings import MemberSettings

pytestmark = pytest.mark.anyio

STREAM = Queue("s", {"x-queue-type": "stream"})


@pytest.fixture
def anyio_backend() -> str:
    """It is the same on both event loops."""
    return "asyncio"


def consumer_that_got(*offsets: int) -> StreamConsumer:
    """A consumer that continues after offset 5, and whose messages were all taken."""
    consumer: Any = StreamConsumer(
        BrokerConnection("amqp://localhost", "g/m"), STREAM, after=5, token=1, on_ready=lambda: None
    )
    for tag, offset in enumerate(offsets, 1):
        consumer._message(None, Basic.Deliver("c", tag), BasicProperties(headers={"x-stream-offset": offset}), b"")
    consumer.take()
    return consumer  # type: ignore[no-any-return]


async def test_the_message_at_the_position_is_no_progress() -> None:
    """It arrives on every channel, so a channel lost right after it is retried at growing intervals."""
    group: Any = SimpleNamespace(
        name="g", own=MemberSettings(), share=lambda: None, connection=SimpleNamespace(is_open=True)
    )
    worker: Any = StreamWorker(Tenure("s", 1, 5, group), STREAM, group, StreamSettings())
    pauses: list[float | None] = []

    async def note(_: Callable[[], bool], ms: float | None = None) -> None:
        pauses.append(ms)

    worker._wait_while = note
    for _ in range(4):
        await worker._judge_loss(consumer_that_got(5), channel_lost("s", "x"))
    assert len(pauses) == 3
    assert pauses == sorted(set(pauses), key=float)  # type: ignore[arg-type]
    await worker._judge_loss(consumer_that_got(5, 6), channel_lost("s", "x"))
    assert len(pauses) == 3


def of_the_leader(count: int) -> Any:
    """The leader's answer to a passive declaration."""
    return SimpleNamespace(method=SimpleNamespace(message_count=count))


def test_a_node_that_lags_behind_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    """The leader has the message at the position; only its word, given twice, proves that one is gone."""
    later: list[object] = []
    connection: Any = SimpleNamespace(call_later=lambda *call: later.append(call))
    consumer: Any = StreamConsumer(connection, STREAM, after=150, token=1, on_ready=lambda: None)
    given_up: list[Exception] = []
    consumer._give_up, consumer.state = given_up.append, PartitionState.CONSUMING
    for count in (200, 151, 0, 200, 151, 100, 0):
        consumer._compare(0, of_the_leader(count))
    assert len(later) == 7
    assert not given_up
    assert caplog.text.count("has not got offset 150 yet") == 1
    consumer._compare(0, of_the_leader(150))
    assert "ends before offset 150" in str(given_up)


def unreadable() -> Future[int | None]:
    asked: Future[int | None] = Future()
    asked.set_exception(MessageUnreadable("headers"))
    return asked


def test_an_unreadable_message_hides_no_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retention took what was next, and the oldest message left cannot be read: it need not be that at the position."""
    gaps: list[int] = []

    def on_gap(first: int) -> bool:
        gaps.append(first)
        return False

    for question in ("first_offset", "offset_since"):
        monkeypatch.setattr(f"cobalance.rabbitmq.streams.consumer.{question}", lambda *_, **__: unreadable())
    connection: Any = SimpleNamespace(submit=lambda job: job(), call_later=lambda *_: None, is_open=True)
    consumer: Any = StreamConsumer(connection, STREAM, after=5, token=1, on_ready=lambda: None, on_gap=on_gap)
    consumer.state, consumer._flush, consumer._stop_when_idle = PartitionState.CONSUMING, int, int
    consumer._message(None, Basic.Deliver("c", 1), Unreadable(ValueError("headers")), b"")
    consumer._message(None, Basic.Deliver("c", 2), BasicProperties(headers={"x-stream-offset": 51}), b"")
    assert gaps == [51]
