"""Queues for replies."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.consumers import channel
from tests.names import unique


@pytest.fixture
def replies(amqp_url: str) -> Iterator[str]:
    """A queue for replies."""
    name = unique("replies")
    with channel(amqp_url) as it:
        it.queue_declare(name)
        yield name
        it.queue_delete(name)


@pytest.fixture
def full(amqp_url: str) -> Iterator[str]:
    """A queue for replies that refuses them, as it holds one already."""
    name = unique("full")
    with channel(amqp_url) as it:
        it.queue_declare(name, arguments={"x-max-length": 1, "x-overflow": "reject-publish"})
        it.basic_publish("", name, b"there")
        yield name
        it.queue_delete(name)
