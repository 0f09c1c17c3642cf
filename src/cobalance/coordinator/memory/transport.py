"""``memory://NAME``: the coordinator inside this process, for tests and single-process programs."""

from __future__ import annotations

from collections.abc import Sequence

from cobalance.coordinator.entries import hint_version, read_entries
from cobalance.coordinator.keys import DEFAULT_PREFIX, group_names
from cobalance.coordinator.memory.store import ONE_AT_A_TIME, MemoryStore
from cobalance.coordinator.transport import LISTENING, OnHint, Reply, Script
from cobalance.errors import Unreachable

_stores: dict[str, MemoryStore] = {}

_READ_STREAM = Script.of("read_stream", "return redis.call('XRANGE', KEYS[1], ARGV[1], '+', 'COUNT', ARGV[2])")


class MemoryTransport:
    """Runs scripts in a :class:`MemoryStore`, which several transports may share."""

    born_empty = True
    """Nothing can have been held before its groups were created, so a new group need not wait for claims."""

    def __init__(self, store: MemoryStore) -> None:
        self.store = store
        self._closed = False

    @classmethod
    def named(cls, name: str) -> MemoryTransport:
        """A transport to this process's store of that name, which is created on first use and kept until the process
        ends.
        """
        with ONE_AT_A_TIME:
            if name not in _stores:
                _stores[name] = MemoryStore()
            return cls(_stores[name])

    def __repr__(self) -> str:
        return f"<MemoryTransport on {self.store.engine}>"

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        self._check_open()
        return self.store.run(script, keys, args, identify=True)

    def listen(self, on_hint: OnHint) -> MemoryListener:
        """Hints arrive on the publisher's thread, after its script has ended."""
        self._check_open()
        return MemoryListener(self.store, on_hint)

    def read_stream(self, key: str, after: str, count: int) -> list[tuple[str, dict[str, str]]]:
        self._check_open()
        return read_entries(self.store.run(_READ_STREAM, [key], [f"({after}", count]))

    def list_groups(self, key_prefix: str = DEFAULT_PREFIX) -> list[str]:
        self._check_open()
        return group_names((key.key.decode() for key in self.store.dump()), key_prefix)

    def close(self) -> None:
        """Closes this transport; the store remains."""
        self._closed = True

    def _check_open(self) -> None:
        if self._closed:
            raise Unreachable("This transport to memory:// was closed: open another.")


class MemoryListener:
    """Receives hints of one store."""

    def __init__(self, store: MemoryStore, on_hint: OnHint) -> None:
        self._store = store
        self._on_hint = on_hint
        self._channels: set[str] = set()

    def subscribe(self, channel: str) -> None:
        """Starts listening, and says so at once."""
        if channel in self._channels:
            return
        self._channels.add(channel)
        self._store.subscribe(channel, self._deliver)
        self._on_hint(channel, LISTENING)

    def unsubscribe(self, channel: str) -> None:
        self._channels.discard(channel)
        self._store.unsubscribe(channel, self._deliver)

    def renew(self) -> None:
        """Does nothing: there is no connection."""

    def close(self) -> None:
        """Stops listening to all channels."""
        for channel in tuple(self._channels):
            self.unsubscribe(channel)

    def _deliver(self, channel: str, message: bytes) -> None:
        if channel in self._channels:
            self._on_hint(channel, hint_version(message))
