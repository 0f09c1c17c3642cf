"""Where a group begins in a stream, when its offsets are committed, and whether RabbitMQ guards it: the user's choices."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

import attrs

from cobalance.errors import UsageError
from cobalance.settings import between, flag, number_between

Place = Literal["first", "last", "next"]
Start = Place | int | datetime
"""Where reading begins.

``"first"``: the oldest message there is. ``"last"``: RabbitMQ's, the chunk in which the last message lies, so a few before it may
come, too. ``"next"``: what is published from now on (Kafka's *latest*). A number: the message with that offset, or the nearest
there is. A time, with a time zone: the chunk that RabbitMQ wrote then, or next; a few messages from before may come, too.
"""

UnknownOffset = Literal["stop", "first"]


def check_start(value: object) -> None:
    """Raises UsageError unless it is a start."""
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise UsageError(f"The time {value} to start at has no time zone: give one, e.g. datetime.now(UTC).")
    elif not (isinstance(value, str) and value in get_args(Place)) and (type(value) is not int or value < 0):
        raise UsageError(
            f"A stream cannot be read from {value!r}: give 'first', 'last', 'next', an offset, or a time with its time zone."
        )


def _valid_start(_: object, __: object, value: object) -> None:
    check_start(value)


def _valid_policy(_: object, __: object, value: object) -> None:
    if value not in (None, *get_args(UnknownOffset)):
        raise UsageError(f"on_unknown_offset is {value!r}: give 'stop' or 'first'.")


@attrs.frozen(kw_only=True)
class StreamSettings:
    """How a consumer group treats streams. All members should agree; each goes by its own.

    The committed offset is that of the last message processed without a gap before it: whoever comes next begins at committed + 1.
    It is kept in Redis, under the tenure's fencing token, and never falls but by ``cobalance group reset-offsets``.
    """

    start: Start = attrs.field(default="first", validator=_valid_start)
    """Where a partition begins in which the group has never committed anything. What that means is looked up and committed once, so
    that no later holder decides it anew."""

    on_unknown_offset: UnknownOffset | None = attrs.field(default=None, validator=_valid_policy)
    """What to do when no offset is known though there may have been one: Redis has lost data since the group began to read, which RabbitMQ
    remembers (an exchange ``cobalance.read.…`` for each stream that a group reads; without the permission to declare it, only
    ``cobalance group create`` says that a group is new; it goes with the stream, if the user may write to that, and with
    ``cobalance group delete``), or a stream of the group was removed for more than a week, after which
    its offset is forgotten; and when messages that were not read are gone from the stream.
    ``"stop"`` halts the partition (OffsetUnknown) until an operator has said where to go on, ``"first"`` goes on at the oldest message
    there is. Not given, it is ``"first"`` if that is where to start, else ``"stop"``."""

    commit_every: int = attrs.field(default=500, validator=between(1, 1_000_000_000))
    """A commit is sent when so many more messages are processed …"""

    commit_interval_ms: float = attrs.field(default=1_000.0, validator=number_between(0.1, 86_400_000))
    """… or so long after the first of them; and always with the release."""

    lock: bool = attrs.field(default=False, validator=flag)
    """Holds the exclusive queue ``lock.<stream>`` while consuming. RabbitMQ gives that to one connection at a time, so the stream counts
    as guarded: who is cut off from Redis alone goes on. It takes the permission to configure queues of that name."""

    @property
    def stops_on_unknown_offset(self) -> bool:
        """The policy, with its default."""
        return (self.on_unknown_offset or ("first" if self.start == "first" else "stop")) == "stop"
