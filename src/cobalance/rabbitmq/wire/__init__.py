"""Connections to RabbitMQ: addresses, TLS, one thread a connection, and what pika reports, as errors."""
