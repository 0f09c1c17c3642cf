"""Where the commands find the servers."""

from __future__ import annotations

import pytest

from cobalance import servers


@pytest.fixture
def urls(redis_url: str, rabbitmq_server: servers.RabbitMQServer) -> dict[str, str]:
    """The environment variables that name the servers."""
    found = {"COBALANCE_REDIS_URL": redis_url, "COBALANCE_AMQP_URL": rabbitmq_server.url}
    if rabbitmq_server.management_url:
        found["COBALANCE_MANAGEMENT_URL"] = rabbitmq_server.management_url
    return found
