"""Members of one group in this process, on a Redis that is about to fail, and what must still be true afterwards."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import anyio
import attrs
from tests.faults.eventually import LOOK_EVERY_S, WITHIN_S, eventually

from cobalance import Group, Tenure
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import CommitOutcomeUnknown, Fenced, NotHeld, OffsetRegressed
from cobalance.journal import Journal
from cobalance.settings import GroupSettings, MemberSettings

SETTINGS = GroupSettings(
    session_timeout_ms=3_000, heartbeat_interval_ms=150, revocation_timeout_ms=3_000, gather_ms=0, rejoin_grace_ms=0
)
PATIENT = attrs.evolve(SETTINGS, session_timeout_ms=5_000, revocation_timeout_ms=5_000)
"""A failover takes two or three seconds."""
NAMES = ("r0", "r1", "r2", "r3")


@attrs.define
class Member:
    """One member, and what its callbacks recorded."""

    group: Group = attrs.field(init=False)
    lost: list[str] = attrs.field(factory=list)
    stopped_at: dict[str, float] = attrs.field(factory=dict)
    """When its work on a resource last ended, on the event loop's clock."""

    @property
    def held(self) -> dict[str, int]:
        """Resource → token."""
        return {name: it.token for name, it in self.group.tenures.items() if it.active}


class Team:
    """Members that share NAMES."""

    def __init__(self, url: str, settings: GroupSettings, name: str, stack: AsyncExitStack) -> None:
        self.name, self.url, self.settings = name, url, settings
        self.members: list[Member] = []
        self.committed: dict[str, int] = {}
        """The offsets that the coordinator reported as stored."""
        self.highest: dict[str, int] = {}
        """Resource → highest token of any tenure so far."""
        self._stack = stack

    async def join(self) -> Member:
        member = Member()

        async def work(tenure: Tenure) -> None:
            assert tenure.token > self.highest.get(tenure.resource, 0), "a token that was there before, or a lower one"
            self.highest[tenure.resource] = tenure.token
            assert (tenure.committed or 0) >= self.committed.get(tenure.resource, 0), "a committed offset has fallen"
            try:
                await tenure.wait_draining()
            finally:
                member.stopped_at[tenure.resource] = anyio.current_time()

        async def note_lost(tenures: list[Tenure]) -> None:
            member.lost += [it.resource for it in tenures]

        member.group = Group(
            self.name,
            NAMES,
            redis_url=self.url,
            settings=self.settings,
            member=MemberSettings(drain_timeout_ms=2_000),
            work=work,
            on_lost=note_lost,
        )
        self.members.append(member)
        await self._stack.enter_async_context(member.group)
        return member

    @property
    def held(self) -> list[dict[str, int]]:
        """What each member holds."""
        return [member.held for member in self.members]

    async def settle(self) -> None:
        """Waits until every resource is held, shares differ by one at most, and nothing is pending."""
        sizes = sorted(
            len(NAMES) // len(self.members) + (n < len(NAMES) % len(self.members)) for n in range(len(self.members))
        )
        await eventually(lambda: sorted(map(len, self.held)) == sizes and set().union(*self.held) == set(NAMES))

    async def commit_all(self, offset: int) -> None:
        """Commits as the holder of each resource, however often it takes."""
        for name in NAMES:
            await self.commit(name, offset)

    async def commit(self, name: str, offset: int) -> None:
        """Commits until it is stored."""
        with anyio.fail_after(WITHIN_S):
            while True:
                holder = next((it for it in self.members if name in it.held), None)
                try:
                    if holder is not None:
                        await holder.group.commit(name, offset)
                        break
                except OffsetRegressed:
                    break  # an attempt whose outcome was unknown did arrive
                except (NotHeld, Fenced, CommitOutcomeUnknown):
                    pass
                await anyio.sleep(LOOK_EVERY_S)
        self.committed[name] = offset

    def stored(self) -> dict[str, int | None]:
        """The committed offsets, as the coordinator has them now."""
        return {row.name: row.committed for row in self.members[0].group.membership.coordinator.resources()}

    def kinds(self) -> set[str]:
        """The kinds of transitions in the group's journal."""
        transport = self.members[0].group.membership.coordinator.transport
        return {entry.kind for entry in Journal(transport, self.name).entries()}


@asynccontextmanager
async def team(url: str, size: int = 2, settings: GroupSettings = SETTINGS, name: str = "") -> AsyncIterator[Team]:
    """Members that have settled, in a group known to be new."""
    async with AsyncExitStack() as stack:
        made = Team(url, settings, name or f"team-{uuid.uuid4().hex[:8]}", stack)
        transport = open_transport(url)
        Coordinator(transport, made.name).create(settings)
        transport.close()
        for _ in range(size):
            await made.join()
        await made.settle()
        yield made
