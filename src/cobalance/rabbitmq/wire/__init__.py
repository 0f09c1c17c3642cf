"""Connections to RabbitMQ: addresses, TLS, one thread per connection, and pika's failures as our errors."""
