"""Plans a reset of offsets for each stream.

Offsets are Kafka's here: that of the next message to be read. The committed offset, that of the last processed message,
is one below.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import attrs

from cobalance.errors import UsageError
from cobalance.limits import check_time
from cobalance.rabbitmq.streams.extent import Extent, read_extents, read_marks, read_offsets_at, read_offsets_since


@attrs.frozen
class Shift:
    """A number of messages forward from the committed offset, or back."""

    by: int


Target = Literal["earliest", "latest"] | int | datetime | Shift | Mapping[str, int]
"""The oldest message, messages published from now on, this message, the first one at or after this time, a number of
messages on, or an offset for each stream.
"""


@attrs.frozen
class StreamReset:
    """The reset of one stream."""

    stream: str
    next: int
    """The next message to be read."""
    asked: int
    """The same before it was limited to messages that the stream has."""
    before: int | None
    """The offset that was committed when this was planned; None if there was none."""
    is_read: bool
    """Whether RabbitMQ knew then that the group has read this stream. If it does not at the reset, it is another one."""

    @property
    def committed(self) -> int:
        """The committed offset to store."""
        return self.next - 1

    @property
    def remark(self) -> str | None:
        """What is to be known of it: that it was limited, or that the group has read another one."""
        found = []
        if self.next != self.asked:
            found.append(f"{self.stream} does not have offset {self.asked}; the nearest is {self.next}.")
        if self.before is not None and not self.is_read:
            found.append(
                f"{self.stream} has offset {self.before}, but RabbitMQ does not know that this group has read it: if it was deleted "
                "and created again, look at what it has now."
            )
        return " ".join(found) or None


def plan(
    target: Target, streams: Sequence[str], committed: Mapping[str, int | None], amqp_url: str, scope: str
) -> list[StreamReset]:
    """Returns a step for each stream. The scope is the group's, by which RabbitMQ knows what it has read.

    Raises:
        UsageError: the target is invalid, a stream has no committed offset to shift, or the target does not name it.
    """
    _check(target)
    read, extents = read_marks(amqp_url, scope, streams), read_extents(amqp_url, streams)
    wanted = _wanted(target, streams, committed, extents, amqp_url)
    nearest = {name: extents[name].nearest(wanted[name]) for name in streams}
    between = {name: at for name, at in nearest.items() if extents[name].begin < at < extents[name].end}
    found = read_offsets_since(amqp_url, between) if between else {}  # not every offset is that of a message
    return [
        StreamReset(name, found.get(name) or nearest[name], wanted[name], committed.get(name), is_read=read[name])
        for name in streams
    ]


def _check(target: object) -> None:
    """A misspelt target must not have an effect: messages would be skipped."""
    there_are = "give 'earliest', 'latest', an offset, a datetime, a Shift, or a dictionary of offsets"
    if isinstance(target, bool) or not isinstance(target, str | int | datetime | Shift | Mapping):
        raise UsageError(f"the target is an object of type {type(target).__name__}: {there_are}")
    if isinstance(target, str) and target not in {"earliest", "latest"}:
        raise UsageError(f"the target is {target!r}: {there_are}")
    if isinstance(target, datetime):
        check_time("the target", target)


def _wanted(
    target: Target,
    streams: Sequence[str],
    committed: Mapping[str, int | None],
    extents: Mapping[str, Extent],
    amqp_url: str,
) -> Mapping[str, int]:
    if isinstance(target, str):
        return {name: extents[name].begin if target == "earliest" else extents[name].end for name in streams}
    if isinstance(target, int):
        return dict.fromkeys(streams, target)
    if isinstance(target, datetime):
        found = read_offsets_at(amqp_url, streams, target)
        return {name: extents[name].end if (at := found[name]) is None else at for name in streams}
    if isinstance(target, Shift):
        return {name: _current(name, committed) + target.by for name in streams}
    return {name: _named(name, target) for name in streams}


def _current(stream: str, committed: Mapping[str, int | None]) -> int:
    offset = committed.get(stream)
    if offset is None:
        raise UsageError(f"{stream!r} has no committed offset to go by: use --to-earliest, --to-latest or --to-offset.")
    return offset + 1


def _named(stream: str, offsets: Mapping[str, int]) -> int:
    if stream not in offsets:
        raise UsageError(f"{stream!r} is given no offset: name it, or leave the stream out")
    return offsets[stream]
