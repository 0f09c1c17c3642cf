"""Handles messages that were returned because no queue took them: usually the topic is being grown."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.topics.broker import is_being_grown, topic_again

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.rabbitmq.model.topic import Topic
    from cobalance.rabbitmq.publish.confirms import UnconfirmedMessage

LOOK_EVERY_S = 0.05


def newer_layout(
    url: str, asked_for: Topic | str, topic: Topic, timeout_ms: int, is_wanted: Callable[[], bool]
) -> Topic | None:
    """Waits for the layout that follows this one to open, and returns it; or that of a topic that was made anew.

    None if none is being made, the messages are no longer wanted, or the timeout has passed. Blocks.

    Raises:
        ServerError: RabbitMQ cannot be asked.
        TopologyError: what there is now is not what was asked for.
    """
    give_up_at = time.monotonic() + timeout_ms / 1000
    with connected(url, timeout_ms) as admin:
        while True:
            current = topic_again(admin, asked_for, topic)
            if (current.layout, current.partitions) != (topic.layout, topic.partitions):
                return current
            if not is_being_grown(admin, topic) or not is_wanted() or time.monotonic() > give_up_at:
                return None
            time.sleep(LOOK_EVERY_S)


class Returned:
    """Returned messages, kept until it is known where they go. I/O thread only."""

    def __init__(self) -> None:
        self._messages: dict[int, tuple[UnconfirmedMessage, str]] = {}

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, message: UnconfirmedMessage, why: str) -> None:
        """Adds a message that is in no queue, and the reason."""
        message.written = False
        self._messages[message.number] = (message, why)

    @property
    def is_wanted(self) -> bool:
        """Whether any of the messages is still waited for. Any thread."""
        return any(not message.settled for message, _ in list(self._messages.values()))

    def take(self) -> list[tuple[UnconfirmedMessage, str]]:
        """Removes and returns all of them, in the order in which they were sent."""
        messages, self._messages = self._messages, {}
        return [messages[number] for number in sorted(messages)]
