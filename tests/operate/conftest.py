"""Groups under observation, on real servers."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.consumers import Place, new_topic, place

from cobalance import Topic


@pytest.fixture(params=["memory", "redis"])
def here(request: pytest.FixtureRequest, amqp_url: str) -> Iterator[Place]:
    """A group in this process, and one in Redis."""
    url = request.getfixturevalue("redis_url") if request.param == "redis" else None
    with place(amqp_url, url) as it:
        yield it


@pytest.fixture
def topic(amqp_url: str) -> Iterator[Topic]:
    with new_topic(amqp_url, partitions=2) as it:
        yield it
