"""Messages of one partition, handed to the handler together."""

import attrs

from cobalance.settings import between

MOST_MESSAGES = 65_535
"""No more are sent ahead."""

MOST_WAIT_MS = 60_000


@attrs.frozen
class Batch:
    """The handler gets a list of messages of one partition, oldest first: `most` of them, or fewer when no more came within the time.

    The list is acknowledged as a whole when the handler returns. When it failed as often as retries allow, its messages are handed
    over one at a time, still as lists, so that only the one that fails is given up.
    """

    most: int = attrs.field(default=100, validator=between(1, MOST_MESSAGES))
    within_ms: int = attrs.field(default=50, validator=between(0, MOST_WAIT_MS), kw_only=True)
    """How long the first message of a list waits for others."""
