"""Everything that can go wrong, as one tree.

::

    CobalanceError
    ├── UsageError                  what was asked for cannot be; nothing was done
    │   ├── InvalidSettings         a setting is out of range, or contradicts another
    │   ├── GroupExists             the group to be created is there already
    │   ├── GroupActive             that takes a group without members
    │   ├── UnexpectedResult        a handler returned something; its message has failed
    │   └── UnknownGroup            no such group in this Redis
    ├── MembershipError             this member cannot do that, or not any more
    │   ├── GroupFailed             the group refuses this member; the message says why
    │   ├── NotHeld                 the resource is not held here; nothing was done
    │   ├── Fenced                  the resource was lost meanwhile; nothing was done
    │   ├── OffsetRegressed         a higher offset is committed; nothing was changed
    │   ├── CommitOutcomeUnknown    the session ended before the commit was answered
    │   └── DrainTimedOut           it left before its work was finished
    ├── IllegalTransition           a bug of ours: an event that its state does not allow
    ├── ServerError                 a server did not do what was asked of it; `outcome` says whether it may have
    │   ├── Unreachable             no answer, or not now; worth trying again later
    │   ├── AuthenticationRefused   wrong user name or password
    │   ├── PermissionMissing       the user may not do this; `command` names it
    │   ├── NotRedis                something else answers there
    │   ├── EvictingPolicy          this Redis would drop keys to save memory
    │   ├── OutOfMemory             Redis is full and refuses writes
    │   ├── ScriptFailed            a coordinator script ended in an error
    │   ├── ProtocolMismatch        coordinator scripts and members of versions that do not fit together
    │   ├── NotRabbitMQ             something else answers there
    │   ├── VirtualHostMissing      no such virtual host, or not for this user
    │   ├── ChannelLost             RabbitMQ closed the channel
    │   ├── ChannelLimitReached     RabbitMQ allows no more channels
    │   └── PublishFailed           a message was not confirmed
    ├── HandlerHung                 a handler ran for longer than it may; its message has failed
    └── TopologyError               what RabbitMQ has is not what was expected
        ├── QueueMissing            no such queue
        ├── QueueMismatch           the queue has other arguments
        ├── MessageUnreadable       a message has headers that cannot be read
        ├── TopicMissing            no such topic
        ├── TopicMismatch           the topic was made otherwise
        ├── TopicInUse              the topic still has consumers or messages
        ├── OffsetUnknown           nobody knows where in the stream to go on
        └── Unguarded               nothing at the broker keeps two consumers apart

Every message says what happened, where, and what to do about it; none ever holds a password.
"""

from __future__ import annotations

from typing import Literal

from cobalance.redact import redact

Outcome = Literal["not_executed", "unknown"]
"""Whether an operation definitely did not happen, or may have."""


class CobalanceError(Exception):
    """The root of all errors raised by this library. Secrets are redacted from the message here, whatever raised it."""

    def __init__(self, message: str = "") -> None:
        super().__init__(redact(message))


class UsageError(CobalanceError):
    """What was asked for cannot be: correct the call. Nothing was done."""


class InvalidSettings(UsageError):
    """A setting is out of range, or contradicts another."""


class GroupExists(UsageError):
    """The group to be created is there already."""


class GroupActive(UsageError):
    """What was asked for takes a group that has no members."""


class UnexpectedResult(UsageError):
    """A handler returned something other than None, which is a failure of its message that trying again cannot mend."""


class UnknownGroup(UsageError):
    """There is no such group in this Redis."""


class MembershipError(CobalanceError):
    """This member cannot do that, or not any more."""


class GroupFailed(MembershipError):
    """The group refuses this member, or its session broke down; the message says why."""


class NotHeld(MembershipError):
    """The resource is not held by this member. Nothing was done."""


class Fenced(MembershipError):
    """The resource was lost meanwhile: another member has it, under a higher token. Nothing was done."""


class OffsetRegressed(MembershipError):
    """A higher offset is committed, and offsets never fall. Nothing was changed."""


class CommitOutcomeUnknown(MembershipError):
    """The session ended before the commit was answered: it may or may not have been stored."""


class DrainTimedOut(MembershipError):
    """Work that had begun was given up, because the drain timeout or the revocation timeout had passed; the message says which."""


class IllegalTransition(CobalanceError):
    """An event that its state does not allow: a bug of ours. Nothing was changed."""


class ServerError(CobalanceError):
    """A server did not do what was asked of it."""

    def __init__(self, message: str = "", *, outcome: Outcome = "not_executed") -> None:
        super().__init__(message)
        self.outcome: Outcome = outcome
        """``"not_executed"`` when it certainly did not happen, ``"unknown"`` when it may have."""


class Unreachable(ServerError):
    """The server gave no answer, or says that it cannot serve now. Worth trying again later."""


class AuthenticationRefused(ServerError):
    """Wrong user name or password, or one is needed."""


class PermissionMissing(ServerError):
    """The user we connect as may not do this."""

    def __init__(self, message: str = "", *, command: str = "", outcome: Outcome = "not_executed") -> None:
        super().__init__(message, outcome=outcome)
        self.command = command
        """The command, key or channel that is not permitted, as far as the server said."""


class NotRedis(ServerError):
    """Something answers at this address, but not Redis."""


class EvictingPolicy(ServerError):
    """This Redis is configured to drop keys when memory runs short, and would drop parts of a group."""


class OutOfMemory(ServerError):
    """Redis has reached its maxmemory and refuses writes."""


class ScriptFailed(ServerError):
    """A coordinator script ended in an error. What it wrote before remains, so the outcome is unknown."""

    def __init__(self, message: str = "", *, outcome: Outcome = "unknown") -> None:
        super().__init__(message, outcome=outcome)


class ProtocolMismatch(ServerError):
    """The group was made by another version, whose scripts and ours do not fit together."""


class NotRabbitMQ(ServerError):
    """Something answers at this address, but not RabbitMQ."""


class VirtualHostMissing(ServerError):
    """There is no such virtual host, or not for this user."""


class ChannelLost(ServerError):
    """RabbitMQ closed the channel; what was not acknowledged will be delivered again."""


class ChannelLimitReached(ServerError):
    """RabbitMQ allows no more channels, so this queue cannot be consumed by this member; the others are."""


class PublishFailed(ServerError):
    """RabbitMQ did not confirm a message: it refused it, could not route it, or was lost before it could answer."""


class HandlerHung(CobalanceError):
    """A handler ran for longer than ``max_processing_ms``, which is a failure of its message."""


class TopologyError(CobalanceError):
    """What RabbitMQ has is not what was expected."""


class QueueMissing(TopologyError):
    """There is no such queue."""


class QueueMismatch(TopologyError):
    """The queue exists with other arguments."""


class MessageUnreadable(TopologyError):
    """A message has headers that cannot be read, such as a time after the year 9999."""


class TopicMissing(TopologyError):
    """There is no such topic."""


class TopicMismatch(TopologyError):
    """The topic exists, made otherwise."""


class TopicInUse(TopologyError):
    """The topic still has consumers or messages."""


class OffsetUnknown(TopologyError):
    """Where to go on in a stream is not known: no offset is committed though there may have been one, or the stream does not have it."""


class Unguarded(TopologyError):
    """Nothing at the broker would keep two consumers of this queue apart."""
