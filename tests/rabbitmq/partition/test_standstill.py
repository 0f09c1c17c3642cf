"""A quorum queue that sends its consumer nothing any more, and how that is told from one that is empty or waits."""

import threading
from collections.abc import Callable

import pytest
from pika.adapters.blocking_connection import BlockingChannel
from tests.rabbitmq.partition.holders import WAIT_S, Member, declare, publish

from cobalance.backoff import Backoff
from cobalance.rabbitmq import Queue
from cobalance.rabbitmq.partition import standstill
from cobalance.rabbitmq.partition.partition import PartitionState
from cobalance.rabbitmq.partition.standstill import Standstill


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> threading.Semaphore:
    """Quorum queues are looked at all the time; each look is counted."""
    made, look = threading.Semaphore(0), Standstill._look

    def counted(self: Standstill) -> None:
        look(self)
        made.release()

    monkeypatch.setattr(standstill, "LOOK_MS", Backoff(20.0, 20.0))
    monkeypatch.setattr(standstill, "CERTAIN_MS", 20.0)
    monkeypatch.setattr(Standstill, "_look", counted)
    return made


@pytest.mark.usefixtures("looks")
def test_a_queue_that_is_made_anew_at_once_and_stands_still(
    broker: BlockingChannel, members: Callable[..., Member], quorum: Queue
) -> None:
    """RabbitMQ 3.10 cancels the consumer in every third case or so; otherwise it sends it nothing ever again."""
    for token in range(2, 100, 2):
        first = members(quorum, token, prefetch=2)
        publish(broker, quorum, 1)
        first.start()
        assert first.work(1) == [0]
        declare(broker, quorum)
        publish(broker, quorum, 10)
        words = str(first.ended_with())
        second = members(quorum, token + 1)
        second.start()
        assert second.work(10) == list(range(10))
        second.partition.release().result(WAIT_S)
        if "8 messages are ready" in words:
            return
    pytest.skip("this RabbitMQ always cancels the consumer")


def test_who_is_sent_nothing_for_good_reason_is_let_be(
    broker: BlockingChannel, members: Callable[..., Member], quorum: Queue, looks: threading.Semaphore
) -> None:
    """It waits for an older consumer; or it has messages in hand, or found the queue empty."""
    publish(broker, quorum, 10)
    first, second = members(quorum, 1, prefetch=3), members(quorum, 2)
    first.start()
    taken = first.take(3)
    second.start()
    for _ in range(30):
        assert looks.acquire(timeout=WAIT_S)
    for delivery in taken:
        first.partition.done(delivery)
    first.work(7)
    for _ in range(30):
        assert looks.acquire(timeout=WAIT_S)
    assert (first.partition.state, second.partition.state) == (PartitionState.CONSUMING,) * 2
    publish(broker, quorum, 5)
    assert first.work(5) == list(range(5))
