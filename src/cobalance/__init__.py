"""Kafka-style consumer groups for RabbitMQ, and for any other set of resources, without stop-the-world.

When processes come, go, crash or hang, only the surplus moves, and it moves only after its holder has finished and
committed, or a timeout has fired. Everything else never pauses.
"""

__all__: list[str] = []
