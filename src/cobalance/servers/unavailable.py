"""The one error of this package."""

from cobalance.errors import CobalanceError


class ServerUnavailable(CobalanceError):
    """No Redis or RabbitMQ could be found or started; the message says what was tried and what to install or look at."""
