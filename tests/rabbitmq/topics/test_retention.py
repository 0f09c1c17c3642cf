"""How long a stream keeps messages, converted to x-arguments and back; and topics of streams."""

from typing import Any

import pytest

from cobalance.errors import UsageError
from cobalance.rabbitmq import Retention, Topic


@pytest.mark.parametrize(
    ("retention", "arguments"),
    [
        (Retention(), {}),
        (Retention(max_age="7D"), {"x-max-age": "7D"}),
        (
            Retention(max_bytes=10, segment_bytes=5),
            {"x-max-length-bytes": 10, "x-stream-max-segment-size-bytes": 5},
        ),
    ],
)
def test_there_and_back(retention: Retention, arguments: dict[str, Any]) -> None:
    """What is declared is what is read back."""
    assert retention.arguments == arguments
    assert Retention.read({"x-queue-type": "stream", **arguments}) == retention


@pytest.mark.parametrize(
    "option", [{"max_age": "a week"}, {"max_age": "0D"}, {"max_bytes": 0}, {"segment_bytes": True}]
)
def test_what_is_no_retention(option: dict[str, Any]) -> None:
    """It is refused before RabbitMQ would refuse it in its own words."""
    with pytest.raises(UsageError, match=next(iter(option))):
        Retention(**option)


def test_a_topic_of_streams_has_no_dead_letters() -> None:
    """RabbitMQ refuses a stream that is declared with a dead-letter target."""
    topic = Topic("payments", 2, "stream", retention=Retention(max_age="1h"))
    assert topic.dead_letter_queue is None
    assert [queue.arguments for queue in topic.queues] == [{"x-queue-type": "stream", "x-max-age": "1h"}] * 2
