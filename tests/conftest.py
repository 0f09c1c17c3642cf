"""Real servers for the tests. One that cannot be found or started is an error, never a skip."""

from collections.abc import Iterator

import pytest

from cobalance import servers


@pytest.fixture(scope="session")
def redis_server() -> Iterator[servers.RedisServer]:
    """The Redis all tests share; a test that stops or empties its server takes `private_redis`."""
    server = servers.redis_server()
    yield server
    server.close()


@pytest.fixture(scope="session")
def redis_url(redis_server: servers.RedisServer) -> str:
    """Where the shared Redis listens."""
    return redis_server.url


@pytest.fixture(scope="session")
def rabbitmq_server() -> Iterator[servers.RabbitMQServer]:
    """The RabbitMQ all tests share, with its management API if we start it; see `private_rabbitmq` for the others."""
    server = servers.rabbitmq_server(management=True)
    yield server
    server.close()


@pytest.fixture(scope="session")
def amqp_url(rabbitmq_server: servers.RabbitMQServer) -> str:
    """Where the shared RabbitMQ listens."""
    return rabbitmq_server.url


@pytest.fixture
def private_redis() -> Iterator[servers.OwnRedis]:
    """A Redis for one test alone, to stop, freeze, kill or empty."""
    server = servers.private_redis()
    yield server
    server.close()


@pytest.fixture(scope="module")
def private_rabbitmq() -> Iterator[servers.OwnRabbitMQ]:
    """A RabbitMQ for one test module alone, to stop, freeze, kill or empty; leave it running."""
    server = servers.private_rabbitmq()
    yield server
    server.close()
