"""A message's encoded properties, taken apart without decoding the values: pika cannot decode all, nor encode what it has
decoded as it was.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING

from pika.spec import BasicProperties

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HEADERS = BasicProperties.FLAG_HEADERS

_ORDER = {
    BasicProperties.FLAG_CONTENT_TYPE: None,
    BasicProperties.FLAG_CONTENT_ENCODING: None,
    HEADERS: None,
    BasicProperties.FLAG_DELIVERY_MODE: 1,
    BasicProperties.FLAG_PRIORITY: 1,
    BasicProperties.FLAG_CORRELATION_ID: None,
    BasicProperties.FLAG_REPLY_TO: None,
    BasicProperties.FLAG_EXPIRATION: None,
    BasicProperties.FLAG_MESSAGE_ID: None,
    BasicProperties.FLAG_TIMESTAMP: 8,
    BasicProperties.FLAG_TYPE: None,
    BasicProperties.FLAG_USER_ID: None,
    BasicProperties.FLAG_APP_ID: None,
    BasicProperties.FLAG_CLUSTER_ID: None,
}
"""Bytes of each property's value, in AMQP's order; None if it begins with its length."""

_SIZES = dict(zip(b"tbBsuIiflLdTDV", (1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 8, 5, 0), strict=True))
"""Bytes of each type's value; those of the others begin with their length."""


def taken_apart(properties: bytes) -> dict[int, bytes]:
    """The encoded value of each property by its flag; raises ValueError if the encoding is broken."""
    parts: dict[int, bytes] = {}
    try:
        (flags,) = struct.unpack_from(">H", properties)
        at = 2
        for flag, size in _ORDER.items():
            if flags & flag:
                end = at + (_length_of(flag, properties, at) if size is None else size)
                parts[flag] = properties[at:end]
                at = end
    except (struct.error, IndexError):
        raise ValueError("the properties are broken off") from None
    return parts


def put_together(parts: Mapping[int, bytes]) -> bytes:
    """The opposite of :func:`taken_apart`."""
    return struct.pack(">H", sum(parts)) + b"".join(parts[flag] for flag in _ORDER if flag in parts)


def entries(table: bytes) -> dict[bytes, bytes]:
    """The headers by name, each with its type and value as encoded; raises ValueError if the table is broken."""
    try:
        return dict(_entries(table))
    except (struct.error, IndexError):
        raise ValueError("the headers are broken off") from None


def table_of(headers: Mapping[bytes, bytes]) -> bytes:
    """The opposite of :func:`entries`."""
    encoded = b"".join(bytes([len(name)]) + name + value for name, value in headers.items())
    return struct.pack(">I", len(encoded)) + encoded


def number_among(properties: bytes, name: str) -> int | None:
    """The header of this name; None if there is none, or it is no 64-bit number."""
    try:
        value = entries(taken_apart(properties).get(HEADERS, b"")).get(name.encode(), b"")
    except ValueError:
        return None
    return int(struct.unpack_from(">q", value, 1)[0]) if value[:1] == b"l" else None


def _entries(table: bytes) -> Iterator[tuple[bytes, bytes]]:
    at = 4
    end = at + _length(table, 0) if table else 0
    while at < end:
        value = at + 1 + table[at]
        kind = table[value]
        behind = value + 1 + (_SIZES[kind] if kind in _SIZES else 4 + _length(table, value + 1))
        if behind > min(end, len(table)):
            raise IndexError
        yield table[at + 1 : value], table[value:behind]
        at = behind


def _length_of(flag: int, properties: bytes, at: int) -> int:
    return 4 + _length(properties, at) if flag == HEADERS else 1 + properties[at]


def _length(encoded: bytes, at: int) -> int:
    return int(struct.unpack_from(">I", encoded, at)[0])
