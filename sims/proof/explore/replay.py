"""Replays everything that an exploration executed on a real Redis and on the other Luas.

Each distinct (data, script, arguments) starts from its own data; reply and data afterwards must be the same. Redis's
clock cannot be set, and all executions happen at one moment: so in the scripts sent there, the call of TIME is replaced
by that moment's two words. Nothing else in them differs. Ids of journal entries, which Redis derives from its own
clock, are not compared.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Protocol

import attrs
import redis

from cobalance.coordinator.dump import State
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.scripts import load
from cobalance.coordinator.transport import Reply
from cobalance.errors import ScriptFailed
from proof.explore import dump
from proof.explore.coordinator import Execution, ExploredCoordinator, refusal
from proof.explore.scope import GROUP_MS

BATCH = 200

_TIME = f"({{'{GROUP_MS // 1000}', '{GROUP_MS % 1000 * 1000}'}})"

_LOAD = """
for i = 1, #KEYS do redis.call('DEL', KEYS[i]) end
local at = 1
while at <= #ARGV do
  local key, kind, count = KEYS[tonumber(ARGV[at])], ARGV[at + 1], tonumber(ARGV[at + 2])
  for i = at + 3, at + 2 + count, 2 do
    if kind == 'hash' then redis.call('HSET', key, ARGV[i], ARGV[i + 1])
    else redis.call('ZADD', key, ARGV[i + 1], ARGV[i]) end
  end
  at = at + 3 + count
end
"""

_DUMP = """
local out = {}
for i = 1, #KEYS do
  local kind = redis.call('TYPE', KEYS[i]).ok
  if kind == 'hash' then out[i] = redis.call('HGETALL', KEYS[i])
  elseif kind == 'zset' then out[i] = redis.call('ZRANGE', KEYS[i], '0', '-1', 'WITHSCORES')
  elseif kind == 'stream' then out[i] = redis.call('XRANGE', KEYS[i], '-', '+')
  else out[i] = {} end
end
return out
"""


@attrs.frozen
class Mismatch:
    """Where two engines disagree."""

    script: str
    args: tuple[str, ...]
    expected: str
    got: str


@attrs.frozen
class Replayed:
    """The result of a replay."""

    engine: str
    executions: int
    seconds: float
    mismatches: tuple[Mismatch, ...]


class ScriptEngine(Protocol):
    """Something that runs scripts."""

    name: str

    def outcomes(self, work: Sequence[tuple[State, Execution]]) -> Iterator[str]:
        """Yields reply and data afterwards as text, one for each piece of work."""


def comparable(reply: Reply, contents: Sequence[Any]) -> str:
    """Reply and data as text; `contents` are those of the keys, in their order."""
    return repr((reply, contents))


def contents_of(state: State) -> list[Any]:
    """The contents of a dump, by key; entries of the stream without their ids."""
    by_key = {key.key.decode(): key for key in state}
    out: list[Any] = []
    for name in dump.KEYS:
        key = by_key.get(name)
        if key is None:
            out.append([])
        elif key.kind == "stream":
            out.append([list(fields) for fields in key.contents[2::2]])
        else:
            out.append(list(key.contents))
    return out


class InMemoryRedis:
    """The in-memory Redis on one of the Luas. It shuffles differently from the one that explored."""

    def __init__(self, lua: str) -> None:
        self.name = lua
        self._store = MemoryStore(lua=lua, seed=20_250_101, clock_us=lambda: GROUP_MS * 1000, identity="")

    def outcomes(self, work: Sequence[tuple[State, Execution]]) -> Iterator[str]:
        for state, it in work:
            self._store.restore(state)
            try:
                reply: Reply = self._store.run(load(it.script), dump.KEYS, it.args)
            except ScriptFailed as failed:
                reply = refusal(failed)
            yield comparable(reply, contents_of(self._store.dump()))


class RealRedis:
    """A server of ours: its data is replaced for every execution."""

    def __init__(self, url: str) -> None:
        self._client = redis.Redis.from_url(url, protocol=2)
        info: Any = self._client.info("server")
        self.name = f"Redis {info['redis_version']}"
        self._load, self._dump = self._client.script_load(_LOAD), self._client.script_load(_DUMP)
        self._shas: dict[str, str] = {}

    def outcomes(self, work: Sequence[tuple[State, Execution]]) -> Iterator[str]:
        """All of the work is one pipeline."""
        shas = [self._sha(it.script) for _, it in work]
        pipeline: Any = self._client.pipeline(transaction=False)
        for sha, (state, it) in zip(shas, work, strict=True):
            pipeline.execute_command("EVALSHA", self._load, len(dump.KEYS), *dump.KEYS, *_flat(state))
            pipeline.execute_command("EVALSHA", sha, len(dump.KEYS), *dump.KEYS, *it.args)
            pipeline.execute_command("EVALSHA", self._dump, len(dump.KEYS), *dump.KEYS)
        replies = pipeline.execute(raise_on_error=False)
        for answer, contents in zip(replies[1::3], replies[2::3], strict=True):
            reply = str(answer).encode() if isinstance(answer, redis.ResponseError) else answer
            yield comparable(reply, [_sorted(name, part) for name, part in zip(dump.KEYS, contents, strict=True)])

    def _sha(self, verb: str) -> str:
        if verb not in self._shas:
            self._put(verb, load(verb).source)
        return self._shas[verb]

    def _put(self, verb: str, source: str) -> None:
        source = source.replace("redis.call('TIME')", _TIME).replace("call('TIME')", _TIME)
        self._shas[verb] = str(self._client.script_load(source))

    def replace(self, verb: str, old: str, new: str) -> None:
        """Runs a changed script from now on, to see that a difference is noticed."""
        self._put(verb, load(verb).source.replace(old, new))

    def close(self) -> None:
        self._client.close()


def _flat(state: State) -> Iterator[str | int | bytes]:
    places = {name.encode(): number for number, name in enumerate(dump.KEYS, 1)}
    for key in state:
        yield from (places[key.key], key.kind, len(key.contents), *key.contents)


def _sorted(name: str, part: list[Any]) -> list[Any]:
    """Orders contents as in a dump: hashes by field, streams without ids."""
    if name.endswith(":journal"):
        return [fields for _, fields in part]
    if name.rsplit(":", 1)[1] in {"state", "members", "resources", "offsets"}:
        pairs = sorted(zip(part[::2], part[1::2], strict=True))
        return [word for pair in pairs for word in pair]
    return part


def expected(coordinator: ExploredCoordinator) -> Iterator[tuple[Execution, bytes]]:
    """Yields what was executed, and the digest of the result."""
    for it, outcome in coordinator.outcomes.items():
        if not it.dies_at:  # a real one cannot be made to die there
            yield it, outcome.digest


def digest_of(reply: Reply, state: State) -> bytes:
    """What an exploration that will be replayed keeps of each execution."""
    return digest(comparable(reply, contents_of(state)))


def digest(text: str) -> bytes:
    """Sixteen bytes that stand for an outcome."""
    return hashlib.blake2b(text.encode(), digest_size=16).digest()


def replay(coordinator: ExploredCoordinator, engine: ScriptEngine, *, every: int = 1) -> Replayed:
    """Runs everything again, or every n-th execution. `coordinator` must have kept digests."""
    began, count = time.monotonic(), 0
    mismatches: list[Mismatch] = []
    for batch in _batches(islice(expected(coordinator), None, None, every)):
        work = [(coordinator.state(it.before), it) for it, _ in batch]
        count += len(work)
        for (it, wanted), got in zip(batch, engine.outcomes(work), strict=True):
            if digest(got) != wanted:
                mismatches.append(Mismatch(it.script, it.args, _again(coordinator, it), got))
    return Replayed(engine.name, count, time.monotonic() - began, tuple(mismatches))


def _batches(items: Iterable[tuple[Execution, bytes]]) -> Iterator[list[tuple[Execution, bytes]]]:
    iterator = iter(items)
    while batch := list(islice(iterator, BATCH)):
        yield batch


def _again(coordinator: ExploredCoordinator, it: Execution) -> str:
    return next(iter(InMemoryRedis(coordinator.store.engine).outcomes([(coordinator.state(it.before), it)])))
