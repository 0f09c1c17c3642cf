"""Finds one number among a message's headers, even if others cannot be decoded: those are skipped by their size."""

from __future__ import annotations

import struct

from pika.spec import BasicProperties

_SIZES = dict(zip(b"tbBsuIiflLdTDV", (1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8, 8, 5, 0), strict=True))
"""Bytes of each type's value; those of the others begin with their length."""

_BEFORE_HEADERS = (BasicProperties.FLAG_CONTENT_TYPE, BasicProperties.FLAG_CONTENT_ENCODING)


def number_among(properties: bytes, name: str) -> int | None:
    """The header of this name; None if there is none, or it is no 64-bit number.

    `properties` is their encoding, which begins with the flags.
    """
    try:
        return _find(properties, name.encode())
    except (struct.error, IndexError):
        return None


def _find(encoded: bytes, name: bytes) -> int | None:
    (flags,) = struct.unpack_from(">H", encoded)
    if not flags & BasicProperties.FLAG_HEADERS:
        return None
    at = 2
    for flag in _BEFORE_HEADERS:
        at += 1 + encoded[at] if flags & flag else 0
    end = at + 4 + _length(encoded, at)
    at += 4
    while at < end:
        value = at + 2 + encoded[at]
        kind = encoded[value - 1]
        if encoded[at + 1 : value - 1] == name:
            return int(struct.unpack_from(">q", encoded, value)[0]) if kind == ord("l") else None
        at = value + (_SIZES[kind] if kind in _SIZES else 4 + _length(encoded, value))
    return None


def _length(encoded: bytes, at: int) -> int:
    return int(struct.unpack_from(">I", encoded, at)[0])
