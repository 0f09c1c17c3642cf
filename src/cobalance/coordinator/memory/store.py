"""An in-process Redis: the subset that the coordinator's scripts use, run by Lua, and strict where Redis is lenient.

It rejects undeclared keys, keys of more than one cluster slot, unknown commands and options, and global variables. It
shuffles what Redis returns in no particular order. Its clock stands still during a script and can be replaced.
"""

from __future__ import annotations

import os
import secrets
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Any

import attrs

from cobalance.coordinator.dump import KeyState, State
from cobalance.coordinator.memory.lua_engine import LuaEngine
from cobalance.coordinator.transport import CERTAIN, DOUBTED, MALFORMED, Reply, Script
from cobalance.errors import ScriptFailed

ClockUs = Callable[[], int]
"""The server's clock: microseconds since 1970."""

Deliver = Callable[[str, bytes], None]

_FUNCTIONS = (
    *("compile", "bytecode", "declare", "run", "piece", "take_outbox", "set_subscribers"),
    *("dump", "load", "snapshot", "restore", "clear", "seed", "salt"),
    *("die_at", "writes"),
)

ONE_AT_A_TIME = threading.RLock()
"""Held by a thread that makes a store, or runs Lua in one. A fork waits for it, since it would have a copy of a Lua in the middle
of a script, with nobody to go on.
"""
os.register_at_fork(
    before=ONE_AT_A_TIME.acquire, after_in_parent=ONE_AT_A_TIME.release, after_in_child=ONE_AT_A_TIME.release
)

_PIECE = 4000
_MOST_KEY_SETS = 10_000

_BYTECODE: dict[tuple[str, str], bytes] = {}
"""What a Lua has made of a script, by the script's hash: to load it takes a tenth of the time of parsing the text, and many
stores of a process use the same scripts.
"""


def real_clock_us() -> int:
    return time.time_ns() // 1000


@attrs.frozen
class Snapshot:
    """A state of one store, kept in Lua: cheap to take and to restore, but of no use elsewhere."""

    entries: Any = attrs.field(repr=False)


class MemoryStore:
    """The data and the scripts that work on it. Thread-safe.

    Args:
        lua: ``luajit21``, ``lua51`` or ``lua54``; by default the value of COBALANCE_LUA, or the fastest available.
        seed: determines the order of unordered replies.
        clock_us: what scripts read as TIME.
        identity: the equivalent of Redis's run id; random by default.
    """

    def __init__(
        self, *, lua: str | None = None, seed: int = 0, clock_us: ClockUs = real_clock_us, identity: str | None = None
    ) -> None:
        self.clock_us = clock_us
        self._lock = ONE_AT_A_TIME
        self._engine = LuaEngine(lua)
        lua_store = self._engine.store
        self._lua = {name: lua_store[name.encode()] for name in _FUNCTIONS}
        self._run = self._lua["run"]
        self._scripts: dict[str, Any] = {}
        self._key_sets: dict[tuple[str, ...], Any] = {}
        self._receivers: dict[str, list[Deliver]] = {}
        self.seed(seed)
        self.identity = secrets.token_hex(20) if identity is None else identity

    @property
    def identity(self) -> str:
        """The equivalent of Redis's run id; another one's hashes are visited in another order."""
        return self._identity

    @identity.setter
    def identity(self, identity: str) -> None:
        with self._lock:
            self._identity = identity
            self._lua["salt"](zlib.crc32(identity.encode()))

    @property
    def engine(self) -> str:
        """The Lua that runs it."""
        return self._engine.name

    def begin_anew(self, seed: int, *, clock_us: ClockUs, identity: str) -> None:
        """Resets it to a new, empty store without listeners, but keeps compiled scripts, which makes it cheap."""
        with self._lock:
            self.flush()
            for channel in list(self._receivers):
                self._receive(channel, [])
            self.clock_us, self.identity = clock_us, identity
            self.seed(seed)
            self.die_at(0)

    def seed(self, seed: int) -> None:
        """Restarts the shuffling of unordered replies."""
        with self._lock:
            self._lua["seed"](seed)

    def run(
        self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes], *, identify: bool = False
    ) -> Reply:
        """Runs a script, then delivers what it published. `identify` puts the identity in front of the arguments.

        Raises:
            ScriptFailed: it raised an error or broke a rule; as in Redis, its earlier writes remain.
        """
        encoded = [arg if isinstance(arg, bytes) else str(arg).encode() for arg in args]
        with self._lock:
            if identify:
                encoded.insert(0, self.identity.encode())
            compiled = self._scripts.get(script.sha) or self._compile(script)
            key_set = self._key_sets.get(tuple(keys)) or self._declare(script, keys)
            results = self._run(compiled, key_set, self.clock_us(), *encoded)
            if identify and _is_doubt(results):
                results = self._run(compiled, key_set, self.clock_us(), CERTAIN.encode() + encoded[0], *encoded[1:])
            reply, waiting = self._read(script, results)
            deliveries = self._deliveries() if waiting else ()
        for deliver, channel, message in deliveries:
            deliver(channel, message)
        return reply

    def die_at(self, write: int) -> None:
        """Lets a script fail at this write, counted from the next script's first one (1). As in Redis when the user
        loses the permission for a command, its earlier writes remain. Restarts the count; 0 lets all pass.
        """
        with self._lock:
            self._lua["die_at"](write)

    @property
    def writes(self) -> int:
        """The number of writes since the last :meth:`die_at`."""
        with self._lock:
            return int(self._lua["writes"]())

    def _compile(self, script: Script) -> Any:
        known = _BYTECODE.get((self.engine, script.sha))
        compiled, problem = self._lua["compile"](known or script.source.encode())
        if not compiled:
            raise ScriptFailed(f"The script {script.name} does not compile: {_words(problem)}", outcome="not_executed")
        if known is None:
            _BYTECODE[self.engine, script.sha] = self._lua["bytecode"](compiled)
        self._scripts[script.sha] = compiled
        return compiled

    def _declare(self, script: Script, keys: Sequence[str]) -> Any:
        key_set = self._lua["declare"](*[key.encode() for key in keys])
        if not key_set:
            reason = (
                f"The keys of the script {script.name} lie in several cluster slots; give all of them the same {{tag}}."
            )
            raise ScriptFailed(reason, outcome="not_executed")
        if len(self._key_sets) >= _MOST_KEY_SETS:
            self._key_sets.clear()
        self._key_sets[tuple(keys)] = key_set
        return key_set

    def _read(self, script: Script, results: Any) -> tuple[Reply, int]:
        flat = iter(results)
        status = next(flat)
        if status >= 0:
            return _decode(flat), status
        if status == -3:
            waiting, size = flat
            return _decode(self._pieces(size)), waiting
        kind = "failed" if status == -1 else "broke a rule"
        words = _words(next(flat))
        refused = words.startswith(MALFORMED)  # it checked its arguments first, and did nothing
        raise ScriptFailed(
            f"The script {script.name} {kind}: {words}", outcome="not_executed" if refused else "unknown"
        )

    def _pieces(self, size: int) -> Iterator[Any]:
        for start in range(1, size + 1, _PIECE):
            piece = self._lua["piece"](start, min(start + _PIECE - 1, size))
            yield from piece if isinstance(piece, tuple) else (piece,)

    def _deliveries(self) -> list[tuple[Deliver, str, bytes]]:
        flat = list(self._pieces(self._lua["take_outbox"]()))
        messages = [(channel.decode(), message) for channel, message in zip(flat[::2], flat[1::2], strict=True)]
        return [
            (deliver, channel, message) for channel, message in messages for deliver in self._receivers.get(channel, ())
        ]

    def subscribe(self, channel: str, deliver: Deliver) -> None:
        """Calls `deliver` with each message published there, on the publisher's thread, after its script has ended."""
        with self._lock:
            self._receive(channel, [*self._receivers.get(channel, []), deliver])

    def unsubscribe(self, channel: str, deliver: Deliver) -> None:
        with self._lock:
            self._receive(channel, [it for it in self._receivers.get(channel, []) if it != deliver])

    def _receive(self, channel: str, receivers: list[Deliver]) -> None:
        self._receivers[channel] = receivers
        if not receivers:
            del self._receivers[channel]
        self._lua["set_subscribers"](channel.encode(), len(receivers))

    def dump(self) -> State:
        """The whole state in canonical form: equal states compare equal, whatever store or Redis they come from."""
        with self._lock:
            rows: Any = _decode(self._pieces(self._lua["dump"](self.clock_us())))
        return tuple(KeyState.of(*row) for row in rows)

    def snapshot(self) -> Snapshot:
        """The current state, at the cost of one table of its keys."""
        with self._lock:
            return Snapshot(self._lua["snapshot"]())

    def restore(self, state: Snapshot | State) -> None:
        """Restores a state; subscriptions and identity are unaffected."""
        with self._lock:
            if isinstance(state, Snapshot):
                self._lua["restore"](state.entries)
                return
            self.flush()
            for key in state:
                self._lua["load"](
                    key.key, key.kind.encode(), key.expires_at_ms or False, self._engine.table(key.nested())
                )

    def flush(self) -> None:
        """Removes all data, like FLUSHALL."""
        with self._lock:
            self._lua["clear"]()


def _decode(flat: Iterator[Any]) -> Reply:
    """Decodes the next value of a flat list made by ``store.lua``."""
    return _value(next(flat), flat)


def _value(head: Any, rest: Iterator[Any]) -> Reply:
    if head is True:
        count = next(rest)
        return [_value(it, rest) if it is True or it is False else it for it in islice(rest, count)] if count else []
    return None if head is False else head


def _is_doubt(results: Any) -> bool:
    """Whether the script asks for an identity read for this very call. Here every one is."""
    return isinstance(results, tuple) and results[0] == -1 and results[1].startswith(DOUBTED.encode())


def _words(problem: Any) -> str:
    return problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
