"""What there is to know of many streams, such as their first and last offsets, read concurrently, for the command line."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import datetime
from typing import Any

import attrs

from cobalance.rabbitmq.streams.continuity import Undelivered
from cobalance.rabbitmq.streams.probe import first_offset, last_offset, offset_at, offset_since
from cobalance.rabbitmq.streams.reading_mark import is_marked
from cobalance.rabbitmq.topics.admin import connected
from cobalance.rabbitmq.wire.connection import BrokerConnection

AT_ONCE = 100
"""Concurrent probes, each on a channel of its own."""

Question = Callable[[BrokerConnection, str], Future[Any]]


@attrs.frozen
class Extent:
    """The offsets of a stream's first and last message; None if it is empty."""

    first: int | None
    last: int | None

    @property
    def begin(self) -> int:
        """The offset at which reading from the beginning starts."""
        return 0 if self.first is None else self.first

    @property
    def end(self) -> int:
        """The offset that the next message will have, or a lower bound of it."""
        return 0 if self.last is None else self.last + 1

    def nearest(self, offset: int) -> int:
        """The offset, limited to the range of the stream."""
        return min(max(offset, self.begin), self.end)


def streams_among(
    amqp_url: str, names: Iterable[str], *, timeout_ms: int = 10_000, within_ms: int = 60_000
) -> dict[str, bool]:
    """Whether each queue is a stream; queues that do not exist are left out. `within_ms` is for all of them."""
    give_up_at = time.monotonic() + within_ms / 1000
    with connected(amqp_url, min(timeout_ms, within_ms), give_up_at=give_up_at) as admin:
        return {name: admin.kind(name) == "stream" for name in names if admin.exists(name)}


def read_marks(amqp_url: str, scope: str, streams: Iterable[str]) -> dict[str, bool]:
    """Whether RabbitMQ knows that the group of this scope has read each stream."""
    with _asking(amqp_url) as ask:
        return dict(ask(lambda connection, stream: is_marked(connection, scope, stream), list(streams)))


def read_extents(amqp_url: str, streams: Iterable[str]) -> dict[str, Extent]:
    names = list(streams)
    with _asking(amqp_url) as ask:
        first, last = ask(first_offset, names), ask(last_offset, names)
    return {name: Extent(first[name], last[name]) for name in names}


def read_ends(amqp_url: str, streams: Iterable[str]) -> dict[str, int | None]:
    """The offset of each stream's last message; None if it is empty. Left out is what RabbitMQ delivers nothing of, though
    it counts messages.
    """
    with _asking(amqp_url, leave_out=Undelivered) as ask:
        return dict(ask(last_offset, list(streams)))


def read_offsets_at(amqp_url: str, streams: Iterable[str], when: datetime) -> dict[str, int | None]:
    """See :func:`cobalance.rabbitmq.streams.probe.offset_at`, for each stream."""
    with _asking(amqp_url) as ask:
        return dict(ask(lambda connection, stream: offset_at(connection, stream, when), list(streams)))


def read_offsets_since(amqp_url: str, offsets: Mapping[str, int]) -> dict[str, int | None]:
    """See :func:`cobalance.rabbitmq.streams.probe.offset_since`, for each stream."""
    with _asking(amqp_url) as ask:
        return dict(ask(lambda connection, stream: offset_since(connection, stream, offsets[stream]), list(offsets)))


@contextmanager
def _asking(
    amqp_url: str, leave_out: type[Exception] | tuple[()] = ()
) -> Iterator[Callable[[Question, list[str]], Mapping[str, Any]]]:
    connection = BrokerConnection(amqp_url, "cobalance offsets")
    connection.connect()

    def ask(question: Question, streams: list[str]) -> Mapping[str, Any]:
        found: dict[str, Any] = {}
        for start in range(0, len(streams), AT_ONCE):
            asked = {name: question(connection, name) for name in streams[start : start + AT_ONCE]}
            found |= {
                name: answer.result() for name, answer in asked.items() if not isinstance(answer.exception(), leave_out)
            }
        return found

    try:
        yield ask
    finally:
        connection.close()
