"""Encodes messages for AMQP on the caller's thread, so that the caller gets the error for what AMQP cannot hold.

Later changes to the caller's headers do not affect the message.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from decimal import Decimal
from typing import Any

from pika.spec import BasicProperties

from cobalance.errors import UsageError

Body = bytes | bytearray | memoryview | str
"""Text is sent as UTF-8."""

MAX_NAME_BYTES = 255
_COPIES = ("CC", "BCC")

_DEPTH = 8
"""How deep to search for the offending value: headers that contain themselves have no bottom."""

_HOLDS = (
    "AMQP holds text, bytes, True and False, whole numbers of 64 bits, Decimals of up to nine digits, datetimes since 1970, None, and "
    f"lists and dictionaries of these, whose names are text of up to {MAX_NAME_BYTES} bytes"
)


FRAME_OVERHEAD = 20
"""Bytes in a properties frame besides the properties."""


class Encoded(BasicProperties):
    """Properties that are already encoded; pika sends the bytes as they are."""

    # Whatever wraps pika's channels, such as OpenTelemetry's instrumentation of pika, reads these, and may set them, to no effect.
    headers: Any = None
    content_type = content_encoding = delivery_mode = priority = correlation_id = reply_to = None
    expiration = message_id = timestamp = type = user_id = app_id = cluster_id = None

    has_decimal = False
    """Whether a header has a Decimal, as far as known: RabbitMQ 3 closes the connection over one on its way to a stream."""

    def __init__(self, properties: BasicProperties | bytes) -> None:
        self._bytes = properties if isinstance(properties, bytes) else b"".join(properties.encode())

    @property
    def size(self) -> int:
        """Size in bytes."""
        return len(self._bytes)

    def fits(self, frame_max: int) -> bool:
        """Whether RabbitMQ takes them: it closes the connection over a larger frame. 0 stands for any size."""
        return not 0 < frame_max < self.size + FRAME_OVERHEAD

    def check_fits(self, frame_max: int, place: str) -> None:
        """Raises UsageError unless they fit."""
        if not self.fits(frame_max):
            raise UsageError(
                f"the headers take {self.size:,} bytes, more than the {frame_max - FRAME_OVERHEAD:,} that RabbitMQ at {place} "
                "takes in one frame: send such data in the body"
            )

    def encode(self) -> list[bytes]:
        """Called by pika, which adds the frame header."""
        return [self._bytes]


def encode_properties(properties: BasicProperties, headers: Mapping[str, Any] | None) -> Encoded:
    """Encodes the properties with these headers; raises UsageError for headers that AMQP cannot hold, or RabbitMQ does
    not take: it would close the channel, with all messages under way on it.
    """
    if headers is not None and not isinstance(headers, Mapping):
        raise UsageError(f"the headers are an object of type {type(headers).__name__}: give a dictionary. {_HOLDS}.")
    properties.headers = dict(headers) if headers else None
    for name in _COPIES:
        if headers and name in headers:
            raise UsageError(
                f"the headers have {name!r}: RabbitMQ sends copies to the routing keys there, and confirms the message if only a copy has a "
                "queue. Publish each copy by itself, or use another name"
            )
    try:
        encoded = Encoded(properties)
    except Exception:
        # pika raises whatever its encoding trips over, RecursionError included, and trips over it every time. A signal
        # handler's error comes once.
        if _can_encode(properties):
            raise
        unfit = _unfit("headers", properties.headers, _DEPTH)
    else:
        encoded.has_decimal = _has_decimal(properties.headers or {})
        return encoded
    raise UsageError(f"the {unfit}. {_HOLDS}.")  # Outside the except block: pika's message may quote the value.


def _has_decimal(headers: Mapping[str, Any]) -> bool:
    left: list[Any] = [headers]
    while left:
        value = left.pop()
        if isinstance(value, Decimal):
            return True
        if isinstance(value, dict):
            left.extend(value.values())
        elif isinstance(value, list):
            left.extend(value)
    return False


def _can_encode(properties: BasicProperties) -> bool:
    try:
        Encoded(properties)
    except Exception:  # noqa: BLE001 -- see above
        return False
    return True


def encode_body(body: Body) -> bytes:
    """Encodes a body; raises UsageError unless it is bytes-like or text."""
    return bytes(body) if isinstance(body, bytearray | memoryview) else encode_text("body", body)


def encode_text(what: str, text: bytes | str) -> bytes:
    """Encodes text as UTF-8; raises UsageError unless it is bytes or text."""
    encoded = text if isinstance(text, bytes) else _utf8(text)
    if encoded is None:
        raise UsageError(
            f"the {what} is an object of type {type(text).__name__}: give bytes, or text that is valid Unicode"
        )
    return encoded


def _unfit(path: str, value: Any, depth: int) -> str:
    """Describes the first value that cannot be encoded, and where it is."""
    if isinstance(value, dict) and (unfit_name := _unfit_name(path, value)):
        return unfit_name
    places = _places(value) if depth else ()
    at = next((at for at in places if not can_hold(value[at])), None)
    if at is None:  # The value itself does not fit, or it is nested too deeply.
        return f"{path} is an object of type {type(value).__name__} that AMQP cannot hold"
    return _unfit(f"{path}[{at!r}]", value[at], depth - 1)


def _places(value: Any) -> Iterable[Any]:
    """The keys or indexes of a dictionary or list."""
    return value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()


def _unfit_name(path: str, table: dict[Any, Any]) -> str | None:
    for name in table:
        encoded = _utf8(name)
        if not isinstance(name, str):
            return f"{path} have a name of type {type(name).__name__}"
        if encoded is None:
            return f"{path} have a name that is no text"
        if len(encoded) > MAX_NAME_BYTES:
            return f"{path} have a name of {len(encoded)} bytes"
    return None


def can_hold(value: Any) -> bool:
    """Whether this can be the value of a header."""
    try:
        BasicProperties(headers={"": value}).encode()
    except Exception:  # noqa: BLE001 -- see above
        return False
    return True


def _utf8(text: object) -> bytes | None:
    try:
        return text.encode() if isinstance(text, str) else None
    except UnicodeEncodeError:
        return None
