"""``memory://NAME`` as an AMQP URL: a small RabbitMQ inside this process, for tests.

It speaks AMQP 0.9.1 on a local port, so every client of RabbitMQ can use it unchanged. Features that it lacks are
refused with an error that says so. Nothing outlives the process.
"""

from cobalance.rabbitmq.memory.server import MemoryRabbitMQ

__all__ = ["MemoryRabbitMQ"]
