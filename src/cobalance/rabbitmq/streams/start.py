"""Resolves a start to the offset before it, which is committed, so that every holder starts there."""

from datetime import datetime

from cobalance.errors import OffsetUnknown
from cobalance.rabbitmq.model.stream_settings import Start
from cobalance.rabbitmq.streams.continuity import Undelivered
from cobalance.rabbitmq.streams.position import BEFORE_FIRST
from cobalance.rabbitmq.streams.probe import first_offset, last_chunk, last_offset, offset_at, offset_since
from cobalance.rabbitmq.wire.connection import BrokerConnection
from cobalance.threads.wakeup import result_of


async def offset_before(connection: BrokerConnection, stream: str, start: Start) -> int:
    """The offset after which reading starts; at most that of the last message.

    Raises:
        ChannelLost: RabbitMQ was lost before it answered, or delivers nothing though the stream is not empty.
    """
    try:
        return await _look_up(connection, stream, start)
    except Undelivered as it:  # the first message may be long in coming, and nobody would know that it was to be read
        if start not in {"first", "next"}:
            raise
        return BEFORE_FIRST if start == "first" else it.count - 1


async def _look_up(connection: BrokerConnection, stream: str, start: Start) -> int:
    if start == "first":
        found = await result_of(first_offset(connection, stream))
        return BEFORE_FIRST if found is None else found - 1
    if start == "last":
        found = await result_of(last_chunk(connection, stream))
        return BEFORE_FIRST if found is None else found - 1
    end = await result_of(
        last_offset(connection, stream)
    )  # before looking up the time: messages published in between would be skipped
    if end is None:
        return BEFORE_FIRST
    if isinstance(start, datetime):
        found = await result_of(offset_at(connection, stream, start))
        return end if found is None else found - 1
    if isinstance(start, int) and start <= end:  # the offset itself may be none of a message's
        found = await result_of(offset_since(connection, stream, start))
        return (start if found is None else found) - 1
    return end


def no_offset(stream: str) -> OffsetUnknown:
    """The error that there is no offset to start after, and no start may be chosen."""
    return OffsetUnknown(
        f"No offset of stream {stream!r} is known, though there may have been one: Redis has lost data, a stream was removed "
        f"from the group for more than a week, or this user may not declare the exchange in RabbitMQ that tells new groups. Say where to begin, "
        "or use on_unknown_offset='first'."
    )
