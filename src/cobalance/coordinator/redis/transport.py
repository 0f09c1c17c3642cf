"""Runs the coordinator's scripts on a real Redis, over a single connection."""

from __future__ import annotations

import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from typing import cast

from redis import exceptions as redis_errors

from cobalance.coordinator.entries import read_entries
from cobalance.coordinator.keys import DEFAULT_PREFIX, group_names, groups_pattern, place_of
from cobalance.coordinator.redis.address import NotConnected, RedisAddress, Wire
from cobalance.coordinator.redis.damage import damage
from cobalance.coordinator.redis.failures import ACL_PLACE, PART_OF_CLUSTER, call_failure, connect_failure, not_redis
from cobalance.coordinator.redis.hosts import RedisSource
from cobalance.coordinator.redis.listener import RedisListener
from cobalance.coordinator.redis.permissions import (
    COUNT,
    PUBLISH,
    is_inside_script,
    lacking,
    lacking_of_all,
    named,
    refusal,
)
from cobalance.coordinator.redis.raw_reply import read_raw
from cobalance.coordinator.transport import CALL_TIMEOUT_MS, CERTAIN, DOUBTED, OnHint, PartlyListed, Reply, Script
from cobalance.errors import EvictingPolicy, ServerError, Unreachable
from cobalance.threads.forks import ForkSafe

_log = logging.getLogger("cobalance.coordinator")

Word = str | int | bytes

_SPLIT_BRAIN = (
    "min-replicas-to-write is 0, so a master that is cut off from its replicas goes on beside the one that takes its place, and two "
    "members may work one resource; on every server, set min-replicas-to-write 1, and min-replicas-max-lag to at least three seconds "
    "less than another master takes to be appointed (Sentinel: down-after-milliseconds)"
)

_LOADS = 10
"""How often a call loads its script: a flush by another client may come before it runs."""

_KEYS_A_SCAN = 1_000
"""Scanning this many keys takes Redis well under a millisecond."""


class RedisTransport(ForkSafe):
    """One Redis, one connection, one call at a time.

    The connection is not shared, so the identity read when it was made is that of the server behind every call on it.
    Any doubt about its state (an error, a timeout, unexpected bytes) ends it, and the next call makes a new one. So does
    the next call in a fork, which closes its copy of the parent's socket: redis-py shuts no other process's socket down.
    """

    def __init__(
        self,
        source: RedisSource,
        *,
        call_timeout_ms: int = CALL_TIMEOUT_MS,
        fails_over: bool = False,
        in_cluster: bool = False,
        warned: set[str] | None = None,
    ) -> None:
        """`fails_over`: another server may take this one's place. `in_cluster`: the other nodes of its cluster are known.
        `warned`: warnings already logged, if several share the set.
        """
        self._source, self._place = source, source.place
        self._address: RedisAddress | None = None
        self._timeout_ms = call_timeout_ms
        self._connection: Wire = NotConnected()
        self._identity, self._database = "", ""
        self._version: str | None = None
        self._greeted = False
        self._permitted: set[str] = set()
        """The groups, by their first key, for which this connection's user was found to have all permissions that
        scripts need.
        """
        self._pinged = False
        """Whether this connection's user may PING."""
        self._fails_over, self._in_cluster = fails_over, in_cluster
        self._is_part = False
        """Whether other nodes of a cluster have groups, too, and nobody here knows them."""
        self._warned = set() if warned is None else warned
        self._closed = False
        super().__init__()

    def _begin(self) -> None:
        super()._begin()
        self._in_step = False
        self._posted: list[Reply] | None = None
        """Where the answer goes that is still to be read."""

    def __repr__(self) -> str:
        return f"<RedisTransport to {self._place}>"

    @property
    def place(self) -> str:
        """What was configured, even if the server is now another one; without secrets."""
        return self._source.place

    @property
    def database(self) -> str:
        """See :class:`RedisAddress`."""
        return self._source.database

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        def evaluate(connection: Wire) -> Reply:
            try:
                return _evaluate(connection, script, (len(keys), *keys, self._identity + self._database, *args))
            except redis_errors.ResponseError as error:
                if not str(error).startswith(DOUBTED):
                    raise
            self._identity = _identity(self._facts(connection))
            certain = CERTAIN + self._identity + self._database
            return _evaluate(connection, script, (len(keys), *keys, certain, *args))

        def run(connection: Wire) -> Reply:
            self._check_permitted(connection, script, keys[0])
            try:
                return evaluate(connection)
            except redis_errors.ResponseError as error:
                failed = error
            ask = partial(_exchange, connection)
            if is_inside_script(failed):
                raise named(failed, script, keys[0], ask)
            raise damage(failed, keys, ask) or failed

        return self._perform(run, f"the script {script.name}")

    def post(self, script: Script, keys: Sequence[str], args: Sequence[str]) -> Callable[[], Reply]:
        """Sends a call whose answer is read later, so that Redis runs the script while its caller does something else.
        The answer is None if the script has to be called in the usual way, which may be for the second time.
        """
        posted = list[Reply]()
        with self._lock:
            self._receive()
            if self._is_usable() and keys[0] in self._permitted:
                words: list[Word] = [len(keys), *keys, self._identity + self._database, *args]
                self._in_step, self._posted = False, posted  # first: a signal handler may raise once it is sent
                self._attempt(lambda it: it.send_command("EVALSHA", script.sha, *words), "")

        def answer() -> Reply:
            with self._lock:
                if self._posted is posted:
                    self._receive()
            return posted[0] if posted else None

        return answer

    def _receive(self) -> None:
        """Reads the answer to what was posted, if anything was."""
        posted, self._posted = self._posted, None
        if posted is not None and self._in_step:
            self._in_step = False  # first: from here on nothing else reads it
            reply = self._attempt(lambda it: cast("Reply", it.read_response()), "")
            if not isinstance(reply, ServerError):
                posted.append(reply)

    def _check_permitted(self, connection: Wire, script: Script, key: str) -> None:
        """Once per connection and group: a missing command would end a script between its writes."""
        if key in self._permitted:
            return
        missing = lacking(script, key, partial(_exchange, connection))
        if PUBLISH in missing:
            prefix, _ = place_of(key) or (DEFAULT_PREFIX, "")
            self._warn(
                f"hints cannot be published (PUBLISH, channels {prefix}:*), so members hear of a change only at their next "
                f"heartbeat; {ACL_PLACE}"
            )
        if COUNT in missing:
            self._warn(
                "who listens cannot be counted exactly (+pubsub|numsub), so whatever is subscribed to a pattern, such as a PSUBSCRIBE *, "
                f"counts as a process of every group; {ACL_PLACE}"
            )
        if missing - {PUBLISH, COUNT}:
            raise refusal(missing)
        self._permitted.add(key)

    def listen(self, on_hint: OnHint) -> RedisListener:
        """Hints arrive on a thread of the listener, which has its own connection."""
        return RedisListener(self._source, on_hint)

    def ask(self, *words: Word, doing: str) -> Reply:
        """Sends one command, for what no script can tell. Raises like :meth:`call`; `doing` says what it is for."""
        return self._perform(lambda connection: _exchange(connection, *words), doing)

    def server(self, key: str = "") -> tuple[str, str | None]:
        """Which server had this key at the last call, as host and port, and its version, as it said when it was
        connected to; None if it may not say.
        """
        del key  # there is one server
        return self._place, self._version

    def read_info(self, key: str = "") -> tuple[str, dict[str, str]]:
        """Which server has this key, as host and port, and what it says of itself (INFO); nothing if it may not."""
        del key  # there is one server
        facts: dict[str, str] = {}

        def read(connection: Wire) -> Reply:
            facts.update(self._facts(connection))
            return None

        self._perform(read, "asking for INFO")
        return self._place, facts

    def read_time(self, key: str = "") -> float:
        """Its clock, in seconds since 1970."""
        del key
        found = cast("list[bytes]", self._perform(lambda it: _exchange(it, "TIME"), "asking for the time"))
        return int(found[0]) + int(found[1]) / 1_000_000

    def read_missing_permissions(self, key: str) -> set[str] | None:
        """The commands that scripts need, and that this user may not run on the key; None if Redis cannot tell.

        Raises:
            PermissionMissing: it may not use the key, or not run scripts at all.
        """
        missing: set[str] | None = set()

        def look(connection: Wire) -> Reply:
            nonlocal missing
            missing = lacking_of_all(key, partial(_exchange, connection))
            return None

        self._perform(look, "asking for permissions")
        return missing

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        def read(connection: Wire) -> Reply:
            return _exchange(connection, "XRANGE", key, f"({after}", "+", "COUNT", count)

        return read_entries(self._perform(read, "reading a journal"))

    def read_range(self, key: str, first: str, last: str, count: int) -> Reply:
        """Up to `count` entries of a stream between two ids, oldest first, as sent by Redis: for callers that read
        many.
        """

        def read(connection: Wire) -> Reply:
            return _exchange(connection, "XRANGE", key, first, last, "COUNT", count)

        return self._perform(read, "reading a journal")

    def read_range_raw(self, key: str, first: str, last: str, count: int, room: int) -> tuple[bytearray, int]:
        """The same, unparsed, and perhaps an error; see :func:`read_raw`. `room` is how many bytes are expected.

        Raises:
            PermissionMissing: the user may not PING, without which the end of the reply is not known.
        """

        def read(connection: Wire) -> Reply:
            if not self._pinged:
                _exchange(connection, "PING")
                self._pinged = True
            replies.append(read_raw(connection, "XRANGE", key, first, last, "COUNT", count, room=room))
            return None

        replies: list[tuple[bytearray, int]] = []
        self._perform(read, "reading a journal")
        return replies[0]

    def read_newest(self, key: str, last: str = "+") -> Reply:
        """The newest entry of a stream up to an id, in a list, which is empty if there is none."""

        def read(connection: Wire) -> Reply:
            return _exchange(connection, "XREVRANGE", key, last, "-", "COUNT", 1)

        return self._perform(read, "reading a journal")

    def list_groups(self, key_prefix: str = DEFAULT_PREFIX) -> list[str]:
        found = group_names(self.list_keys(groups_pattern(key_prefix)), key_prefix)
        if self._is_part:
            raise PartlyListed(f"Groups may be missing, since Redis at {self._place} {PART_OF_CLUSTER}.", found)
        return found

    def list_keys(self, pattern: str) -> set[str]:
        """The keys of this database that match a glob pattern; scanned in parts, so that Redis is never blocked."""
        found, cursor = set[str](), "0"
        while True:
            cursor, keys = self._scan(cursor, pattern)
            found.update(keys)
            if cursor == "0":
                return found

    def _scan(self, cursor: str, pattern: str) -> tuple[str, list[str]]:
        """One call, which scans a bounded part of the key space."""

        def scan(connection: Wire) -> Reply:
            return _exchange(connection, "SCAN", cursor, "MATCH", pattern, "COUNT", _KEYS_A_SCAN)

        following, keys = cast("tuple[bytes, list[bytes]]", self._perform(scan, "listing the groups"))
        return following.decode(), [key.decode(errors="replace") for key in keys]

    def set_call_timeout(self, timeout_ms: int) -> None:
        """Replaces the timeout of calls, and the connection, from the next call on."""
        with self._lock:
            self._timeout_ms, self._in_step = timeout_ms, False

    def close(self) -> None:
        """Closes the connection, after a call in progress."""
        with self._lock:
            self._closed = True
            self._connection.disconnect()

    def _perform(self, action: Callable[[Wire], Reply], doing: str) -> Reply:
        # Errors are raised outside of all except blocks, so that redis-py's are never attached to ours as context.
        with self._lock:
            self._receive()
            result = self._connect() or self._attempt(action, doing)
        if isinstance(result, ServerError):
            raise result
        return result

    def _attempt(self, action: Callable[[Wire], Reply], doing: str) -> Reply | ServerError:
        self._in_step = False  # Whatever ends this call early, even KeyboardInterrupt, leaves a reply to be read.
        try:
            reply = action(self._connection)
        except (redis_errors.RedisError, OSError) as error:
            failure = call_failure(error, self._place, doing)
        else:
            self._in_step = True
            return reply
        self._connection.disconnect()
        return failure

    def _connect(self) -> ServerError | None:
        if self._closed:
            return Unreachable(f"This connection to Redis at {self._place} was closed: open another.")
        if self._is_usable():
            return None
        failure = self._reconnect()
        if failure is None:
            return None
        self._connection.disconnect()
        if self._greeted and isinstance(failure, Unreachable) and self._speaks_something_else():
            return not_redis(self._place)
        return failure

    def _reconnect(self) -> ServerError | None:
        self._connection.disconnect()
        self._greeted = False
        self._permitted.clear()
        self._pinged = False
        try:
            address = self._source.locate(self._timeout_ms)
            self._address, self._place, self._database = address, address.place, address.database
            self._connection = address.connection(self._timeout_ms, self._greet)
            self._connection.connect()
        except ServerError as error:
            return error
        except (redis_errors.RedisError, OSError) as error:
            if isinstance(error, redis_errors.TimeoutError | TimeoutError):
                self._greeted = False  # it says nothing: to ask in other words would take as long again
            return connect_failure(error, self._place)
        return None

    def _is_usable(self) -> bool:
        """Whether it is in step, with nothing to read: an idle connection becomes readable if the server closes it."""
        if not self._in_step:
            return False
        try:
            return not self._connection.can_read(0)
        except (redis_errors.RedisError, OSError):
            return False

    def _greet(self, connection: Wire) -> None:
        """Logs in on a new connection, and identifies the server. Called by redis-py for every new socket."""
        self._greeted = True
        connection.on_connect()
        facts = self._facts(connection)
        self._identity, self._version = _identity(facts), facts.get("redis_version")
        self._check_mode(connection, facts.get("redis_mode", ""))
        self._check_policy(facts.get("maxmemory_policy", "noeviction"), facts.get("maxmemory", "0"))
        # INFO counts the good replicas only if the master requires some.
        if self._fails_over and facts.get("role") == "master" and "min_slaves_good_slaves" not in facts:
            self._warn(_SPLIT_BRAIN)

    def _facts(self, connection: Wire) -> dict[str, str]:
        try:
            info = _exchange(connection, "INFO")
        except redis_errors.NoPermissionError:
            self._warn(
                "INFO is not permitted, so its memory policy is not checked and a change of server is noticed late"
            )
            return {}
        if not isinstance(info, bytes) or b"redis_version:" not in info:
            raise redis_errors.InvalidResponse("not the reply to INFO")
        lines = [line.partition(":") for line in info.decode(errors="replace").splitlines()]
        return {name: value for name, _, value in lines}

    def _check_mode(self, connection: Wire, mode: str) -> None:
        if mode == "sentinel":
            raise ServerError(
                f"Redis at {self._place} is a Sentinel: give the URL as redis+sentinel://HOST:PORT/SERVICE, or as "
                "rediss+sentinel:// with TLS."
            )
        self._is_part = mode == "cluster" and not self._in_cluster and _has_other_masters(connection)
        if self._is_part:
            self._warn(
                f"it {PART_OF_CLUSTER}; a group here is out of reach once its slot moves or another node takes over"
            )

    def _check_policy(self, policy: str, maxmemory: str) -> None:
        if policy != "noeviction" and maxmemory != "0":
            raise EvictingPolicy(
                f"Redis at {self._place} has maxmemory-policy {policy}, so it would drop parts of a group when memory "
                "runs short; set maxmemory-policy noeviction, or use another Redis."
            )

    def _warn(self, message: str) -> None:
        if message not in self._warned:
            self._warned.add(message)
            _log.warning("Redis at %s: %s", self._place, message)

    def _speaks_something_else(self) -> bool:
        """Whether a server that closed the connection during the greeting is not Redis; its reply may have been lost.

        Eight bytes are enough for AMQP, which answers with its name. To Redis they are a PING and an empty line.
        """
        if self._address is None or not self._address.is_tcp:
            return False
        try:
            with socket.create_connection(self._address.address, timeout=self._timeout_ms / 1000) as probe:
                probe.sendall(b"PING\r\n\r\n")
                first = probe.recv(1)
        except OSError:
            return False
        return first not in {b"", b"+", b"-"}


def _identity(facts: dict[str, str]) -> str:
    """Identifies the process and its data: a server that is overwritten as a replica and promoted again keeps its run
    id, but not its replication id. A master without replicas for an hour changes its replication id too, which only
    costs a round of claims.
    """
    return facts.get("run_id", "")[:20] + facts.get("master_replid", "")[:20]


def _has_other_masters(connection: Wire) -> bool:
    """Whether the slots of the cluster are spread over several nodes; not if it does not say."""
    try:
        rows = cast("list[list[list[Reply]]]", _exchange(connection, "CLUSTER", "SLOTS"))
    except redis_errors.ResponseError:
        return False
    return len({master[2] for _, _, master, *_ in rows}) > 1


def _exchange(connection: Wire, *words: Word) -> Reply:
    connection.send_command(*words)
    return cast("Reply", connection.read_response())


def _evaluate(connection: Wire, script: Script, words: Sequence[Word]) -> Reply:
    for _ in range(_LOADS):
        try:
            return _exchange(connection, "EVALSHA", script.sha, *words)
        except redis_errors.NoScriptError:
            # Redis restarted or flushed its scripts. That it does not know the script proves that it did not run it.
            _exchange(connection, "SCRIPT", "LOAD", script.source)
    return _exchange(connection, "EVALSHA", script.sha, *words)
