"""The exit codes."""

from __future__ import annotations

from cobalance.errors import (
    CobalanceError,
    DrainTimedOut,
    GroupActive,
    GroupExists,
    NotRabbitMQ,
    NotRedis,
    UnknownGroup,
    Unreachable,
    UsageError,
)

OK, FAILED, USAGE, UNREACHABLE, UNFINISHED = 0, 1, 2, 3, 4
INTERRUPTED = 130
"""128 and the number of SIGINT, as shells have it."""


def exit_code(error: CobalanceError) -> int:
    """A group that is missing, or there already, is a failure: the command itself was in order."""
    from cobalance.servers import ServerUnavailable  # which takes what starts servers along

    if isinstance(error, Unreachable | NotRedis | NotRabbitMQ | ServerUnavailable):
        return UNREACHABLE
    if isinstance(error, UsageError) and not isinstance(error, GroupActive | GroupExists | UnknownGroup):
        return USAGE
    return UNFINISHED if isinstance(error, DrainTimedOut) else FAILED
