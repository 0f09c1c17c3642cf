"""The Redis of the world: the production scripts on an in-memory store; clock, identity and memory may fail."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, TypeVar

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import journal_key
from cobalance.coordinator.memory.store import MemoryStore, Snapshot
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.errors import GroupActive, UnknownGroup
from cobalance.journal import JournalEntry
from cobalance.ownership import Ownership
from cobalance.settings import GroupSettings

if TYPE_CHECKING:
    from cobalance.coordinator.replies import CoordinatorReply
    from cobalance.coordinator.requests import Request
    from cobalance_sims.simulate.clock import Clock

T = TypeVar("T")

START_MS = 1_800_000_000_000
GROUP = "g"
PAGE = 1_000
LISTENERS_MS = 30_000
"""Minimum time (or three session timeouts) that a recovery waits for members that listen but do not call."""


@attrs.frozen
class Silence:
    """A time in which nobody called; in world time."""

    began: int
    ended: int


@attrs.frozen
class Backup:
    """The data of a stale replica, or of yesterday's backup."""

    at: int
    store: Snapshot
    ledger: Ownership
    read_to: str


class RedisServer:
    """Runs requests, and after each reads what its scripts wrote into the journal."""

    skew_ms = 0
    """How far its clock is set off."""
    thaws_at = 0
    """Until when it is frozen."""
    has_more = False
    """Whether the last call left work to the next one."""
    unnoticed_until = -1
    """Until when a rollback that no identity reveals may go unnoticed: by then each member's next call has contradicted
    the data, or its lease is over. Until then, two members may work one resource.
    """
    _recovery_ms = LISTENERS_MS
    """How long a recovery may last."""

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
        self.up = True
        self.lost_data = 0
        """How many times it lost data."""
        self.disturbed_at = 0
        """When it last was unreachable, lost data, had its clock set, or received no request for long."""
        self.silences: deque[Silence] = deque(maxlen=64)
        """Those longer than half a session timeout by its clock."""
        self.lulls: deque[Silence] = deque(maxlen=64)
        """Those longer than a heartbeat and a second."""
        self.heard_of: dict[str, int] = {}
        """Member id → when its session was last renewed."""
        self.recovers_by = 0
        """When a recovery after its last loss of data must have ended."""
        self.stood_still_ms = 0
        """How long the group's clock may have stood still: a step back hides the time since the last call."""
        self.ledger = Ownership()
        self.memory: Backup | None = None
        self.store = store or MemoryStore(lua=lua)
        self.store.begin_anew(seed, clock_us=self._clock_us, identity="redis-1")
        self.transport = MemoryTransport(self.store)
        self.coordinator = Coordinator(self.transport, GROUP)
        self.heard_at = 0
        self._ahead_ms = 0
        self._is_unaware = True  # an empty server may be one that forgot
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
        """Creates the group, known to be new."""
        self.coordinator.create(self.settings)
        self.read_journal()
        self.ledger.recovering = self._is_unaware = False  # nothing to recover: its first grant would show that, too

    def execute(self, request: Request) -> CoordinatorReply:
        reply = self.coordinator.execute(request)
        self.has_more = reply.more
        self._note_call()  # a request whose script dies settles nothing
        if reply.status == "OK":
            self.heard_of[request.header.member] = self.clock.now
        if reply.version != self._version:
            self._version = reply.version
            self.read_journal()
        return reply

    def ask(self, do: Callable[[Coordinator], T]) -> T:
        """What is no call of a session: it renews none, and counts as a call only where it settles something."""
        before = self._read_to
        outcome = do(self.coordinator)
        self.read_journal()
        if self._read_to != before:
            self._note_call()
        return outcome

    def _note_call(self) -> None:
        now = self.clock.now
        if 2 * (now - self.heard_at + self._ahead_ms) > self.settings.session_timeout_ms:
            self.silences.append(Silence(self.heard_at, now))
            self.disturbed()
        if now - self.heard_at > self.settings.heartbeat_interval_ms + 1_000:
            self.lulls.append(Silence(self.heard_at, now))
        if self._is_unaware:
            self._lose_certainty()
        self.heard_at, self._ahead_ms, self._is_unaware = now, 0, False

    def read_journal(self) -> None:
        """Reads the entries written since the last time."""
        while True:
            page = self.transport.read_stream(journal_key(GROUP), self._read_to, PAGE)
            for id_, fields in page:
                self._read_to = id_
                self._on_entry(JournalEntry.read(id_, fields))
            if len(page) < PAGE:
                return

    # -- faults --------------------------------------------------------------------------------------------------------

    def disturbed(self) -> None:
        """Notes that a fault happens now."""
        self.disturbed_at = self.clock.now

    def set_up(self, *, up: bool) -> None:
        """Makes it reachable, or unreachable."""
        self.up = up
        self.disturbed()

    def freeze(self, ms: int) -> None:
        self.thaws_at = max(self.thaws_at, self.clock.now + ms)

    def step_clock(self, ms: int) -> None:
        self.skew_ms += ms
        self._ahead_ms += max(ms, 0)
        self.stood_still_ms += min(max(-ms, 0), self.clock.now - self.heard_at)
        self.disturbed()

    def remember(self) -> None:
        """Takes the snapshot that may be restored later."""
        self.memory = Backup(self.clock.now, self.store.snapshot(), self.ledger.copy(), self._read_to)

    def empty(self) -> None:
        self.store.flush()
        self._forget_all()

    def delete(self, *, by_force: bool) -> bool:
        """Deletes the group as an administrator does; returns whether it was deleted."""
        if not self.up or self.clock.now < self.thaws_at:
            return False
        try:
            self.coordinator.delete(force=by_force)
        except UnknownGroup:
            return False
        except GroupActive:
            self._note_call()
            self.read_journal()
            return False
        self._forget_all()
        return True

    def _forget_all(self) -> None:
        self.ledger, self._read_to = Ownership(), "0"
        self._recovery_ms = max(LISTENERS_MS, 3 * self.settings.session_timeout_ms)
        self._forgot()

    def restore(self) -> None:
        """Restores the snapshot. Without one, nothing happens."""
        if self.memory is None:
            return
        self.store.restore(self.memory.store)
        self.ledger, self._read_to = self.memory.ledger.copy(), self.memory.read_to
        settings = self.settings
        unnoticed_ms = settings.session_timeout_ms + 2 * settings.heartbeat_interval_ms
        self._recovery_ms = unnoticed_ms + settings.session_timeout_ms
        self.unnoticed_until = self.clock.now + unnoticed_ms
        self._forgot()

    def replace(self) -> None:
        """Another server answers from now on: another run id."""
        self._identities += 1
        self.store.identity = f"redis-{self._identities}"
        if self.may_be_unnoticed:
            self._recovery_ms, self.unnoticed_until = self.settings.session_timeout_ms, -1
        self._lose_certainty()

    @property
    def may_be_unnoticed(self) -> bool:
        """Whether the data may be older than anyone has noticed."""
        return self.clock.now < self.unnoticed_until

    def forgot_some(self) -> None:
        """Notes that some of its data is gone: members may have to claim what they hold."""
        self._recovery_ms = max(LISTENERS_MS, 3 * self.settings.session_timeout_ms)
        self._forgot()

    def _forgot(self) -> None:
        self._version = -1
        self.lost_data += 1
        self._lose_certainty()

    def _lose_certainty(self) -> None:
        """The first call finds out, and begins a recovery."""
        self._is_unaware, self.recovers_by = True, self.clock.now + self._recovery_ms
        self.disturbed()
