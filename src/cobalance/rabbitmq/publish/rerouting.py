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

LOST_S = 1.0
"""For so long after it was found that no queue takes what is sent to a partition, it is not looked for again."""


def is_same_layout(one: Topic, other: Topic) -> bool:
    return (one.layout, one.partitions) == (other.layout, other.partitions)


def current_topic(
    url: str, asked_for: Topic | str, topic: Topic, timeout_ms: int, is_wanted: Callable[[], bool]
) -> Topic | None:
    """Returns the topic as it is now. While it is being grown, waits until its newer layout is open.

    None if the messages are no longer wanted by then, or the timeout has passed. Blocks.

    Raises:
        ServerError: RabbitMQ cannot be asked.
        TopologyError: what there is now is not what was asked for.
    """
    give_up_at = time.monotonic() + timeout_ms / 1000
    with connected(url, timeout_ms) as admin:
        while True:
            current = topic_again(admin, asked_for, topic)
            if not is_same_layout(current, topic) or not is_being_grown(admin, topic):
                return current
            if not is_wanted() or time.monotonic() > give_up_at:
                return None
            time.sleep(LOOK_EVERY_S)


class Returned:
    """Returned messages, and later ones to the same partitions, kept until it is known where they go. I/O thread only.

    Those to other partitions go on: what is taken meanwhile is in the old layout, all of which is processed before the
    newer one.
    """

    def __init__(self) -> None:
        self._messages: dict[int, tuple[UnconfirmedMessage, str]] = {}
        self._lost: dict[int, tuple[float, str]] = {}
        self.partitions: set[int] = set()
        """Where the messages were sent, or were to be sent."""

    def __bool__(self) -> bool:
        return bool(self._messages)

    def add(self, message: UnconfirmedMessage, why: str = "") -> None:
        """Adds a message that is in no queue, and why it was returned; or one that was not sent."""
        message.written = False
        self._messages[message.number] = (message, why)
        self.partitions.add(message.partition)

    def hold_up(self, message: UnconfirmedMessage, topic: Topic) -> bool:
        """Whether the message has to wait behind those of its partition."""
        return bool(self._messages) and message.route(topic) in self.partitions

    @property
    def is_wanted(self) -> bool:
        """Whether any of the messages is still waited for. Any thread."""
        return any(not message.settled for message in self.messages)

    @property
    def messages(self) -> list[UnconfirmedMessage]:
        """All of them. Any thread."""
        return [message for message, _ in list(self._messages.values())]

    def release(self, partitions: frozenset[int]) -> list[tuple[UnconfirmedMessage, str]]:
        """Removes and returns those of some partitions, and why each was returned, in the order in which they were sent."""
        released = [it for _, it in sorted(self._messages.items()) if it[0].partition in partitions]
        for message, _ in released:
            del self._messages[message.number]
        self.partitions -= partitions
        return released

    def lose(self, partitions: frozenset[int], why: str) -> None:
        """Nothing takes what is sent to these partitions, as far as is known."""
        self._lost |= dict.fromkeys(partitions, (time.monotonic() + LOST_S, why))

    def reason(self, message: UnconfirmedMessage, returned: str) -> str:
        """Why a message that was returned has failed; empty if that is to be looked for."""
        until, why = self._lost.get(message.partition, (0.0, ""))
        return (why or returned) if time.monotonic() < until else ""

    def taken(self, message: UnconfirmedMessage) -> None:
        """A queue has taken the message, so the next one that comes back is looked into."""
        self._lost.pop(message.partition, None)
