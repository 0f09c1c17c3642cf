"""The Redis of the world: the production scripts on an in-memory store, with a clock, an identity and a memory that may fail."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import journal_key
from cobalance.coordinator.memory import MemoryTransport
from cobalance.coordinator.memory_store import MemoryStore, Snapshot
from cobalance.journal import JournalEntry
from cobalance.settings import GroupSettings
from cobalance_sims.ledger import Ledger

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance_sims.clock import Clock

START_MS = 1_800_000_000_000
GROUP = "g"
PAGE = 1_000


@attrs.frozen
class Memory:
    """What a stale replica, or yesterday's backup, remembers."""

    at: int
    store: Snapshot
    ledger: Ledger
    read_to: str


class RedisServer:
    """Runs requests, and reads after each what its scripts wrote into the journal."""

    def __init__(
        self,
        clock: Clock,
        settings: GroupSettings,
        *,
        lua: str | None,
        seed: int,
        on_entry: Callable[[JournalEntry], None],
        store: MemoryStore | None = None,
    ) -> None:
        self.clock, self.settings = clock, settings
        self.skew_ms = 0
        """How far its clock is set off."""
        self.up = True
        self.lost_data = 0
        """How many times it forgot something."""
        self.disturbed_at = 0
        """When it last was unreachable, forgot something, or had its clock set: promises with a bound count from here."""
        self.ledger = Ledger()
        self.memory: Memory | None = None
        self.store = store or MemoryStore(lua=lua)
        self.store.begin_anew(seed, clock_us=self._clock_us, identity="redis-1")
        self.transport = MemoryTransport(self.store)
        self.coordinator = Coordinator(self.transport, GROUP)
        self.heard_at = 0
        self._longest_silence_ms = 2 * settings.heartbeat_interval_ms
        self._identities = 1
        self._version = 0
        self._on_entry = on_entry
        self._read_to = "0"

    def _clock_us(self) -> int:
        return (START_MS + self.clock.now + self.skew_ms) * 1_000

    @property
    def now_ms(self) -> int:
        """What its clock shows."""
        return START_MS + self.clock.now + self.skew_ms

    def create(self) -> None:
        """Makes the group, known to be new."""
        self.coordinator.create(self.settings)
        self.read_journal()
        self.ledger.recovering = False  # a created group has nothing to recover

    def execute(self, request: Request) -> CoordinatorReply:
        """Runs a request."""
        now = self.clock.now
        if now - self.heard_at > self._longest_silence_ms:
            self.disturbed_at = now  # the group forgives everybody for a silence
        self.heard_at = now
        reply = self.coordinator.execute(request)
        if reply.version != self._version:
            self._version = reply.version
            self.read_journal()
        return reply

    def read_journal(self) -> None:
        """Takes in what was written since the last time."""
        while True:
            page = self.transport.read_stream(journal_key(GROUP), self._read_to, PAGE)
            for id_, fields in page:
                self._read_to = id_
                self._on_entry(JournalEntry.read(id_, fields))
            if len(page) < PAGE:
                return

    # -- what may happen to it -----------------------------------------------------------------------------------------

    def disturbed(self) -> None:
        """Something bad happens to it now."""
        self.disturbed_at = self.clock.now

    def set_up(self, *, up: bool) -> None:
        """Reachable, or not."""
        self.up = up
        self.disturbed()

    def step_clock(self, ms: int) -> None:
        """Somebody sets its clock."""
        self.skew_ms += ms
        self.disturbed()

    def remember(self) -> None:
        """Makes the snapshot that may come back later."""
        self.memory = Memory(self.clock.now, self.store.snapshot(), self.ledger.copy(), self._read_to)

    def empty(self) -> None:
        """Everything is forgotten."""
        self.store.flush()
        self.ledger, self._read_to = Ledger(), "0"
        self._forgot()

    def restore(self) -> None:
        """The snapshot comes back. Without one, nothing happens."""
        if self.memory is None:
            return
        self.store.restore(self.memory.store)
        self.ledger, self._read_to = self.memory.ledger.copy(), self.memory.read_to
        self._forgot()

    def replace(self) -> None:
        """Another server answers from now on: another run id."""
        self._identities += 1
        self.store.identity = f"redis-{self._identities}"
        self.disturbed()

    def _forgot(self) -> None:
        self._version = -1
        self.lost_data += 1
        self.disturbed()
