"""The error raised by this package."""

from cobalance.errors import CobalanceError


class ServerUnavailable(CobalanceError):
    """No Redis or RabbitMQ could be found or started. The message says what was tried, and what to install or check."""
