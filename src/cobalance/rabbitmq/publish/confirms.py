"""Messages in flight to the broker, and the outcome of each."""

from __future__ import annotations

from collections.abc import Callable
from itertools import takewhile

import attrs

from cobalance.errors import PublishFailed
from cobalance.rabbitmq.model.encoding import Encoded
from cobalance.rabbitmq.model.outcomes import Outcome
from cobalance.rabbitmq.model.topic import Topic
from cobalance.threads.gate import Gate


@attrs.define(eq=False)
class UnconfirmedMessage:
    """One message, from `publish` to its confirm."""

    route: Callable[[Topic], int] = attrs.field(repr=False)
    """Its partition in a given layout of the topic."""
    mark: str
    """Unique; identifies the message if the broker returns it."""
    id: str
    """The message id, by which consumers can recognize a duplicate."""
    body: bytes = attrs.field(repr=False)
    properties: Encoded = attrs.field(repr=False)
    outcome: Outcome = attrs.field(factory=Outcome, repr=False)
    watched: bool = True
    """Whether the publisher's call waits for it and reports its failure."""
    is_timed: bool = False
    """The publisher's thread ends it when its time is up; otherwise its call does."""
    partition: int = -1
    """Its partition in the layout known last."""
    routing_key: str = ""
    """What it was sent under last."""
    due: float = 0.0
    """When it fails if it is not confirmed by then, on the monotonic clock."""
    number: int = 0
    """Its place in the order in which messages were sent."""
    written: bool = False
    """Handed to the connection: from here on only the broker knows the outcome."""
    sent_again: bool = False
    """It came back, the topic had the same layout, and it was sent once more."""
    settled: bool = False
    """The outcome is decided."""
    withdrawn: bool = False
    """Its caller does not wait for it any more, so it is not handed over from here on."""
    is_inside: bool = False
    """It was given a place in the window."""
    entry: Gate | None = attrs.field(default=None, repr=False)
    """Opens when it is given its place, if its caller waits for that."""
    ended: Gate = attrs.field(factory=Gate, repr=False)
    """Opens when its outcome has been told."""


class Confirms:
    """What one channel has sent and the broker has not confirmed, by sequence number. I/O thread only."""

    def __init__(self) -> None:
        self._sent = 0
        self._open: dict[int, UnconfirmedMessage] = {}
        self._returned: dict[str, str] = {}

    def sent(self, message: UnconfirmedMessage) -> None:
        """Records a message as the next one handed to the channel."""
        self._sent += 1
        self._open[self._sent] = message

    def returned(self, mark: str, why: str) -> None:
        """The broker could not route the message. Its confirm is still to come and means nothing then."""
        self._returned[mark] = why

    def settle(self, tag: int, *, multiple: bool, settle: Callable[[UnconfirmedMessage, str | None], None]) -> None:
        """Reports the messages of one confirm, in order: each with None, or with the reason it was returned."""
        for number in list(takewhile(tag.__ge__, self._open)) if multiple else [tag]:
            message = self._open.pop(number)
            settle(message, self._returned.pop(message.mark, None))

    @property
    def outstanding(self) -> bool:
        """Whether any of them is unsettled. One whose time was up is settled, though its confirm may still come."""
        return any(not message.settled for message in self._open.values())

    def abandon(self) -> list[UnconfirmedMessage]:
        """Removes and returns everything unconfirmed, in order."""
        messages, self._open = list(self._open.values()), {}
        return messages


def refused(message: UnconfirmedMessage, why: str) -> PublishFailed:
    """The broker does not have the message."""
    return PublishFailed(
        f"RabbitMQ did not take a message for partition {message.partition}: {why}.", outcome="not_executed"
    )


def unconfirmed(message: UnconfirmedMessage, why: str) -> PublishFailed:
    """The broker may have the message."""
    return PublishFailed(
        f"It is unknown whether RabbitMQ has a message for partition {message.partition} (message id "
        f"{message.id}): {why}. Publishing it again may make it two.",
        outcome="unknown",
    )
