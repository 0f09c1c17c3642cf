"""A topic to publish to."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.consumers import new_topic

from cobalance.rabbitmq import Topic


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    """A topic for one test."""
    with new_topic(amqp_url, 4) as it:
        yield it
