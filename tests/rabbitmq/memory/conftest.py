"""Each test here runs on ``memory://`` and, by `make thorough`, on RabbitMQ: both must be observed to do the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.names import unique
from tests.rabbitmq.memory.clients import Place

from cobalance.rabbitmq.wire.address import single_urls


@pytest.fixture(params=["memory", pytest.param("rabbitmq", marks=pytest.mark.thorough)])
def any_url(request: pytest.FixtureRequest) -> str:
    """An AMQP URL."""
    return f"memory://{unique('m')}" if request.param == "memory" else str(request.getfixturevalue("amqp_url"))


@pytest.fixture
def at(any_url: str) -> Iterator[Place]:
    """A RabbitMQ for clients of pika's."""
    place = Place(single_urls(any_url)[0])
    yield place
    place.close()
