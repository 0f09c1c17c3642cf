"""The data of a Redis in canonical form, for comparing two of them and for copying data."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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

Command = tuple[Any, ...]
"""The words of one."""


def _frozen(contents: list[Any]) -> tuple[Any, ...]:
    return tuple(tuple(part) if isinstance(part, list) else part for part in contents)


def dump_redis(client: redis.Redis, pattern: str = "*") -> State:
    """The matching keys of a real Redis; `client` must not decode responses. Not atomic."""
    keys: list[bytes] = sorted(client.scan_iter(match=pattern, count=1000))
    kinds = [kind.decode() for kind in _run(client, [("TYPE", key) for key in keys])]
    questions = [_questions(key, kind) for key, kind in zip(keys, kinds, strict=True)]
    replies = iter(_run(client, [question for asked in questions for question in asked]))
    return tuple(
        _key_state(key, kind, [next(replies) for _ in asked])
        for key, kind, asked in zip(keys, kinds, questions, strict=True)
    )


def _questions(key: bytes, kind: str) -> list[Command]:
    """Asks when the key expires, and for its contents."""
    return [("PEXPIRETIME", key), *((*words, key, *rest) for words, rest in _READS[kind])]


_READS: dict[str, list[tuple[Command, Command]]] = {
    "string": [(("GET",), ())],
    "hash": [(("HGETALL",), ())],
    "set": [(("SMEMBERS",), ())],
    "zset": [(("ZRANGE",), (0, -1, "WITHSCORES"))],
    "stream": [(("XINFO", "STREAM"), ()), (("XRANGE",), ("-", "+"))],
}
"""The commands that read a key of this kind: the words before the key, and those behind it."""


def _key_state(key: bytes, kind: str, replies: list[Any]) -> KeyState:
    ttl, *contents = replies
    return KeyState(key, kind, ttl if ttl >= 0 else None, _frozen(_canonical(kind, contents)))


def _canonical(kind: str, replies: list[Any]) -> list[Any]:
    """The contents in the order of `KeyState.contents`."""
    first, *more = replies
    if kind == "string":
        return [first]
    if kind == "hash":
        return [part for pair in sorted(zip(first[::2], first[1::2], strict=True)) for part in pair]
    if kind == "set":
        return sorted(first)
    if kind == "zset":
        return list(first)
    last_id = dict(zip(first[::2], first[1::2], strict=True))[b"last-generated-id"]
    return [last_id, *[part for entry in more[0] for part in entry]]


def load_redis(client: redis.Redis, state: State) -> None:
    """Writes keys to a real Redis, replacing those of the same name."""
    _run(client, [command for key in state for command in _load_commands(key)])


def _load_commands(key: KeyState) -> Iterator[Command]:
    yield ("DEL", key.key)
    yield from _stream_commands(key) if key.kind == "stream" else _contents_commands(key)
    if key.expires_at_ms is not None:
        yield ("PEXPIREAT", key.key, key.expires_at_ms)


def _contents_commands(key: KeyState) -> Iterator[Command]:
    command, step = {"string": ("SET", 1), "hash": ("HSET", 2), "set": ("SADD", 1), "zset": ("ZADD", 2)}[key.kind]
    words = list(key.contents)
    if key.kind == "zset":
        words[::2], words[1::2] = words[1::2], words[::2]
    for start in range(0, len(words), 1000 * step):
        yield (command, key.key, *words[start : start + 1000 * step])


def _stream_commands(key: KeyState) -> Iterator[Command]:
    last_id, *entries = key.contents
    if not entries:
        yield ("XADD", key.key, "MAXLEN", 0, last_id, "x", "x")
    for i in range(0, len(entries), 2):
        yield ("XADD", key.key, entries[i], *entries[i + 1])
    yield ("XSETID", key.key, last_id)


def _run(client: redis.Redis, commands: Sequence[Command]) -> list[Any]:
    """Sends all commands at once and returns the replies as received: execute_command would reshape each according to
    its command, and wait for it before it sends the next.
    """
    connection: Any = client.connection_pool.get_connection()
    try:
        connection.send_packed_command(connection.pack_commands(commands))
        return [connection.read_response() for _ in commands]
    except BaseException:
        connection.disconnect()  # It has replies that nobody will read.
        raise
    finally:
        client.connection_pool.release(connection)
