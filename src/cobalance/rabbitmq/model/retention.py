"""How long a stream keeps messages, read or not."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

import attrs

from cobalance.errors import UsageError
from cobalance.rabbitmq.model.queues import Argument

AGE, BYTES, SEGMENT = "x-max-age", "x-max-length-bytes", "x-stream-max-segment-size-bytes"


def _valid_age(_: object, __: object, value: str | None) -> None:
    if value is not None and not re.fullmatch(r"[1-9]\d*[YMDhms]", value):
        raise UsageError(
            f"max_age is {value!r}: write it as RabbitMQ does, e.g. 7D, 12h, 30m or 90s (Y, M, D, h, m, s)."
        )


def _positive(_: object, attribute: attrs.Attribute[int | None], value: int | None) -> None:
    if value is not None and (type(value) is not int or value < 1):
        raise UsageError(f"{attribute.name} is {value!r}: give a whole number above 0.")


@attrs.frozen(kw_only=True)
class Retention:
    """How long a stream keeps messages, by age and size. Without limits it keeps everything.

    RabbitMQ drops the oldest segment when it is too old or the stream is too large.
    """

    max_age: str | None = attrs.field(default=None, validator=_valid_age)
    """Such as ``7D``, ``12h`` or ``30m``."""
    max_bytes: int | None = attrs.field(default=None, validator=_positive)
    segment_bytes: int | None = attrs.field(default=None, validator=_positive)
    """Size of a segment, the unit that is dropped; the newest one never is. RabbitMQ's default is 500 MB."""

    @property
    def arguments(self) -> dict[str, Argument]:
        """The x-arguments for the declaration."""
        limits = {AGE: self.max_age, BYTES: self.max_bytes, SEGMENT: self.segment_bytes}
        return {name: value for name, value in limits.items() if value is not None}

    @classmethod
    def read(cls, arguments: Mapping[str, Argument]) -> Self:
        """Reads the limits from a stream's x-arguments."""
        age, size, segment = (arguments.get(name) for name in (AGE, BYTES, SEGMENT))
        return cls(
            max_age=None if age is None else str(age),
            max_bytes=None if size is None else int(size),
            segment_bytes=None if segment is None else int(segment),
        )
