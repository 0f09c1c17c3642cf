"""How often, and how soon, a message whose handler failed is tried again in place: given back, it would come again out of order."""

import attrs

from cobalance.errors import InvalidSettings
from cobalance.settings import between, number_between

MOST_DELAY_MS = 3_600_000


@attrs.frozen
class Retries:
    """Tries beyond the first one, and the pauses before them: each `factor` times the one before, up to a limit.

    A pause ends at once when the partition is asked back, and the message goes to the next holder.
    """

    most: int = attrs.field(default=3, validator=between(0, 1_000_000_000))
    """0: a message that fails once is given up."""
    first_ms: int = attrs.field(default=100, validator=between(0, MOST_DELAY_MS), kw_only=True)
    last_ms: int = attrs.field(default=5_000, validator=between(0, MOST_DELAY_MS), kw_only=True)
    """No pause is longer."""
    factor: float = attrs.field(default=2.0, validator=number_between(1, 1_000), kw_only=True)

    def __attrs_post_init__(self) -> None:
        if self.last_ms < self.first_ms:
            raise InvalidSettings(f"last_ms ({self.last_ms}) is below first_ms ({self.first_ms}): raise the first")

    def delay_ms(self, failures: int) -> float:
        """The pause after the so-manieth failure, counted from 1."""
        try:
            return min(self.first_ms * self.factor ** (failures - 1), self.last_ms)
        except OverflowError:
            return self.last_ms
