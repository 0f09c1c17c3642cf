"""What is published: a message says which one it is, and how long its handler takes."""

from __future__ import annotations

from typing import Self

import attrs


@attrs.frozen(order=True)
class NumberedMessage:
    """One message. Those of a key are published in the order of their numbers, each of them once."""

    key: str
    """Without spaces."""
    number: int
    """1, 2, 3 … within its key."""
    handle_ms: float = attrs.field(default=0.0, eq=False)
    order: str = attrs.field(default="", eq=False)
    """What else its handler is to do, for programs that know more than to take their time."""

    def body(self) -> bytes:
        """The body as published."""
        return f"{self.key} {self.number} {self.handle_ms:.3f} {self.order}".encode()

    @classmethod
    def read(cls, body: bytes) -> Self:
        key, number, handle_ms, order = body.decode().split(" ", 3)
        return cls(key, int(number), float(handle_ms), order)
