"""What a handler is given at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.rabbitmq.partition.key_order import Key
from cobalance.redact import printable

if TYPE_CHECKING:
    from collections.abc import Callable

    from cobalance.rabbitmq.partition.delivery import Delivery


NO_KEY = Key(None, 0)


@attrs.define(eq=False)
class Parcel:
    """One message, or a batch."""

    deliveries: tuple[Delivery, ...]
    failures: int = 0
    key: Key = NO_KEY
    """Parcels with the same key wait for each other, where order is kept by key."""
    flaw: Exception | None = None
    """What it fails with before a handler is called: its key cannot be found."""
    _unsettled: list[None] = attrs.field(factory=lambda: [None], init=False)

    @property
    def tag(self) -> int:
        """The delivery tag of the first message."""
        return self.deliveries[0].delivery_tag

    @property
    def is_settled(self) -> bool:
        """Whether settling it was requested."""
        return not self._unsettled

    def settle(self) -> bool:
        """True for the first caller: the handler that ended after all, or whatever gave the message up. Any thread."""
        try:
            self._unsettled.pop()
        except IndexError:
            return False
        return True

    def drop(self, is_settled: Callable[[Delivery], bool]) -> bool:
        """Drops the messages that the program has settled; False if none is left, which settles the parcel."""
        open_ = tuple(it for it in self.deliveries if not is_settled(it))
        if open_:
            self.deliveries = open_
        else:
            self.settle()
        return bool(open_)

    def __str__(self) -> str:
        first = self.deliveries[0]
        if len(self.deliveries) > 1:
            return f"a batch of {len(self.deliveries)} messages of {first.queue}"
        name = first.properties.message_id or f"number {first.delivery_tag} of the tenure"
        return f"message {printable(name)} of {first.queue}"
