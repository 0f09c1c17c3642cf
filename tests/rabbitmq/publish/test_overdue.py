"""Messages that time out."""

from __future__ import annotations

import threading
import time
from typing import Any

from cobalance.rabbitmq.publish.confirms import UnconfirmedMessage
from cobalance.rabbitmq.publish.overdue import Overdue

WITHIN_S = 30


class Withdrawn:
    """Records what was withdrawn, and when."""

    def __init__(self, count: int) -> None:
        self.messages: list[tuple[str, float]] = []
        self._count, self.all = count, threading.Event()

    def __call__(self, message: UnconfirmedMessage) -> None:
        self.messages.append((message.id, time.monotonic()))
        if len(self.messages) == self._count:
            self.all.set()


def message(name: str) -> UnconfirmedMessage:
    properties: Any = None
    return UnconfirmedMessage(lambda _: 0, name, name, b"", properties)


def test_each_has_its_whole_time() -> None:
    """In order, and also the first one after an idle time."""
    withdrawn = Withdrawn(2)
    patience = Overdue(100)
    first, second = message("1"), message("2")
    sent = [time.monotonic()]
    patience.watch(first, withdrawn)
    threading.Event().wait(0.05)
    sent.append(time.monotonic())
    patience.watch(second, withdrawn)
    assert withdrawn.all.wait(WITHIN_S)
    assert [name for name, _ in withdrawn.messages] == ["1", "2"]
    assert all(at - since >= 0.1 for (_, at), since in zip(withdrawn.messages, sent, strict=True))


def test_what_is_settled_is_not_kept() -> None:
    """Nor is the thread, once there is nothing to watch."""
    withdrawn = Withdrawn(1)
    patience = Overdue(50)
    for number in range(1_000):
        patience.watch(message(str(number)), withdrawn)  # not referenced anywhere else
    kept = message("kept")
    patience.watch(kept, withdrawn)
    assert len(patience._begun) == 1
    assert withdrawn.all.wait(WITHIN_S)
    assert [name for name, _ in withdrawn.messages] == ["kept"]
