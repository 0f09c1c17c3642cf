"""The exit codes."""

from __future__ import annotations

from collections.abc import Sequence

from cobalance.errors import (
    CobalanceError,
    DrainTimedOut,
    GroupActive,
    GroupExists,
    NotRabbitMQ,
    NotRedis,
    ServerError,
    UnknownGroup,
    Unreachable,
    UsageError,
)

OK, FAILED, USAGE, UNREACHABLE, UNFINISHED = 0, 1, 2, 3, 4
INTERRUPTED = 130
"""128 plus the number of SIGINT, as in shells."""


def exit_code(error: CobalanceError) -> int:
    """A missing or existing group is a failure, not a usage error: the command itself was valid."""
    from cobalance.servers import ServerUnavailable  # imports what starts servers

    if isinstance(error, Unreachable | NotRedis | NotRabbitMQ | ServerUnavailable):
        return UNREACHABLE
    if isinstance(error, UsageError) and not isinstance(error, GroupActive | GroupExists | UnknownGroup):
        return USAGE
    return UNFINISHED if isinstance(error, DrainTimedOut) else FAILED


def check_any_read(failures: Sequence[CobalanceError], *, is_any_read: bool) -> int:
    """Of a command that reads all groups: one that cannot be read, or that nobody could have made, hides no other.

    Returns:
        FAILED if none could be read.

    Raises:
        ServerError: that was why.
    """
    if is_any_read or not failures:
        return OK
    for error in failures:
        if isinstance(error, ServerError):
            raise error
    return FAILED
