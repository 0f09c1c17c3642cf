"""A message larger than RabbitMQ accepts: only it fails, and the error says why."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.consumers import bodies_in, new_topic
from tests.streams import bodies_in_stream

from cobalance import servers
from cobalance.errors import PublishFailed
from cobalance.rabbitmq import Publisher
from cobalance.rabbitmq.publish.confirm_channel import AFFECTED

MOST = 100_000


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    """The URL of a RabbitMQ with a limit, which RabbitMQ 4 reads only when it starts."""
    with servers.private_rabbitmq(settings={"max_message_size": str(MOST)}) as server:
        yield server.url


def test_one_that_is_too_large_fails_no_other(url: str) -> None:
    """RabbitMQ closes the channel over it; messages behind it are sent again, in order."""
    with new_topic(url) as topic:
        with Publisher(url, topic) as publisher:
            publisher.publish("a", "before")
            large = publisher.publish("a", "x" * (MOST + 1), wait=False)
            behind = [publisher.publish("a", f"{number}", wait=False) for number in range(50)]
            with pytest.raises(PublishFailed, match=r"100,001 bytes.*100,000") as caught:
                large.result(10)
            assert [future.result(10) for future in behind] == [0] * 50
            with pytest.raises(PublishFailed, match="100,001 bytes"):  # every time
                publisher.publish("a", "x" * (MOST + 1))
            publisher.publish("a", "later")
        assert caught.value.outcome == "not_executed"
        assert bodies_in(url, topic.queue_names[0]) == ["before", *map(str, range(50)), "later"]


@pytest.mark.parametrize("by_name", [False, True])
def test_one_that_is_too_large_fails_no_other_in_streams(url: str, by_name: bool) -> None:
    """Each stream may have a channel of its own: what is under way on the others stays there, in order."""
    with new_topic(url, 3, "stream") as topic:
        with Publisher(url, topic.name if by_name else topic) as publisher:
            is_affected = publisher._channel._connection.server_version.startswith(AFFECTED)
            assert len(publisher._channel._lanes) == (3 if is_affected else 1)
            sent = [publisher.publish(None, f"{n}", partition=n % 3, wait=False) for n in range(30)]
            assert publisher.flush()
            large = [publisher.publish(None, "x" * (MOST + 1), partition=n, wait=False) for n in range(2)]
            sent += [publisher.publish(None, f"{n}", partition=n % 3, wait=False) for n in range(30, 60)]
            for future in large:
                with pytest.raises(PublishFailed, match=r"100,001 bytes.*100,000"):
                    future.result(10)
            assert [future.result(10) for future in sent] == [0, 1, 2] * 20
        for partition, stream in enumerate(topic.queue_names):
            assert bodies_in_stream(url, stream) == [str(n) for n in range(partition, 60, 3)]
