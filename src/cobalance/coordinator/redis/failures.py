"""Translates errors of redis-py and Redis into errors that say what happened, where, and what to do."""

from __future__ import annotations

import re

from redis import exceptions as redis_errors

from cobalance.coordinator.redis.damage import Damaged
from cobalance.coordinator.redis.permissions import is_inside_script
from cobalance.coordinator.transport import MALFORMED
from cobalance.errors import (
    AuthenticationRefused,
    NotRedis,
    Outcome,
    OutOfMemory,
    PermissionMissing,
    ScriptFailed,
    ServerError,
    Unreachable,
)

_NEITHER_OK_NOR_ERROR = "Invalid Username or Password"
"""A message of redis-py, never of Redis: the reply to AUTH was not a reply to AUTH."""

ACL_PLACE = 'the complete ACL line is under "Redis ACL" in cobalance/coordinator/redis/README.md'

PART_OF_CLUSTER = (
    "is one node of a cluster: give the URL as redis+cluster://HOST:PORT, or as rediss+cluster:// with TLS"
)


class Redirected(ScriptFailed):
    """This node of a cluster is not in charge. It names the one that is, and has executed nothing."""

    def __init__(self, error: redis_errors.MovedError, place: str, doing: str) -> None:
        super().__init__(
            f"Redis at {place} is a node of a cluster and sends us to another node for {doing}: give the URL as "
            "redis+cluster://HOST:PORT.",
            outcome="not_executed",
        )
        self.host: str = error.host
        """Empty if it is the host of the node that was asked; "?" if it has no name."""
        self.port: int = error.port


class Resharding(Unreachable):
    """A group's slot is moving from one node of a cluster to another, and neither can work on its keys."""


def connect_failure(error: Exception, place: str) -> ServerError:
    """Why connecting failed, so that nothing can have been executed."""
    if isinstance(error, redis_errors.InvalidResponse) or str(error) == _NEITHER_OK_NOR_ERROR:
        return not_redis(place)
    known = _refusal(error, place, "connecting")
    if known is not None:
        return known
    advice = "; is it running, and is the URL right? A port that wants TLS needs rediss://"
    return Unreachable(f"Redis at {place} cannot be reached ({_cause(error)}){advice}.")


def call_failure(error: Exception, place: str, doing: str) -> ServerError:
    """Why a call failed. `doing` is what was being done: "the script join"."""
    if isinstance(error, redis_errors.InvalidResponse):
        return not_redis(place, outcome="unknown")
    known = _refusal(error, place, doing)
    if known is not None:
        return known
    if isinstance(error, redis_errors.ResponseError):
        return _script_failure(error, place, doing)
    return Unreachable(
        f"Redis at {place} did not answer {doing} ({_cause(error)}); it may or may not have been executed.",
        outcome="unknown",
    )


def _script_failure(error: redis_errors.ResponseError, place: str, doing: str) -> ScriptFailed:
    if str(error).startswith(MALFORMED):
        return refused_arguments(str(error), doing)
    if isinstance(error, Damaged):
        return ScriptFailed(f"Redis at {place} ended {doing}: {error}.")
    if "WRONGTYPE" in str(error):
        return ScriptFailed(
            f"Redis at {place} ended {doing}: the key holds what is not ours ({_words(error)}). `cobalance group repair` of its group "
            "deletes it and creates it again."
        )
    return ScriptFailed(
        f"Redis at {place} ended {doing} with an error: {_words(error)}. "
        "If the server is a Redis 6.2 or newer, or compatible with it, please report this as a bug."
    )


def refused_arguments(words: str, doing: str) -> ScriptFailed:
    """A script rejected its arguments before doing anything."""
    return ScriptFailed(
        f"Arguments of {doing} were refused ({words}) and nothing was done; please report this as a bug, if you did not call it yourself.",
        outcome="not_executed",
    )


def not_redis(place: str, *, outcome: Outcome = "not_executed") -> NotRedis:
    """The server is not Redis."""
    return NotRedis(
        f"What answers at {place} is not a Redis; check host and port (Redis usually has 6379, RabbitMQ 5672).",
        outcome=outcome,
    )


def permission_missing(error: Exception, place: str, doing: str) -> PermissionMissing:
    """The user's ACL lacks a permission."""
    named = re.search(r"run the '(.{1,200})' command", str(error))
    command = named.group(1).replace("', '", " ") if named else ""
    lacking = f"the command {command}" if named else _lacking(str(error))
    return PermissionMissing(
        f"The user may not use {lacking} on Redis at {place} (needed for {doing}); grant it: {ACL_PLACE}.",
        command=command,
        outcome="not_executed" if named and not is_inside_script(error) else "unknown",
    )


def _lacking(text: str) -> str:
    if "channel" in text:
        return "the channels cobalance:*, or those of your key prefix,"
    if "key" in text:
        return "the keys cobalance:*, or those of your key prefix,"
    return "one of the commands inside the script"


_NOT_NOW = {
    redis_errors.BusyLoadingError: "is still loading its data",
    redis_errors.ReadOnlyError: "is a read-only replica; the URL should name the master, or a failover is under way",
    redis_errors.MasterDownError: "is a replica that lost its master",
    redis_errors.ClusterDownError: "belongs to a cluster that is down",
}

_NOT_NOW_WORDS = {
    "MASTERDOWN ": "is a replica that lost its master",
    "BUSY ": "is busy with another script",
    "MISCONF ": "refuses writes because it cannot save to disk (MISCONF); see its log",
    "NOREPLICAS ": "refuses writes because too few replicas are connected (min-replicas-to-write)",
    "max number of clients": "has no connection left (maxclients)",
    "UNBLOCKED ": "is changing its role",
}


_OTHERWISE = {
    "cluster support disabled": "is not a cluster: give its URL as redis://HOST:PORT, or as rediss://HOST:PORT with TLS",
    "DB index is out of range": "has no database of that number; its setting `databases` says how many there are, beginning with 0",
}
"""The server is not what the URL says, so waiting does not help."""


def _refusal(error: Exception, place: str, doing: str) -> ServerError | None:
    """The reason given by Redis itself, in which case nothing was executed."""
    text = str(error)
    if isinstance(error, redis_errors.AuthenticationError) or text.startswith(("DENIED ", "NOAUTH ", "WRONGPASS ")):
        return _authentication(text, place)
    if isinstance(error, redis_errors.NoPermissionError) or is_inside_script(error):
        return permission_missing(error, place, doing)
    if isinstance(error, redis_errors.OutOfMemoryError):
        return OutOfMemory(
            f"Redis at {place} is full and refused {doing}; raise its maxmemory, or remove what else is stored there."
        )
    if isinstance(error, redis_errors.AskError | redis_errors.TryAgainError):
        return _elsewhere(error, place, doing)
    return _in_words(error, place, doing)


def _in_words(error: Exception, place: str, doing: str) -> ServerError | None:
    text = str(error)
    otherwise = [words for sign, words in _OTHERWISE.items() if sign in text]
    if otherwise:
        return ServerError(f"Redis at {place} {otherwise[0]}.")
    not_now = [words for kind, words in _NOT_NOW.items() if isinstance(error, kind)]
    not_now += [words for sign, words in _NOT_NOW_WORDS.items() if sign in text]
    if not_now:
        return Unreachable(f"Redis at {place} {not_now[0]}; it did not execute {doing}. Trying again later may help.")
    return None


def _elsewhere(error: redis_errors.ResponseError, place: str, doing: str) -> ServerError:
    if isinstance(error, redis_errors.MovedError):  # redis-py makes it a subclass of AskError
        return Redirected(error, place, doing)
    return Resharding(
        f"Redis at {place} belongs to a cluster that is being resharded, and did not execute {doing}: a group stands still while its slot is "
        "moved. If nobody is moving it, a reshard was interrupted: `redis-cli --cluster fix HOST:PORT` ends it."
    )


def _authentication(text: str, place: str) -> AuthenticationRefused:
    if "without any password" in text or "no password is set" in text:
        return AuthenticationRefused(
            f"Redis at {place} has no password, but the URL gives one; remove it from the URL."
        )
    if text.startswith("DENIED"):
        return AuthenticationRefused(
            f"Redis at {place} is in protected mode and refuses other hosts; give it a password, and the URL the same."
        )
    if "NOAUTH" in text or "Authentication required" in text:
        return AuthenticationRefused(f"Redis at {place} wants a password; put it into the URL: redis://:PASSWORD@host.")
    return AuthenticationRefused(f"Redis at {place} refused the user name or password; check those in the URL.")


def _cause(error: Exception) -> str:
    text = str(error)
    known = {
        "refused": "connection refused",
        "Name or service not known": "no such host",
        "name resolution": "its host name cannot be resolved",
        "nodename nor servname": "no such host",
        "certificate is not valid for": "its TLS certificate is for another host name; use one that it names",
        "certificate has expired": "its TLS certificate has expired",
        "CERTIFICATE_VERIFY_FAILED": "its TLS certificate is not trusted; ?ssl_ca_certs=FILE names the authority",
        "CERTIFICATE_REQUIRED": "it wants a TLS certificate of its clients; give ?ssl_certfile=FILE&ssl_keyfile=FILE",
        "WRONG_VERSION_NUMBER": "no TLS there",
        "RECORD_LAYER_FAILURE": "no TLS there",
        "EOF occurred": "it ended TLS; does it want a certificate of its clients (?ssl_certfile=FILE&ssl_keyfile=FILE)?",
        "imeout": "no answer in time",
        "imed out": "no answer in time",
        "No such file": "there is no such socket",
        "losed by server": "it closed the connection",
        "reset by peer": "it closed the connection",
        "Broken pipe": "it closed the connection",
    }
    return next((words for sign, words in known.items() if sign in text), _words(error))


def _words(error: Exception) -> str:
    return " ".join(str(error).split())[:300] or type(error).__name__
