"""What is waited for before the channel of an aborted partition is closed: the ends of its handlers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cobalance.rabbitmq.consume.watch import end

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from concurrent.futures import Future

    from cobalance.rabbitmq.consume.slot import Slot
    from cobalance.rabbitmq.consume.watch import Watch
    from cobalance.rabbitmq.wire.connection import BrokerConnection

MOMENT_MS = 500.0
"""How long handlers may take to end, when they are cancelled, before their channel is closed all the same."""


class LastWords:
    """Of one partition. On the engine's thread, unless noted."""

    def __init__(self) -> None:
        self._words: list[Future[None]] = []

    def of_hung(self, slots: Sequence[Slot]) -> None:
        """Waits until the messages of these handlers, which do not end, have arrived where they go."""
        self._words = [word for slot in slots if (word := slot.give_up_hung()) is not None]

    def of_cancelled(self, watches: Sequence[Watch], connection: BrokerConnection) -> None:
        """Waits until these handlers have ended, or have had their moment."""
        running = [it for watch in watches if (it := watch.handler_ended()) is not None]

        def over() -> None:
            for it in running:
                end(it)

        if not running or connection.submit(lambda: connection.call_later(MOMENT_MS, over)):
            self._words += running  # otherwise the channel is gone, too

    def then(self, do: Callable[[], object]) -> None:
        """Calls it when nothing is waited for, which may be at once; more than once, perhaps. Any thread."""
        words = list(self._words)
        if not words:
            do()

        def heard(_: object) -> None:
            if all(word.done() for word in words):
                do()

        for word in words:
            word.add_done_callback(heard)
