"""Threads that return late, hang or die: the member goes on, or says why not."""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import pytest

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.coordinator.transport import OnHint, Reply, Script
from cobalance.errors import Fenced, GroupFailed, NotHeld, Unreachable
from cobalance.group.assignment import Assignment
from cobalance.group.blocking_group import BlockingGroup
from cobalance.group.group import Group
from cobalance.group.tenure import Tenure
from cobalance.member.events import Abandoned
from cobalance.settings import GroupSettings, MemberSettings

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]

FAST = GroupSettings(
    session_timeout_ms=10_000,
    heartbeat_interval_ms=250,
    revocation_timeout_ms=10_000,
    rejoin_grace_ms=3_000,
    gather_ms=0,
)
MEMBER = MemberSettings(max_processing_ms=500, drain_timeout_ms=2_000)
WITHIN_S = 60.0

_count = itertools.count()


class Way:
    """A transport to Redis that can be interrupted, or broken by a bug."""

    born_empty = True

    def __init__(self, url: str) -> None:
        self._transport = open_transport(url)
        self.away = False
        self.defect: Exception | None = None

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        """Calls the transport, unless interrupted."""
        if self.defect is not None:
            raise self.defect
        if self.away:
            raise Unreachable("away")
        return self._transport.call(script, keys, args)

    def listen(self, on_hint: OnHint) -> Any:
        """Hints always arrive."""
        return self._transport.listen(on_hint)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


@pytest.fixture(params=["memory", "redis"])
def way(request: pytest.FixtureRequest) -> Iterator[Way]:
    memory = request.param == "memory"
    it = Way(f"memory://late-{next(_count)}" if memory else str(request.getfixturevalue("redis_url")))
    yield it
    it.defect, it.away = None, False
    it.close()


@pytest.fixture
def make(way: Way) -> Callable[..., Group]:
    """Creates members of a new group that share a transport."""
    name = f"late-{time.time_ns()}"
    Coordinator(way, name).create(FAST)

    def make(**options: Any) -> Group:
        options = {"transport": way, "member": MEMBER, **options}
        return Group(name, ("r0", "r1"), settings=FAST, **options)

    return make


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(WITHIN_S):
        while not condition():
            await anyio.lowlevel.checkpoint()


async def test_a_callback_that_returns_when_its_resource_was_given_up_ends_nobody(
    make: Callable[..., Group], way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """``on_revoked`` blocks a thread while Redis is away, for longer than ``max_processing_ms``. The member lives on,
    and logs it.
    """
    go_on, blocked, returned = threading.Event(), threading.Event(), threading.Event()

    async def revoked(_: list[Tenure]) -> None:
        if not returned.is_set():
            blocked.set()
            await anyio.to_thread.run_sync(go_on.wait)
            returned.set()

    async with make(on_revoked=revoked) as group:
        try:
            await until(lambda: len(group.tenures) == 2)
            group.tenures["r0"].ask_back()
            await until(blocked.is_set)
            way.away = True
            await until(lambda: re.search(r"'r0' was told to stop \(\w+\) and has not", caplog.text) is not None)
            go_on.set()
            await until(returned.is_set)
            way.away = False
            await until(lambda: len(group.tenures) == 2 and all(it.active for it in group.tenures.values()))
        finally:
            go_on.set()
            way.away = False
    assert "please report this" not in caplog.text


class Hanging:
    """Work whose first handler of r0 hangs. When cancelled, it cleans up until it is released."""

    def __init__(self) -> None:
        self.cleans, self.done = anyio.Event(), anyio.Event()
        self.tokens: list[int] = []
        self.story: list[str] = []

    async def work(self, tenure: Tenure) -> None:
        if tenure.resource == "r0" and not self.tokens:
            self.tokens.append(tenure.token)
            try:
                with tenure.processing():
                    await anyio.sleep_forever()
            finally:
                with anyio.CancelScope(shield=True):
                    self.cleans.set()
                    await self.done.wait()
                    self.story.append("cleaned")
        await tenure.wait_draining()

    async def follow(self, tenure: Tenure) -> None:
        """Works for the next holder."""
        self.story.append(f"begins {tenure.resource}")
        await tenure.wait_draining()


async def test_a_hung_handler_is_released_when_its_cleanup_has_ended(make: Callable[..., Group]) -> None:
    """After it was cancelled, nothing else begins before it has stopped."""
    hanging = Hanging()
    async with make(work=hanging.work, member=MemberSettings(max_processing_ms=500)) as a:
        try:
            await until(hanging.cleans.is_set)
            async with make(work=hanging.follow) as b:
                await until(lambda: "begins r1" in hanging.story)
                assert a.membership.engine.session.holdings.snapshot()["r0"][1] == "aborted"
                assert "r0" not in b.tenures
                hanging.done.set()
                await until(lambda: "begins r0" in hanging.story)
        finally:
            hanging.done.set()
    assert hanging.story.index("cleaned") < hanging.story.index("begins r0")


async def test_a_cleanup_that_does_not_end_is_named(
    make: Callable[..., Group], caplog: pytest.LogCaptureFixture
) -> None:
    """After the drain timeout the next holder begins, and the log says that both may be running."""
    hanging = Hanging()
    async with make(work=hanging.work, member=MemberSettings(max_processing_ms=500, drain_timeout_ms=300)):
        try:
            async with make(work=hanging.follow):
                await until(lambda: "begins r0" in hanging.story)
                assert "the code that works 'r0' has run for" in caplog.text
                assert "'r0' was told to stop (hung) and has not" in caplog.text
        finally:
            hanging.done.set()


@pytest.mark.thorough
async def test_a_resource_that_came_back_behind_a_hung_handler_is_given_up_again(
    make: Callable[..., Group], caplog: pytest.LogCaptureFixture
) -> None:
    """This process cannot work it before the old handler has returned; another one can."""
    hanging = Hanging()
    async with make(work=hanging.work, member=MemberSettings(max_processing_ms=300, drain_timeout_ms=200)):
        try:
            await until(lambda: caplog.text.count("the code that works 'r0' has run for") > 1)
            assert len(hanging.tokens) == 1
            async with make(work=hanging.follow):
                await until(lambda: "begins r0" in hanging.story)
        finally:
            hanging.done.set()


async def goes_wrong(group: Group, what: Callable[[], None]) -> None:
    """Breaks a member whose program waits for nothing."""
    with anyio.fail_after(WITHIN_S):
        async with group:
            await until(lambda: len(group.tenures) == 2)
            what()
            await anyio.sleep_forever()


async def test_a_caller_that_dies_is_told_of(
    make: Callable[..., Group], way: Way, caplog: pytest.LogCaptureFixture
) -> None:
    """A bug on the thread that makes the calls ends the membership, not just the thread."""
    with pytest.raises(GroupFailed, match="internal error"):
        await goes_wrong(make(), lambda: setattr(way, "defect", ValueError("boo")))
    assert "please report this" in caplog.text


async def test_work_that_cannot_be_stopped_because_of_a_defect_is_told_of(
    make: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An error while everything is being stopped does not keep the end from being reported."""
    group = make()
    monkeypatch.setattr(group.membership, "abort", None)
    with pytest.raises(GroupFailed, match="internal error"):
        await goes_wrong(group, lambda: group.membership.engine.post(object()))  # type: ignore[arg-type]


async def test_a_defect_on_the_event_loop_ends_the_member(make: Callable[..., Group]) -> None:
    """The session's decisions are no longer carried out, so nothing may wait for them."""
    group = make()

    def defect() -> None:
        raise ValueError("boo")

    def strike() -> None:
        group.membership._commands.append(defect)
        group.membership._wakeup.notify()

    with pytest.raises(ValueError, match="boo"):
        await goes_wrong(group, strike)


async def test_threads_that_cannot_be_started_are_told_of(
    make: Callable[..., Group], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A process at its thread limit gets an error on entering, without waiting."""
    group = make()

    async def enter() -> None:
        with anyio.fail_after(WITHIN_S):
            await group.__aenter__()

    def refuse() -> None:
        raise RuntimeError("can't start new thread")

    prepare = group._prepare

    async def prepared() -> None:
        await prepare()
        monkeypatch.setattr(group.membership.engine._threads[1], "start", refuse)

    monkeypatch.setattr(group, "_prepare", prepared)
    with pytest.raises(RuntimeError, match="can't start"):
        await enter()


async def test_who_waits_hears_of_a_leave_that_was_cut_short(make: Callable[..., Group], way: Way) -> None:
    """Neither a running commit nor a caller that waits for the end waits forever."""
    begun: list[Tenure] = []
    refused: list[Tenure] = []

    async def work(tenure: Tenure) -> None:
        begun.append(tenure)
        try:
            await tenure.wait_draining()
            await anyio.sleep_forever()
        finally:
            with anyio.CancelScope(shield=True):
                with pytest.raises(Fenced):
                    await tenure.commit(1)
                refused.append(tenure)

    with anyio.fail_after(WITHIN_S):
        group = make(work=work)
        await group.__aenter__()
        await until(lambda: len(begun) == 2)
        way.away = True
        group.membership.abandon()
        await group.__aexit__(None, None, None)
        await group.wait_left()
    assert len(refused) == 2


async def test_nobody_waits_for_what_a_membership_that_is_over_will_never_hold(make: Callable[..., Group]) -> None:
    """Another task has left the group."""
    with anyio.fail_after(WITHIN_S):
        async with make(member=MemberSettings(capacity=0)) as group, anyio.create_task_group() as tasks:
            tasks.start_soon(group.leave)
            with pytest.raises(NotHeld, match="is over"):
                await group.wait_held("r1")


def test_a_failure_beside_a_program_that_goes_on_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """A program that waits for nothing of the group would learn of it only at the end of its ``with``."""

    def work(_: object) -> None:
        raise ValueError("a secret")

    def wait() -> None:
        url = f"memory://late-{next(_count)}"
        with BlockingGroup(
            "g", ("r0",), redis_url=url, settings=FAST, member=MEMBER, work=work, log_exceptions=False
        ) as group:
            group.wait_left(WITHIN_S)

    with pytest.raises(ValueError, match="a secret"):
        wait()
    assert "a ValueError in the program's code" in caplog.text
    assert "a secret" not in caplog.text


async def test_a_member_that_has_failed_begins_nothing_more(make: Callable[..., Group]) -> None:
    """It is about to leave, and may be assigned again what it has just released: its callbacks would be called once
    more.
    """
    posted: list[Any] = []
    group = make()
    group.membership.changed, group.membership.tasks.first_error = anyio.Event(), LookupError("of the program's")
    assert not group.membership._adopt(Assignment("r0", 7, None, posted.append, 0))
    assert posted == [Abandoned("r0", 7, "resigned")]
    assert not group.tenures
