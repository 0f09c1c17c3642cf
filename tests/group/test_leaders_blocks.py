"""The block of a leader that does not stop at once: nobody else leads before it has ended, however its tenure ends."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.lowlevel
import pytest
from tests.names import unique

from cobalance import BlockingGroup, BlockingTenure, Group, MemberSettings, Tenure
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.requests import Header, Leave, Request
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=250, gather_ms=0)
WITHIN_S = 60.0

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


@pytest.fixture
def url() -> str:
    return f"memory://{unique('leaders')}"


def make(url: str, **options: Any) -> Group:
    return Group("g", ["role"], redis_url=url, settings=SETTINGS, **options)


class Stage:
    """A first leader, whose block cleans up until it is allowed to end, and those that follow it."""

    def __init__(self) -> None:
        self.leads, self.cleans, self.done, self.followed = (anyio.Event() for _ in range(4))
        self.story: list[str] = []

    async def lead(self, group: Group, then: Callable[[Tenure], object]) -> None:
        async with group.leadership() as tenure:
            self.leads.set()
            then(tenure)
            try:
                with tenure.processing():
                    await anyio.sleep_forever()
            finally:
                with anyio.move_on_after(WITHIN_S, shield=True):
                    self.cleans.set()
                    await self.done.wait()
                    self.story.append("the first block ends")

    async def follow(self, group: Group) -> None:
        async with group.leadership():
            self.story.append("the next one leads")
            self.followed.set()

    async def let_it_end(self, *groups: Group) -> None:
        """Once the groups have heard what there was to hear."""
        for group in groups * 3:
            await group.membership.confirm_held()
        self.done.set()
        await self.followed.wait()
        assert self.story == ["the first block ends", "the next one leads"]


@pytest.mark.parametrize("end", ["hung", "cancelled", "failed"])
async def test_another_member_waits_for_it(url: str, end: str) -> None:
    """Like for a work function."""
    stage = Stage()

    async def work(_: Tenure) -> None:
        await stage.leads.wait()
        if end == "failed":
            raise LookupError
        await anyio.sleep_forever()

    async def be_first() -> None:
        own = MemberSettings(max_processing_ms=300 if end == "hung" else 9_000, drain_timeout_ms=9_000)
        async with make(url, work=work, member=own) as a:
            members.append(a)
            await stage.lead(a, lambda tenure: tenure.scope.cancel() if end == "cancelled" else None)
            await anyio.sleep_forever()

    async def be_first_to_the_end() -> None:
        try:
            await be_first()
        except LookupError:
            failures.append(end)

    members: list[Group] = []
    failures: list[str] = []
    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(be_first_to_the_end)
            await stage.cleans.wait()
            async with make(url) as b:
                tasks.start_soon(stage.follow, b)
                await stage.let_it_end(*members, b)
                if end != "failed":
                    tasks.cancel_scope.cancel()
    assert failures == (["failed"] if end == "failed" else [])


async def test_so_does_another_task_of_its_process(url: str) -> None:
    """The member has lost the role, and has got it back."""
    stage = Stage()
    with anyio.fail_after(WITHIN_S):
        async with make(url) as group, anyio.create_task_group() as tasks:
            tasks.start_soon(stage.lead, group, lambda _: end_session(url, group))
            await stage.cleans.wait()
            tasks.start_soon(stage.follow, group)
            await group.wait_held("role")
            await stage.let_it_end(group)


class Turns:
    """What several blocks for one role in one process do: of each, the token; and how many ever led at a time."""

    def __init__(self) -> None:
        self.tokens, self.leading, self.most = list[int](), 0, 0

    def begins(self, token: int) -> None:
        self.tokens.append(token)
        self.leading += 1
        self.most = max(self.most, self.leading)

    def ends(self) -> None:
        self.leading -= 1


async def test_of_several_blocks_in_one_process_one_leads_at_a_time(url: str) -> None:
    """Each is a candidate of its own: the next one leads when the first has passed the role on, under another token."""
    turns = Turns()

    async def lead(group: Group) -> None:
        async with group.leadership() as tenure:
            turns.begins(tenure.token)
            await group.membership.confirm_held()
            turns.ends()

    with anyio.fail_after(WITHIN_S):
        async with make(url) as group, anyio.create_task_group() as tasks:
            for _ in range(3):
                tasks.start_soon(lead, group)
    assert turns.most == 1
    assert len(set(turns.tokens)) == 3


def test_of_several_blocks_in_threads_one_leads_at_a_time(url: str) -> None:
    """The same in a program without async."""
    turns = Turns()

    def lead() -> None:
        with group.leadership() as tenure:
            turns.begins(tenure.token)
            group.describe()
            turns.ends()

    with BlockingGroup("g", ["role"], redis_url=url, settings=SETTINGS) as group:
        threads = [threading.Thread(target=lead) for _ in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(WITHIN_S)
    assert turns.most == 1
    assert len(set(turns.tokens)) == 3


async def test_a_block_leads_once_a_role_that_was_asked_back_is_kept_after_all(url: str) -> None:
    """It began to wait in between."""
    works, leads = anyio.Event(), anyio.Event()

    async def work(_: Tenure) -> None:
        works.set()
        await leads.wait()

    async def lead(group: Group) -> None:
        async with group.leadership():
            leads.set()

    with anyio.fail_after(WITHIN_S):
        async with make(url, work=work) as group, anyio.create_task_group() as tasks:
            await works.wait()
            member, (tenure,) = group.membership, group.tenures.values()
            ask_back(group, tenure)
            await tenure.wait_draining()
            tasks.start_soon(lead, group)
            await member.confirm_held()
            member.keep(tenure.resource, tenure.token)
            member.flush()
            await leads.wait()


@pytest.mark.parametrize("ends", ["by itself", "asked back"])
async def test_a_role_whose_block_has_ended_is_passed_on_even_if_it_is_kept_after_all(url: str, ends: str) -> None:
    """Its work still cleans up when the group asks for the role, and when it does not want it any more."""
    ended, cleaned, followed = anyio.Event(), anyio.Event(), anyio.Event()

    async def work(tenure: Tenure) -> None:
        await tenure.wait_draining()
        await cleaned.wait()

    async def lead(group: Group) -> None:
        async with group.leadership() as tenure:
            if ends == "asked back":
                ask_back(group, tenure)
                await anyio.sleep_forever()
        ended.set()

    async def follow(group: Group) -> None:
        async with group.leadership():
            followed.set()

    with anyio.fail_after(WITHIN_S):
        async with make(url, work=work) as a, make(url) as b, anyio.create_task_group() as tasks:
            (tenure,) = await a.wait_held("role")
            tasks.start_soon(follow, b)
            tasks.start_soon(lead, a)
            await ended.wait()
            if ends == "by itself":
                ask_back(a, tenure)
            a.membership.keep(tenure.resource, tenure.token)
            a.membership.flush()
            await a.membership.confirm_held()
            cleaned.set()
            await followed.wait()


async def test_a_block_begins_once_on_assigned_has_returned(url: str) -> None:
    """Like work."""
    assigns, may_return = anyio.Event(), anyio.Event()
    story: list[str] = []

    async def assigned(_: list[Tenure]) -> None:
        assigns.set()
        await may_return.wait()
        story.append("on_assigned returns")

    async def lead(group: Group) -> None:
        async with group.leadership():
            story.append("leads")

    with anyio.fail_after(WITHIN_S):
        async with make(url, on_assigned=assigned) as group, anyio.create_task_group() as tasks:
            tasks.start_soon(lead, group)
            await assigns.wait()
            await group.wait_held("role")
            await group.membership.confirm_held()
            may_return.set()
    assert story[:2] == ["on_assigned returns", "leads"]  # the role that the block has left may be assigned again


def test_a_block_in_a_thread_may_outlast_the_membership(url: str) -> None:
    """It is waited for as long as work would be; afterwards it ends by itself."""
    go_on, ends = threading.Event(), threading.Event()
    member = MemberSettings(drain_timeout_ms=200)
    settings = GroupSettings(session_timeout_ms=900, heartbeat_interval_ms=250, gather_ms=0)  # it waits for its end
    group = BlockingGroup("g", ["role"], redis_url=url, settings=settings, member=member)
    leads: list[BlockingTenure] = []

    def lead() -> None:
        with group.leadership() as tenure:
            leads.append(tenure)
            assert tenure.wait_draining(WITHIN_S)
            go_on.wait(WITHIN_S)
        ends.set()

    group.start()
    leader = threading.Thread(target=lead)
    leader.start()
    group.wait_held("role", timeout=WITHIN_S)
    anyio.run(until, lambda: bool(leads))
    group.stop()
    go_on.set()
    leader.join(WITHIN_S)
    assert ends.is_set()


def ask_back(group: Group, tenure: Tenure) -> None:
    """As the engine does."""
    group.membership.drain(tenure.resource, tenure.token, 60_000)
    group.membership.flush()


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(WITHIN_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


def end_session(url: str, group: Group) -> None:
    """Makes the member leave behind its back; it learns of that with its next heartbeat."""
    transport = open_transport(url)
    line = group.membership.engine.session.line
    header = Header(line.member, line._number + 1_000, line.incarnation, 0, 0)
    Coordinator(transport, group.name).execute(Request(header, Leave()))
    transport.close()
