"""A group one of whose scripts dies between two writes, as when the user's permission for a command is withdrawn."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from functools import cache

import attrs
from tests.coordinator.backends import START_MS, MemoryBackend
from tests.coordinator.driver import SETTINGS, Group

from cobalance.coordinator.replies import CoordinatorReply
from cobalance.coordinator.requests import Header, Request, Tick
from cobalance.errors import ScriptFailed
from cobalance.settings import GroupSettings

LOOKED_AT = 5
"""The data is checked after this many calls after the one that dies, and at the end."""


@cache
def _store() -> MemoryBackend:
    return MemoryBackend("luajit21")


def _backend() -> MemoryBackend:
    """As good as new; a new one would have to compile all scripts."""
    backend = _store()
    backend.now_ms = START_MS
    backend.store.begin_anew(0, clock_us=backend.store.clock_us, identity="redis-1")
    return backend


Story = Callable[["TornGroup"], None]


@attrs.define
class Death:
    """Which call dies, at which of its writes, and who calls next."""

    call: int
    write: int
    other_first: bool = False


class TornGroup(Group):
    """Makes calls as usual. The one that dies is repeated, as by a session that got no answer."""

    def __init__(self, settings: GroupSettings = SETTINGS, death: Death | None = None, *, create: bool = True) -> None:
        self.memory = _backend()
        self.calls: list[tuple[str, int]] = []
        """Verb and number of writes of each call."""
        self.died = ""
        self._death = death
        super().__init__(self.memory, settings, create=create)

    def execute(self, request: Request) -> CoordinatorReply:
        """Sends a request, again if it dies; checks the data from then on."""
        is_fatal = self._death is not None and self._death.call == len(self.calls)
        store = self.memory.store
        store.die_at(self._death.write if self._death and is_fatal else 0)
        try:
            reply = self.coordinator.execute(request)
        except ScriptFailed as failure:
            self.died = str(failure)
            reply = self._go_on(request)
        self.calls.append((request.payload.verb, store.writes))
        if self._death and 0 <= len(self.calls) - self._death.call <= LOOKED_AT:
            self.check()
        return reply

    def _go_on(self, request: Request) -> CoordinatorReply:
        if self._death and self._death.other_first:
            self.coordinator.execute(Request(Header(member="-", number=0), Tick()))
            self.check()
        return self.coordinator.execute(request)

    def check(self) -> None:
        """In addition, nothing is granted twice under one token."""
        super().check()
        granted = Counter((it["resource"], it["token"]) for it in self.journal("granted"))
        assert not [it for it, count in granted.items() if count > 1], "a token is granted twice"


def settle_down(group: Group) -> None:
    """Everything continues as usual: finally everything is held, and worked by its holder."""
    group.run(group.settings.session_timeout_ms + group.settings.revocation_timeout_ms)
    group.drain()
    group.run(2 * group.settings.heartbeat_interval_ms)
    group.drain()
    group.check()
    assert all(row.known for row in group.coordinator.subscriptions()), "a list is not known"
    records = group.records()
    for name, record in records.resources.items():
        if record.status != "halted":
            assert record.status == "held", f"{name} is {record.status}"
            held = group.members[record.owner].holds.get(name)
            assert held is not None, f"{record.owner} does not know that it holds {name}"
            assert held.token == record.token, f"{record.owner} works {name} under an old token"
    for member in group.members.values():
        if not member.is_over and not member.silent:
            assert set(member.holds) == set(records.owned_by(member.id)), f"{member.id} works what is not its own"


def tell(story: Story, settings: GroupSettings, death: Death | None, *, create: bool = True) -> TornGroup:
    """A story with or without a death, and how it ends."""
    group = TornGroup(settings, death, create=create)
    story(group)
    settle_down(group)
    return group
