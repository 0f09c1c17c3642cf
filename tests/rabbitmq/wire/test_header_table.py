"""One number among headers of which others cannot be decoded."""

from __future__ import annotations

import struct
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from pika import BasicProperties

from cobalance.rabbitmq.wire.header_table import number_among

NAME = "x-stream-offset"
MORE = (
    b"\x02atT"
    + struct.pack(">Q", 1_700_000_000_000)
    + b"".join(
        b"\x01n" + kind.encode() + bytes(size)
        for kind, size in {"b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4, "l": 8, "d": 8, "V": 0}.items()
    )
)
"""Milliseconds where AMQP has seconds, which pika cannot decode; and numbers as other clients write them."""

VALUES = st.recursive(
    st.sampled_from([None, True, 7, 1 << 40, Decimal("1.5"), "x", b"x", datetime(2026, 1, 1, tzinfo=UTC)]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(["a", NAME]), inner, max_size=2),
    max_leaves=6,
)
HEADERS = st.dictionaries(st.sampled_from(["a", "b", "c", "d", "e"]), VALUES)


def encoded(headers: dict[str, Any], **others: Any) -> bytes:
    return b"".join(BasicProperties(headers=headers, **others).encode())


def with_undecodable(properties: bytes) -> bytes:
    """The same with more headers in front; there are no properties but headers."""
    (length,) = struct.unpack_from(">I", properties, 2)
    return properties[:2] + struct.pack(">I", length + len(MORE)) + MORE + properties[6:]


@given(HEADERS, HEADERS, st.integers(0, (1 << 63) - 1))
def test_a_number_is_found_wherever_it_stands(before: Any, behind: Any, number: int) -> None:
    """Values of all types are skipped, and names inside of them."""
    headers = {**before, NAME: number | 1 << 40, **{name + name: it for name, it in behind.items()}}
    plain = encoded(headers)
    assert number_among(plain, NAME) == number_among(with_undecodable(plain), NAME) == number | 1 << 40
    texts = encoded(headers, content_type="text/plain", content_encoding="gzip", message_id="m")
    assert number_among(texts, NAME) == number | 1 << 40


@given(HEADERS, st.data())
def test_what_is_no_number_or_broken_off(headers: Any, data: st.DataObject) -> None:
    """Has none, and raises nothing."""
    assert number_among(encoded(headers), NAME) is None
    assert number_among(encoded({**headers, NAME: "7"}), NAME) is None
    whole = encoded({**headers, NAME: 1 << 40})
    assert number_among(whole[: data.draw(st.integers(0, len(whole) - 1))], NAME) is None


def test_without_headers() -> None:
    """A message need not have any."""
    assert number_among(b"".join(BasicProperties(message_id="m").encode()), NAME) is None
    assert number_among(b"", NAME) is None
