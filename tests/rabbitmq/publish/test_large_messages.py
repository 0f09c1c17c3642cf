"""A message larger than RabbitMQ accepts: only it fails, and the error says why."""

from __future__ import annotations

import pytest
from tests.consumers import bodies_in, new_topic

from cobalance import servers
from cobalance.errors import PublishFailed
from cobalance.rabbitmq import Publisher

MOST = 100_000


def test_one_that_is_too_large_fails_no_other(private_rabbitmq: servers.OwnRabbitMQ) -> None:
    """RabbitMQ closes the channel over it; messages behind it are sent again, in order."""
    private_rabbitmq.control("eval", f"application:set_env(rabbit, max_message_size, {MOST}).")
    with new_topic(private_rabbitmq.url) as topic:
        with Publisher(private_rabbitmq.url, topic) as publisher:
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
        assert bodies_in(private_rabbitmq.url, topic.queue_names[0]) == ["before", *map(str, range(50)), "later"]
