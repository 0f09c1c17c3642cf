"""A process that dies while it changes a topic: what it leaves is what others see of a slow one, too."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pytest

from cobalance.rabbitmq.topics.admin import Admin

CHANGES = (
    "declare",
    "bind",
    "unbind",
    "delete",
    "delete_unused",
    "declare_exchange",
    "declare_attached",
    "delete_exchange",
    "delete_unused_exchange",
)


class Died(Exception):
    """The process is gone."""


@contextmanager
def dying(monkeypatch: pytest.MonkeyPatch, changes: int) -> Iterator[None]:
    """After this many changes to RabbitMQ. What is in the block behind that is not done."""
    left = changes

    def mortal(change: Callable[..., Any]) -> Callable[..., Any]:
        def changing(*arguments: Any) -> Any:
            nonlocal left
            if not left:
                raise Died
            left -= 1
            return change(*arguments)

        return changing

    with monkeypatch.context() as patch, suppress(Died):
        for name in CHANGES:
            patch.setattr(Admin, name, mortal(getattr(Admin, name)))
        yield
