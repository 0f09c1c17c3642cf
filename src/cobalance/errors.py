"""The tree of all errors.

::

    CobalanceError
    ├── UsageError                  the call cannot be carried out; nothing was done
    │   ├── InvalidSettings         a setting is out of range or contradicts another one
    │   ├── GroupExists             the group to be created exists already
    │   ├── GroupActive             only possible in a group without members
    │   ├── UnexpectedResult        a handler returned something other than None; its message has failed
    │   └── UnknownGroup            no such group in this Redis
    ├── MembershipError             this member cannot do that, or no longer
    │   ├── GroupFailed             the group refuses this member; the message says why
    │   ├── NotHeld                 the resource is not held here; nothing was done
    │   ├── Fenced                  the resource was lost meanwhile; nothing was done
    │   ├── OffsetRegressed         a higher offset is committed; nothing was changed
    │   ├── CommitOutcomeUnknown    the session ended before the commit was answered
    │   └── DrainTimedOut           it left before its work was finished
    ├── IllegalTransition           a bug in Cobalance: an event that the state does not allow
    ├── ServerError                 a server failed to do something; `outcome` says whether it may have done it
    │   ├── Unreachable             no answer, or unable to serve; worth retrying later
    │   ├── AuthenticationRefused   wrong user name or password
    │   ├── PermissionMissing       the user lacks a permission; `command` names it
    │   ├── NotRedis                another kind of server answers there
    │   ├── EvictingPolicy          this Redis drops keys when memory runs short
    │   ├── OutOfMemory             Redis is full and refuses writes
    │   ├── ScriptFailed            a coordinator script ended in an error
    │   ├── ProtocolMismatch        coordinator scripts and members of incompatible versions
    │   ├── NotRabbitMQ             another kind of server answers there
    │   ├── VirtualHostMissing      no such virtual host, or no access to it
    │   ├── ChannelLost             RabbitMQ closed the channel
    │   ├── ChannelLimitReached     RabbitMQ allows no more channels
    │   └── PublishFailed           a message was not confirmed
    ├── OutOfThreads                the system gives this process no thread
    ├── HandlerHung                 a handler ran for longer than it may; its message has failed
    └── TopologyError               RabbitMQ does not have what was expected
        ├── QueueMissing            no such queue
        ├── QueueMismatch           the queue has other arguments
        ├── MessageUnreadable       a message has headers that cannot be read
        ├── TopicMissing            no such topic
        ├── TopicMismatch           the topic exists with other properties
        ├── TopicInUse              the topic still has consumers or messages
        ├── OffsetUnknown           it is unknown where to continue in the stream
        └── Unguarded               nothing at the broker prevents a second consumer

Every message says what happened, where, and what to do about it. None contains a password.
"""

from __future__ import annotations

from typing import Literal

from cobalance.redact import redact

Outcome = Literal["not_executed", "unknown"]
"""Whether an operation certainly did not happen, or may have."""


class CobalanceError(Exception):
    """The root of all errors raised by this library. Secrets are redacted from the message here, whatever raised it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))


def sentence(said: BaseException | str) -> str:
    """Its words, ended, for a text that goes on."""
    text = str(said)
    return text if text.endswith((".", "?")) else f"{text}."


def counted(count: int, noun: str, plural: str | None = None) -> str:
    """So many of them, such as "1 member" and "2,000 members"."""
    return f"{count:,} {noun if count == 1 else plural or f'{noun}s'}"


class UsageError(CobalanceError):
    """The call cannot be carried out and has to be corrected. Nothing was done."""


class InvalidSettings(UsageError):
    """A setting is out of range or contradicts another one."""


class GroupExists(UsageError):
    """The group to be created exists already."""


class GroupActive(UsageError):
    """This is only possible in a group without members."""


class UnexpectedResult(UsageError):
    """A handler returned something other than None, which fails its message; retrying cannot help."""


class UnknownGroup(UsageError):
    """There is no such group in this Redis."""


class MembershipError(CobalanceError):
    """This member cannot do that, or no longer."""


class GroupFailed(MembershipError):
    """The group refuses this member, or its session failed; the message says why."""


class NotHeld(MembershipError):
    """The resource is not held by this member. Nothing was done."""


class Fenced(MembershipError):
    """The resource was lost meanwhile to another member with a higher token. Nothing was done."""


class OffsetRegressed(MembershipError):
    """A higher offset is committed, and offsets never decrease. Nothing was changed."""


class CommitOutcomeUnknown(MembershipError):
    """The session ended before the commit was answered: the offset may or may not have been stored."""


class DrainTimedOut(MembershipError):
    """Running work was given up after the drain timeout or the revocation timeout; the message says which."""


class IllegalTransition(CobalanceError):
    """An event that the state does not allow: a bug in Cobalance. Nothing was changed."""


class ServerError(CobalanceError):
    """A server failed to do something."""

    def __init__(self, message: str = "", *, outcome: Outcome = "not_executed") -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        """``"not_executed"`` if it certainly did not happen, ``"unknown"`` if it may have."""


class Unreachable(ServerError):
    """The server did not answer, or reports that it cannot serve now. Worth retrying later."""


class AuthenticationRefused(ServerError):
    """Wrong or missing user name or password."""


class PermissionMissing(ServerError):
    """The user of the connection may not do this."""

    def __init__(self, message: str = "", *, command: str = "", outcome: Outcome = "not_executed") -> None:
        super().__init__(message, outcome=outcome)
        self.command = command
        """The command, key or channel that is not permitted, if the server named it."""


class NotRedis(ServerError):
    """Something answers at this address, but not Redis."""


class EvictingPolicy(ServerError):
    """This Redis is configured to drop keys when memory runs short, and could drop parts of a group."""


class OutOfMemory(ServerError):
    """Redis has reached its maxmemory and refuses writes."""


class ScriptFailed(ServerError):
    """A coordinator script ended in an error. Its earlier writes remain, so the outcome is unknown."""

    def __init__(self, message: str = "", *, outcome: Outcome = "unknown") -> None:
        super().__init__(message, outcome=outcome)


class ProtocolMismatch(ServerError):
    """The group was created by an incompatible version."""


class NotRabbitMQ(ServerError):
    """Something answers at this address, but not RabbitMQ."""


class VirtualHostMissing(ServerError):
    """There is no such virtual host, or this user may not access it."""


class ChannelLost(ServerError):
    """RabbitMQ closed the channel; unacknowledged messages will be redelivered."""


class ChannelLimitReached(ServerError):
    """RabbitMQ allows no more channels, so this member cannot consume this queue; it consumes the others."""


class PublishFailed(ServerError):
    """RabbitMQ did not confirm a message: it refused it, could not route it, or was lost before it answered."""


class OutOfThreads(CobalanceError):
    """The system gives this process no thread, and has given none for a while."""

    def __init__(self, message: str = "") -> None:
        super().__init__(
            message
            or "The system gives this process no more threads: raise its limit (ulimit -u, TasksMax, a container's pids limit), or start fewer."
        )


class HandlerHung(CobalanceError):
    """A handler ran for longer than ``max_processing_ms``, which fails its message."""


class TopologyError(CobalanceError):
    """RabbitMQ does not have what was expected."""


class QueueMissing(TopologyError):
    """There is no such queue."""


class QueueMismatch(TopologyError):
    """The queue exists with other arguments."""


class MessageUnreadable(TopologyError):
    """A message has headers that cannot be read, such as a time after the year 9999."""


class TopicMissing(TopologyError):
    """There is no such topic."""


class TopicMismatch(TopologyError):
    """The topic exists with other properties."""


class TopicInUse(TopologyError):
    """The topic still has consumers or messages."""


class OffsetUnknown(TopologyError):
    """It is unknown where to continue in a stream: its committed offset may be lost, or the stream no longer has it."""


class Unguarded(TopologyError):
    """Nothing at the broker prevents two consumers of this queue at a time."""
