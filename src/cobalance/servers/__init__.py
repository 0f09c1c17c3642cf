"""Finds a Redis and a RabbitMQ, or starts private ones, for the demo, the bench and the tests.

Tried in this order: `COBALANCE_REDIS_URL` and `COBALANCE_AMQP_URL`; the machine's own `redis-server` and
`rabbitmq-server`, run privately; containers; and, as root on Debian or Ubuntu, packages installed for the purpose.
"""

from typing import TYPE_CHECKING

from cobalance import lazy

if TYPE_CHECKING:
    from cobalance.servers.choose import (
        GivenServer,
        OwnRabbitMQ,
        OwnRedis,
        RabbitMQServer,
        RedisServer,
        Servers,
        private_rabbitmq,
        private_redis,
        rabbitmq_server,
        redis_server,
        running,
    )
    from cobalance.servers.unavailable import ServerUnavailable
else:
    __getattr__, __dir__ = lazy.exports(
        __name__,
        {
            "cobalance.servers.choose": [
                "GivenServer",
                "OwnRabbitMQ",
                "OwnRedis",
                "RabbitMQServer",
                "RedisServer",
                "Servers",
                "private_rabbitmq",
                "private_redis",
                "rabbitmq_server",
                "redis_server",
                "running",
            ],
            "cobalance.servers.unavailable": ["ServerUnavailable"],
        },
    )

__all__ = [
    "GivenServer",
    "OwnRabbitMQ",
    "OwnRedis",
    "RabbitMQServer",
    "RedisServer",
    "ServerUnavailable",
    "Servers",
    "private_rabbitmq",
    "private_redis",
    "rabbitmq_server",
    "redis_server",
    "running",
]
