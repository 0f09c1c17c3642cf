"""Messages of one partition, handed to the handler together."""

import attrs

from cobalance.errors import InvalidSettings

MOST_WAIT_MS = 60_000


def _valid_most(_: object, __: object, value: int) -> None:
    if type(value) is not int or value < 1:
        raise InvalidSettings(f"a batch has at least 1 message, not {value!r}")


def _valid_wait(_: object, __: object, value: int) -> None:
    if type(value) is not int or not 0 <= value <= MOST_WAIT_MS:
        raise InvalidSettings(f"within_ms is {value!r}: give a whole number from 0 to {MOST_WAIT_MS}")


@attrs.frozen
class Batch:
    """The handler gets a list of messages of one partition, oldest first: `most` of them, or fewer when no more came within the time.

    The list is acknowledged as a whole when the handler returns. When it failed as often as retries allow, its messages are handed
    over one at a time, still as lists, so that only the one that fails is given up.
    """

    most: int = attrs.field(default=100, validator=_valid_most)
    within_ms: int = attrs.field(default=50, validator=_valid_wait, kw_only=True)
    """How long the first message of a list waits for others."""
