"""Backends for the coordinator's scripts in tests: in process on three Luas, and on a real Redis, with a controlled
clock.

Real Redis reads its own clock, so there the scripts read a key instead of TIME. Nothing else about them differs.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import redis
from tests.redis_user import PASSWORD, rules

from cobalance.coordinator.dump import State, dump_redis, load_redis
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.transport import CERTAIN, DOUBTED, Listener, OnHint, Reply, Script

START_MS = 1_800_000_000_000


class Backend(Protocol):
    """A transport whose time, identity and data a test can set."""

    identity: str
    now_ms: int

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        """Runs a script; see Transport."""

    def listen(self, on_hint: OnHint) -> Listener:
        """Not used: tests check `hints` instead."""

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        """Entries of a stream; see Transport."""

    def list_groups(self, key_prefix: str = DEFAULT_PREFIX) -> list[str]: ...

    def close(self) -> None: ...

    def dump(self) -> State: ...

    def restore(self, state: State) -> None: ...

    def flush(self) -> None: ...

    def watch(self, channel: str) -> None:
        """Starts recording what is published on this channel."""

    def unwatch(self, channel: str) -> None:
        """Nobody listens on it any more."""

    def hints(self) -> list[tuple[str, int]]:
        """(channel, version) of what was published since the last call."""


class MemoryBackend:
    """The in-memory store, on one of the three Luas."""

    def __init__(self, lua: str) -> None:
        self.now_ms = START_MS
        self.store = MemoryStore(lua=lua, clock_us=lambda: self.now_ms * 1000)
        self._hints: list[tuple[str, int]] = []

    @property
    def identity(self) -> str:
        """The server's run id."""
        return self.store.identity

    @identity.setter
    def identity(self, value: str) -> None:
        self.store.identity = value

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        return self.store.run(script, keys, args, identify=True)

    def listen(self, on_hint: OnHint) -> Listener:
        raise NotImplementedError

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        raise NotImplementedError

    def list_groups(self, key_prefix: str = DEFAULT_PREFIX) -> list[str]:
        raise NotImplementedError

    def close(self) -> None: ...

    def dump(self) -> State:
        return self.store.dump()

    def restore(self, state: State) -> None:
        self.store.restore(state)

    def flush(self) -> None:
        self.store.flush()

    def watch(self, channel: str) -> None:
        self.store.subscribe(channel, self._record)

    def unwatch(self, channel: str) -> None:
        self.store.unsubscribe(channel, self._record)

    def _record(self, channel: str, message: bytes) -> None:
        self._hints.append((channel, int(message)))

    def hints(self) -> list[tuple[str, int]]:
        seen, self._hints = self._hints, []
        return seen


class RedisBackend:
    """A real Redis. Its data is removed before and after, so it must be a private one."""

    _CLOCK = "tests:clock"

    def __init__(self, admin_url: str) -> None:
        self.now_ms = START_MS
        self.identity = "a-redis"
        self._client = redis.Redis.from_url(admin_url, protocol=2)
        self._user = self._published_user(admin_url)
        self._pubsub = self._client.pubsub()  # type: ignore[no-untyped-call]
        self._scripts: dict[str, str] = {}
        self._clock_ms = -1
        self.flush()

    def _published_user(self, admin_url: str) -> redis.Redis:
        """Creates the user of the README's ACL line, which may also read the test's clock."""
        if "@" in admin_url:  # a shared Redis, where we must not create users
            return redis.Redis.from_url(admin_url, protocol=2)
        words = ("ACL", "SETUSER", "tests", "reset", *rules(), f"~{self._CLOCK}", "+lrange")
        self._client.execute_command(*words)  # type: ignore[no-untyped-call]
        return redis.Redis.from_url(admin_url, protocol=2, username="tests", password=PASSWORD)

    @property
    def admin(self) -> redis.Redis:
        """A client with all permissions."""
        return self._client

    def allow(self, *changed: str) -> None:
        """Changes the permissions of scripts."""
        self._client.execute_command("ACL", "SETUSER", "tests", *changed)  # type: ignore[no-untyped-call]

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        """Runs a script at `now_ms`."""
        if self._clock_ms != self.now_ms:
            self._clock_ms = self.now_ms
            self._client.delete(self._CLOCK)
            self._client.rpush(self._CLOCK, self.now_ms // 1000, self.now_ms % 1000 * 1000)
        sha = self._scripts.get(script.sha) or self._load(script)
        try:
            return self._evaluate(sha, keys, (self.identity, *args))
        except redis.ResponseError as error:
            if not str(error).startswith(DOUBTED):
                raise
            return self._evaluate(sha, keys, (CERTAIN + self.identity, *args))

    def _evaluate(self, sha: str, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        reply: Reply = self._user.execute_command("EVALSHA", sha, len(keys), *keys, *args)  # type: ignore[no-untyped-call]
        return reply

    def _load(self, script: Script) -> str:
        source = script.source.replace("call('TIME')", f"call('LRANGE', '{self._CLOCK}', '0', '-1')")
        self._scripts[script.sha] = str(self._user.script_load(source))
        return self._scripts[script.sha]

    def listen(self, on_hint: OnHint) -> Listener:
        raise NotImplementedError

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        raise NotImplementedError

    def list_groups(self, key_prefix: str = DEFAULT_PREFIX) -> list[str]:
        raise NotImplementedError

    def close(self) -> None:
        """Leaves the server as it was found."""
        self.flush()
        self._pubsub.close()
        self._user.close()
        self._client.close()

    def dump(self) -> State:
        """All data except the clock."""
        return dump_redis(self._client, "cobalance:*")

    def restore(self, state: State) -> None:
        self.flush()
        load_redis(self._client, state)

    def flush(self) -> None:
        """Removes all data, but not the script cache."""
        self._client.flushdb()
        self._clock_ms = -1

    def watch(self, channel: str) -> None:
        self._pubsub.subscribe(channel)
        self._pubsub.get_message(timeout=5)

    def unwatch(self, channel: str) -> None:
        self._pubsub.unsubscribe(channel)
        self._pubsub.get_message(timeout=5)

    def hints(self) -> list[tuple[str, int]]:
        """The answer to a ping marks the end of what was published."""
        self._pubsub.ping()
        seen: list[tuple[str, int]] = []
        while (message := self._pubsub.get_message(timeout=5)) is not None and message["type"] != "pong":
            if message["type"] == "message":
                seen.append((message["channel"].decode(), int(message["data"])))
        return seen
