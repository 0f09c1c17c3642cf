"""``memory://NAME`` for an AMQP URL: a small RabbitMQ inside this process, for tests.

It speaks AMQP 0.9.1 on a port of this machine's own address, so that everything that talks to RabbitMQ talks to it unchanged. What it does
not do is refused with an error that says so; nothing outlives the process.
"""

from cobalance.rabbitmq.memory.server import MemoryRabbitMQ

__all__ = ["MemoryRabbitMQ"]
