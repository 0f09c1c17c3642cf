"""A topic to publish to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cobalance.rabbitmq import Topic, create_topic, delete_topic


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    """A topic for one test."""
    made = Topic("publisher.orders", 4)
    create_topic(amqp_url, made)
    yield made
    delete_topic(amqp_url, made.name, force=True)
