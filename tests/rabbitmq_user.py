"""A user of RabbitMQ whose permissions change while it is connected."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from tests.names import unique

from cobalance.servers import OwnRabbitMQ


class User:
    """May do anything at first. RabbitMQ asks for a permission when a channel first needs it."""

    def __init__(self, server: OwnRabbitMQ) -> None:
        self._name, self._server = unique("user"), server
        self.url = server.url.replace("guest:guest", f"{self._name}:secret")
        server.control("add_user", self._name, "secret")
        self.permit()

    def permit(self, *, configure: str = ".*", write: str = ".*", read: str = ".*") -> None:
        """May configure, write and read what has such a name."""
        self._server.control("set_permissions", self._name, configure, write, read)

    def forbid(self) -> None:
        """Everything."""
        self._server.control("set_permissions", self._name, "^$", "^$", "^$")

    def delete(self) -> None:
        self._server.control("delete_user", self._name)


@contextmanager
def new_user(server: OwnRabbitMQ) -> Iterator[User]:
    """A user for the length of a ``with``."""
    user = User(server)
    try:
        yield user
    finally:
        user.delete()
