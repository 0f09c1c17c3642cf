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
"""128 plus the number of SIGINT, as in shells."""


def exit_code(error: CobalanceError) -> int:
    """A missing or existing group is a failure, not a usage error: the command itself was valid."""
    from cobalance.servers import ServerUnavailable  # imports what starts servers

    if isinstance(error, Unreachable | NotRedis | NotRabbitMQ | ServerUnavailable):
        return UNREACHABLE
    if isinstance(error, UsageError) and not isinstance(error, GroupActive | GroupExists | UnknownGroup):
        return USAGE
    return UNFINISHED if isinstance(error, DrainTimedOut) else FAILED
