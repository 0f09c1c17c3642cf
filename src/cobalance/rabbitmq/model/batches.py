"""Batches: several messages of one partition, handed to the handler together."""

import attrs

from cobalance.settings import between

MOST_MESSAGES = 65_535
"""The highest prefetch that AMQP allows."""

MOST_WAIT_MS = 60_000


@attrs.frozen
class Batch:
    """Hands the handler a list of messages of one partition, oldest first.

    A list has `most` messages, or fewer if no more arrive within `within_ms`. It is acknowledged as a whole when the
    handler returns. Once it has failed as often as the retries allow, its messages are handed over one at a time, still
    as lists, so that only the failing one is given up.
    """

    most: int = attrs.field(default=100, validator=between(1, MOST_MESSAGES))
    within_ms: int = attrs.field(default=50, validator=between(0, MOST_WAIT_MS), kw_only=True)
    """How long the first message of a list waits for others."""
