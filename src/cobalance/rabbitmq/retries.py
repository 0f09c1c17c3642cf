"""How often, and how soon, a message whose handler failed is tried again in place: given back, it would come again out of order."""

from typing import Any

import attrs

from cobalance.errors import InvalidSettings

MOST_DELAY_MS = 3_600_000


def _valid_count(_: object, __: object, value: int) -> None:
    if type(value) is not int or value < 0:
        raise InvalidSettings(f"retries are counted from 0, so {value!r} is not a number of them")


def _valid_delay(_: object, attribute: "attrs.Attribute[Any]", value: int) -> None:
    if type(value) is not int or not 0 <= value <= MOST_DELAY_MS:
        raise InvalidSettings(f"{attribute.name} is {value!r}: give a whole number from 0 to {MOST_DELAY_MS}")


@attrs.frozen
class Retries:
    """Tries beyond the first one, and the pauses before them: each `factor` times the one before, up to a limit.

    A pause ends at once when the partition is asked back, and the message goes to the next holder.
    """

    most: int = attrs.field(default=3, validator=_valid_count)
    """0: a message that fails once is given up."""
    first_ms: int = attrs.field(default=100, validator=_valid_delay, kw_only=True)
    last_ms: int = attrs.field(default=5_000, validator=_valid_delay, kw_only=True)
    """No pause is longer."""
    factor: float = attrs.field(default=2.0, kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.factor < 1:
            raise InvalidSettings(f"factor is {self.factor!r}: pauses that become shorter help nobody; give at least 1")
        if self.last_ms < self.first_ms:
            raise InvalidSettings(f"last_ms ({self.last_ms}) is below first_ms ({self.first_ms}): raise the first")

    def delay_ms(self, failures: int) -> float:
        """The pause after the so-manieth failure, counted from 1."""
        try:
            return min(self.first_ms * self.factor ** (failures - 1), self.last_ms)
        except OverflowError:
            return self.last_ms
