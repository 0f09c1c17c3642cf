"""The data of a Redis in canonical form, for comparing two of them and for copying data."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import attrs

if TYPE_CHECKING:
    import redis


@attrs.frozen
class KeyState:
    """One key. Equal contents compare equal, in whatever order the server lists them."""

    key: bytes
    kind: str
    """string, hash, set, zset or stream, as returned by TYPE."""
    expires_at_ms: int | None
    contents: tuple[Any, ...]
    """string: (text,); hash: field, value, … by field; set: members in order; zset: member, score, … in order; stream:
    last id, then id, (field, value, …), …
    """

    @classmethod
    def of(cls, key: bytes, kind: bytes, expires_at_ms: int | None, contents: list[Any]) -> KeyState:
        """Creates it from lists."""
        return cls(key, kind.decode(), expires_at_ms, _frozen(contents))

    def nested(self) -> list[Any]:
        return [list(part) if isinstance(part, tuple) else part for part in self.contents]


State = tuple[KeyState, ...]
"""All keys in byte order: hashable, comparable, readable in a diff."""


def _frozen(contents: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(part) if isinstance(part, list) else part for part in contents)


def dump_redis(client: redis.Redis, pattern: str = "*") -> State:
    """The matching keys of a real Redis; `client` must not decode responses. Not atomic."""
    keys: list[bytes] = sorted(client.scan_iter(match=pattern, count=1000))
    return tuple(_dump_key(client, key) for key in keys)


def _dump_key(client: redis.Redis, key: bytes) -> KeyState:
    kind = _run(client, "TYPE", key)
    ttl = _run(client, "PEXPIRETIME", key)
    return KeyState.of(key, kind, ttl if ttl >= 0 else None, _contents(client, key, kind.decode()))


def _contents(client: redis.Redis, key: bytes, kind: str) -> list[Any]:
    if kind == "string":
        return [_run(client, "GET", key)]
    if kind == "hash":
        flat = _run(client, "HGETALL", key)
        return [part for pair in sorted(zip(flat[::2], flat[1::2], strict=True)) for part in pair]
    if kind == "set":
        return sorted(_run(client, "SMEMBERS", key))
    if kind == "zset":
        return list(_run(client, "ZRANGE", key, 0, -1, "WITHSCORES"))
    info = _run(client, "XINFO", "STREAM", key)
    last_id = dict(zip(info[::2], info[1::2], strict=True))[b"last-generated-id"]
    return [last_id, *[part for entry in _run(client, "XRANGE", key, "-", "+") for part in entry]]


def load_redis(client: redis.Redis, state: State) -> None:
    """Writes keys to a real Redis, replacing those of the same name."""
    for key in state:
        _run(client, "DEL", key.key)
        _load_contents(client, key)
        if key.expires_at_ms is not None:
            _run(client, "PEXPIREAT", key.key, key.expires_at_ms)


def _load_contents(client: redis.Redis, key: KeyState) -> None:
    if key.kind == "stream":
        _load_stream(client, key)
        return
    command, step = {"string": ("SET", 1), "hash": ("HSET", 2), "set": ("SADD", 1), "zset": ("ZADD", 2)}[key.kind]
    words = list(key.contents)
    if key.kind == "zset":
        words[::2], words[1::2] = words[1::2], words[::2]
    for start in range(0, len(words), 1000 * step):
        _run(client, command, key.key, *words[start : start + 1000 * step])


def _load_stream(client: redis.Redis, key: KeyState) -> None:
    last_id, *entries = key.contents
    if not entries:
        _run(client, "XADD", key.key, "MAXLEN", 0, last_id, "x", "x")
    for i in range(0, len(entries), 2):
        _run(client, "XADD", key.key, entries[i], *entries[i + 1])
    _run(client, "XSETID", key.key, last_id)


def _run(client: redis.Redis, *words: Any) -> Any:
    """Returns the reply as received: execute_command would reshape it according to the command."""
    connection: Any = client.connection_pool.get_connection()
    try:
        connection.send_command(*words)
        return connection.read_response()
    finally:
        client.connection_pool.release(connection)
