"""Parses what Redis sends outside of script replies: stream entries and published hints."""

from __future__ import annotations

import re

from cobalance.coordinator.transport import HINT_DIGITS, RESYNC, Reply

_NUMBER = re.compile(rb"-?\d{1,%d}" % HINT_DIGITS)


def read_entries(reply: Reply) -> list[tuple[str, dict[str, str]]]:
    """The entries of an XRANGE reply as (id, fields)."""
    return [(_text(entry[0]), _fields(entry[1])) for entry in _items(reply) if isinstance(entry, list)]


def hint_version(message: bytes) -> int:
    """The number in a hint. Anything else on the channel is treated as "ask": one request too many does no harm."""
    return int(message) if _NUMBER.fullmatch(message) else RESYNC


def _fields(reply: Reply) -> dict[str, str]:
    words = [word.decode(errors="replace") if type(word) is bytes else str(word) for word in _items(reply)]
    return dict(zip(words[::2], words[1::2], strict=True))


def _items(reply: Reply) -> list[Reply]:
    return reply if isinstance(reply, list) else []


def _text(word: Reply) -> str:
    return word.decode(errors="replace") if isinstance(word, bytes) else str(word)
