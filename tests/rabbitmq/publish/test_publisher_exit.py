"""Publishers that are closed, or never closed: messages are sent, refused, or reported as lost."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.consumers import bodies_in, new_topic

from cobalance.errors import UsageError
from cobalance.rabbitmq import AsyncPublisher, Publisher
from cobalance.rabbitmq.topics.broker import ready_messages

pytestmark = pytest.mark.both_loops

PROGRAM = """
import sys
from cobalance.rabbitmq import Publisher

publisher = Publisher(sys.argv[1], sys.argv[2], timeout_ms=int(sys.argv[4]))
{}
for number in range(int(sys.argv[3])):
    publisher.publish("a", str(number), wait=False)
"""

NEVER_ENTERED, ENTERED = "", "publisher.__enter__()"
AT_EXIT = "import atexit; atexit.register(lambda: publisher.publish('a', 'last'))"
BLOCKED = "publisher.__enter__(); publisher._channel._connection.blocked = True"
HELD_UP = "import threading; publisher.__enter__(); publisher._channel._connection.submit(threading.Event().wait)"


def run(url: str, topic: str, begin: str, count: int, timeout_ms: int = 30_000) -> str:
    """Runs a program that ends without closing its publisher; returns its standard error."""
    command = [sys.executable, "-c", PROGRAM.format(begin), url, topic, str(count), str(timeout_ms)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    return ended.stderr


@pytest.mark.parametrize("begin", [NEVER_ENTERED, ENTERED], ids=["never entered", "never left"])
def test_what_was_published_is_there_when_the_program_has_ended(amqp_url: str, begin: str) -> None:
    """Even though no call waited for it, and the publisher was not closed."""
    with new_topic(amqp_url) as topic:
        assert run(amqp_url, topic.name, begin, 2_000) == ""
        assert ready_messages(amqp_url, topic.queue_names) == {topic.queue_names[0]: 2_000}


def test_what_ends_later_may_still_publish(amqp_url: str) -> None:
    """As a logging handler may: exit handlers registered first are called last."""
    with new_topic(amqp_url) as topic:
        assert run(amqp_url, topic.name, AT_EXIT, 20) == ""
        assert bodies_in(amqp_url, topic.queue_names[0])[-1] == "last"


def test_what_cannot_be_sent_before_the_program_ends_is_said(amqp_url: str) -> None:
    """RabbitMQ accepts nothing for longer than the timeout; or a callback holds up the thread that would send it."""
    with new_topic(amqp_url) as topic:
        said = run(amqp_url, topic.name, BLOCKED, 5, timeout_ms=3_000)  # which connecting may take on a busy machine
        assert "5 messages failed" in said
        assert "blocks publishers" in said
        assert "was not closed" not in said
        said = run(amqp_url, topic.name, HELD_UP, 5, timeout_ms=3_000)
    assert f"the publisher of topic {topic.name} was not closed" in said
    assert "5 messages" in said


@pytest.mark.anyio
async def test_a_publisher_that_was_closed_publishes_nothing(amqp_url: str) -> None:
    """It would reconnect unnoticed, and never be closed."""
    with new_topic(amqp_url) as topic:
        with Publisher(amqp_url, topic) as publisher:
            publisher.publish("a", b"1")
        async with AsyncPublisher(amqp_url, topic) as tasks:
            await tasks.publish("a", b"2")
        with pytest.raises(UsageError, match="is closed"):
            publisher.publish("a", b"3", wait=False)
        with pytest.raises(UsageError, match="is closed"):
            await tasks.publish("a", b"4")
        with publisher:  # entered again, it is as new
            publisher.publish("a", b"5")
        assert ready_messages(amqp_url, topic.queue_names) == {topic.queue_names[0]: 3}
