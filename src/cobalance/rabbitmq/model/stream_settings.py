"""Settings for streams: where a group starts, when it commits offsets, and whether RabbitMQ guards the stream."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, get_args

import attrs

from cobalance.errors import UsageError
from cobalance.limits import check_time
from cobalance.settings import between, flag, number_between

Place = Literal["first", "last", "next"]
Start = Place | int | datetime
"""Where reading starts.

``"first"``: the oldest message. ``"last"``: as RabbitMQ defines it, the chunk that holds the last message, so a few
earlier messages may come, too. ``"next"``: only what is published from now on (Kafka's *latest*). A number: the message
with that offset, or the nearest one. A time with a time zone: the chunk that RabbitMQ wrote at that time, or the next
one; a few earlier messages may come, too.
"""

UnknownOffset = Literal["stop", "first"]


def check_start(value: object) -> None:
    """Raises UsageError unless the value is a valid start."""
    if isinstance(value, datetime):
        check_time("the time to start at", value)
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
    """How a consumer group reads streams. All members should use the same settings; each follows its own.

    The committed offset is that of the last message processed with no gap before it; the next holder starts at
    committed + 1. It is kept in Redis under the tenure's fencing token, and only ``cobalance group reset-offsets``
    lowers it.
    """

    start: Start = attrs.field(default="first", validator=_valid_start)
    """Where to start in a partition without any committed offset. It is resolved to an offset and committed once, so
    that later holders do not resolve it again.
    """

    on_unknown_offset: UnknownOffset | None = attrs.field(default=None, validator=_valid_policy)
    """What to do when the offset is unknown although one may have existed.

    That is the case when Redis has lost data since the group began to read, or when the stream was removed from the
    group for more than a week, after which its offset is forgotten; and when unread messages are gone from the stream.
    RabbitMQ remembers that the group has read: an exchange ``cobalance.read.…`` for each stream that a group reads. It
    is removed with the stream, if the user may write to the stream, and by ``cobalance group delete``. Without the
    permission to declare it, only ``cobalance group create`` shows that a group is new.

    ``"stop"`` halts the partition (OffsetUnknown) until an operator chooses where to continue; ``"first"`` continues at
    the oldest message. The default is ``"first"`` if ``start`` is, else ``"stop"``.
    """

    commit_every: int = attrs.field(default=500, validator=between(1, 1_000_000_000))
    """Commit after this many processed messages …"""

    commit_interval_ms: float = attrs.field(default=1_000.0, validator=number_between(0.1, 86_400_000))
    """… or this long after the first of them, whichever comes first; and always on release."""

    lock: bool = attrs.field(default=False, validator=flag)
    """Hold the exclusive queue ``lock.<group> <stream>`` while consuming. RabbitMQ grants it to one connection at a time,
    so the stream counts as guarded: a member that is cut off from Redis alone goes on. Needs the permission to configure
    queues of that name. A member without this setting holds no lock, and waits for one that does.
    """

    @property
    def stops_on_unknown_offset(self) -> bool:
        """The policy, with its default resolved."""
        return (self.on_unknown_offset or ("first" if self.start == "first" else "stop")) == "stop"
