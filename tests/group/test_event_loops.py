"""A member returns what it holds, and says why, if the event loop ends, tasks are cancelled from outside, or callbacks
hang.
"""

from __future__ import annotations

import asyncio
import itertools
import sys
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import nullcontext
from typing import Any

import anyio
import anyio.to_thread
import attrs
import pytest
import trio
from tests.names import unique
from tests.programs import create_group

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import GroupFailed, UsageError
from cobalance.group.blocking_group import BlockingGroup
from cobalance.group.group import Group
from cobalance.group.tenure import Tenure
from cobalance.member.session import Phase
from cobalance.settings import GroupSettings, MemberSettings
from cobalance.threads.event_loop import Attendance, running_event_loop
from cobalance.threads.log_lines import flush
from cobalance.threads.portal import now

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=60_000, gather_ms=0
)
WITHIN_S = 60.0

_count = itertools.count()


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture
def make() -> Callable[..., Group]:
    place = f"memory://event-loops-{next(_count)}"
    return lambda **options: Group("g", ["r0"], redis_url=place, settings=SETTINGS, **options)


def ends(program: Callable[[], object]) -> BaseException | None:
    """Waits for the end, which is not taken for granted, and returns what was raised."""
    raised: list[BaseException | None] = [None]

    def run() -> None:
        try:
            program()
        except BaseException as error:  # noqa: BLE001 -- checked by the caller
            raised[0] = error

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(WITHIN_S)
    assert not thread.is_alive(), "it does not end"
    return raised[0]


async def cancel_everything() -> None:
    """Cancels all tasks, as programs do that end their loop by hand."""
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for other in others:
        other.cancel()
    await asyncio.wait(others)


@pytest.mark.parametrize("ending", ["main returns", "everything is cancelled", "sys.exit"])
def test_an_event_loop_that_ends_ends_the_membership(redis_url: str, ending: str) -> None:
    """All tasks are cancelled then, including the group's: everything held is returned at once, and nothing waits
    forever.
    """
    name, held = unique("ends"), threading.Event()
    create_group(redis_url, name, SETTINGS)

    async def work(tenure: Tenure) -> None:
        held.set()
        if ending == "sys.exit":
            sys.exit(3)
        await tenure.wait_draining()

    async def member() -> None:
        async with Group(name, ["r0"], redis_url=redis_url, settings=SETTINGS, work=work):
            await asyncio.sleep(3_600)

    async def main() -> None:
        task = asyncio.create_task(member())
        await asyncio.to_thread(held.wait)
        if ending == "everything is cancelled":
            await cancel_everything()
            assert task.cancelled()
        elif ending == "sys.exit":
            await task

    with pytest.raises(SystemExit) if ending == "sys.exit" else nullcontext():
        asyncio.run(main())
    transport = open_transport(redis_url)
    assert Coordinator(transport, name).state()["members"] == "0"
    transport.close()


@pytest.mark.parametrize("in_group", [False, True], ids=["alone", "in a group"])
@pytest.mark.parametrize("where", ["work", "on_assigned", "on_revoked", "on_lost"])
def test_code_that_awaits_something_cancelled_has_failed(
    where: str, in_group: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """The CancelledError comes from another task, so it must not silently end the membership."""

    async def fail(_: object) -> None:
        if where == "on_lost":
            assert group.tenures == {}
        cancelled = asyncio.get_running_loop().create_future()
        cancelled.cancel()
        try:
            await cancelled
        except asyncio.CancelledError as error:
            raise BaseExceptionGroup("", [error]) if in_group else error from None

    async def work(tenure: Tenure) -> None:
        tenure.scope.cancel()

    options: dict[str, Any] = {where: fail} | ({"work": work} if where == "on_lost" else {})
    group = Group("cancelled", ["r0"], redis_url=f"memory://{unique(where)}", settings=SETTINGS, **options)

    async def member() -> None:
        async with group:
            if where == "on_revoked":
                (tenure,) = await group.wait_held()
                tenure.ask_back()
            await asyncio.sleep(3_600)

    with pytest.raises(UsageError, match="cancelled"):
        asyncio.run(member())
    assert "ends the membership" in caplog.text


@pytest.mark.anyio
async def test_an_on_assigned_that_hangs_costs_its_resource(make: Callable[..., Group]) -> None:
    """Like a hanging handler: it is cancelled and given up, and another member gets the resource."""
    lost, cancelled = anyio.Event(), anyio.Event()

    async def hang(_: list[Tenure]) -> None:
        try:
            await anyio.sleep_forever()
        finally:
            cancelled.set()

    async def note(_: list[Tenure]) -> None:
        lost.set()

    own = MemberSettings(max_processing_ms=300, drain_timeout_ms=60_000)
    async with make(on_assigned=hang, on_lost=note, member=own), make() as b:
        with anyio.fail_after(WITHIN_S):
            await cancelled.wait()
            await b.wait_held("r0")
            await lost.wait()


@pytest.mark.anyio
@pytest.mark.parametrize("where", ["on_assigned", "on_lost"])
async def test_a_callback_that_hangs_does_not_keep_a_member_from_leaving(
    make: Callable[..., Group], where: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is cancelled after the drain timeout."""
    hangs = anyio.Event()

    async def hang(_: list[Tenure]) -> None:
        hangs.set()
        await anyio.sleep_forever()

    async def work(tenure: Tenure) -> None:
        if not hangs.is_set():
            tenure.scope.cancel()
        await tenure.wait_draining()

    options: dict[str, Any] = {where: hang} | ({"work": work} if where == "on_lost" else {})
    with anyio.fail_after(WITHIN_S):
        async with make(**options, member=MemberSettings(drain_timeout_ms=300)):
            await hangs.wait()
    if where == "on_lost":
        assert "on_lost" in caplog.text


@pytest.mark.parametrize("backend", ["asyncio", "trio", "threads"])
def test_a_plain_on_lost_is_waited_for_on_leaving(backend: str) -> None:
    """Up to its own limit, like an async one, though the membership is over."""
    begun, go_on, ended = threading.Event(), threading.Event(), threading.Event()

    def lost(_: object) -> None:
        begun.set()
        go_on.wait(2)  # If r0 comes back before the leave, the leave waits for the new tenure, and that for this.
        ended.set()

    def let_go_on(group: Group) -> None:
        """Once nothing else is waited for."""
        end_services = group.membership.tasks.end_services

        def end_services_and_go_on() -> None:
            end_services()
            threading.Timer(0.2, go_on.set).start()

        group.membership.tasks.end_services = end_services_and_go_on  # type: ignore[method-assign]

    async def stay() -> None:
        async with Group("g", ["r0"], redis_url=f"memory://{unique('loops')}", on_lost=lost) as group:
            let_go_on(group)
            (tenure,) = await group.wait_held("r0")
            tenure.scope.cancel()
            await anyio.to_thread.run_sync(begun.wait)

    def stay_in_threads() -> None:
        with BlockingGroup("g", ["r0"], redis_url=f"memory://{unique('loops')}", on_lost=lost) as group:
            let_go_on(group._group)
            (tenure,) = group.wait_held("r0")
            group._event_loop.call(now, tenure._inner.scope.cancel)
            assert begun.wait(WITHIN_S)

    stay_in_threads() if backend == "threads" else anyio.run(stay, backend=backend)
    assert ended.is_set()


SLOW = GroupSettings(
    session_timeout_ms=60_000, heartbeat_interval_ms=250, revocation_timeout_ms=60_000, rejoin_grace_ms=0, gather_ms=0
)
"""Nothing is assigned just because a session has expired."""

_remains: list[Group] = []
"""Tasks of closed loops: Python would complain when it collects them, during some other test."""


def holds(place: str, *resources: str) -> None:
    """Another member soon gets what the first one had."""
    names = resources or ("r0",)

    async def main() -> None:
        with anyio.fail_after(WITHIN_S):
            async with Group("g", names, redis_url=place, settings=SLOW) as group:
                await group.wait_held(*names)

    anyio.run(main)


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_was_closed_costs_what_it_held(backend: str, caplog: pytest.LogCaptureFixture) -> None:
    """The member's own threads go on, but nothing works the resource: the loss is logged, and others get it at once."""
    place = f"memory://event-loops-{next(_count)}"
    group = Group("g", ["r0"], redis_url=place, settings=SLOW)

    async def enter() -> None:
        await group.__aenter__()
        await group.wait_held("r0")

    if backend == "trio":
        with pytest.raises(trio.TrioInternalError):
            trio.run(enter)
    else:
        loop = asyncio.new_event_loop()
        loop.run_until_complete(enter())
        loop.close()
    _remains.append(group)
    holds(place)
    assert group.membership.engine.wait_left(WITHIN_S)
    assert "its event loop was closed" in caplog.text
    assert [it.levelname for it in caplog.records if "event loop" in it.message] == ["ERROR"]


def test_a_loop_that_was_closed_over_a_running_handler_lets_it_finish(caplog: pytest.LogCaptureFixture) -> None:
    """The handler may be in a thread, so nobody else gets the resource before the drain timeout."""
    place = f"memory://event-loops-{next(_count)}"
    begun = threading.Event()

    async def work(tenure: Tenure) -> None:
        with tenure.processing():
            begun.set()
            await anyio.sleep_forever()

    async def enter() -> None:
        await group.__aenter__()
        await anyio.to_thread.run_sync(begun.wait)

    own = MemberSettings(drain_timeout_ms=1_000)
    brief = attrs.evolve(SETTINGS, session_timeout_ms=3_000)
    group = Group("g", ["r0"], redis_url=place, settings=brief, work=work, member=own)
    loop = asyncio.new_event_loop()
    loop.run_until_complete(enter())
    loop.close()
    closed = time.monotonic()
    _remains.append(group)
    holds(place)
    assert time.monotonic() - closed > 1
    assert "its event loop was closed" in caplog.text


def test_a_loop_that_is_stopped_for_too_long_costs_what_it_held(caplog: pytest.LogCaptureFixture) -> None:
    """Like a hanging handler. The program learns of it when the loop goes on."""
    place = f"memory://event-loops-{next(_count)}"
    own = MemberSettings(max_processing_ms=300, drain_timeout_ms=300)
    loop = asyncio.new_event_loop()
    held = loop.create_future()

    async def member() -> None:
        async with Group("g", ["r0"], redis_url=place, settings=SLOW, member=own) as group:
            await group.wait_held("r0")
            held.set_result(None)
            await asyncio.sleep(3_600)

    task = loop.create_task(member())
    loop.run_until_complete(held)
    holds(place)
    assert "its event loop has not run for" in caplog.text
    with pytest.raises(GroupFailed, match="has not run"):
        loop.run_until_complete(task)
    loop.close()


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_loop_that_is_blocked_for_too_long_costs_what_it_held(backend: str) -> None:
    """Also what is idle. The process leaves, and learns of it when its loop goes on."""
    place = f"memory://event-loops-{next(_count)}"
    own = MemberSettings(max_processing_ms=300, drain_timeout_ms=300)
    blocks, goes_on = threading.Event(), threading.Event()

    async def member() -> None:
        finished = anyio.Event()

        async def work(tenure: Tenure) -> None:
            if tenure.resource == "r1":
                finished.set()
                return
            await finished.wait()
            with tenure.processing():
                blocks.set()
                goes_on.wait(WITHIN_S)

        async with Group("g", ["r0", "r1"], redis_url=place, settings=SLOW, member=own, work=work):
            await anyio.sleep_forever()

    raised: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: raised.append(ends(lambda: anyio.run(member, backend=backend))))
    thread.start()
    assert blocks.wait(WITHIN_S)
    holds(place, "r0", "r1")
    goes_on.set()
    thread.join()
    assert isinstance(raised[0], GroupFailed)
    assert "its event loop has been blocked for" in str(raised[0])


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_what_a_blocked_loop_never_began_goes_to_another_member(backend: str) -> None:
    """The rest may be worked by what blocks the loop, as far as anybody can tell, and so is kept."""
    place = f"memory://event-loops-{next(_count)}"
    own = MemberSettings(max_processing_ms=300, drain_timeout_ms=300)

    async def main() -> None:
        first = BlockingGroup("g", ["r0"], redis_url=place, settings=SLOW)
        first.start()
        async with Group("g", ["r0", "r1"], redis_url=place, settings=SLOW, member=own) as blocked:
            await blocked.wait_held("r1")
            first.stop()
            with BlockingGroup("g", ["r0"], redis_url=place, settings=SLOW) as second:
                second.wait_held("r0", timeout=WITHIN_S)  # in the event loop, which it blocks
                assert list(blocked.tenures) == ["r1"]

    anyio.run(main, backend=backend)


class LookedAtAsItResigns(Group):
    """Its engine looks once at what it holds, after a leader's block has ended and before its event loop goes on."""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self.looking, self.looked = threading.Lock(), threading.Event()
        self._sample, self._resign = self.membership.sample, self.membership.resign
        self.membership.sample, self.membership.resign = self.sample, self.resign  # type: ignore[method-assign]

    def sample(self) -> Iterator[Any]:
        with self.looking:
            yield from self._sample()
            self.looked.set()

    def resign(self, tenure: Tenure) -> None:
        self.looked.clear()
        self.looking.release()
        assert self.looked.wait(WITHIN_S)
        self._resign(tenure)


def test_a_leader_s_block_that_computes_keeps_its_role() -> None:
    """Though it blocks the event loop, and `work` has returned; what nothing works goes to another member. Nor is it
    taken for idle if it is looked at when the block has just ended and the loop has yet to go on.
    """
    place = f"memory://event-loops-{next(_count)}"
    own = MemberSettings(max_processing_ms=300, drain_timeout_ms=300)
    computes, goes_on = threading.Event(), threading.Event()

    async def prepare(_: Tenure) -> None: ...

    async def member() -> None:
        group = LookedAtAsItResigns("g", ["r0", "role"], redis_url=place, settings=SLOW, member=own, work=prepare)
        async with group, group.leadership("role") as role:
            await group.wait_held("r0", "role")
            computes.set()
            goes_on.wait(WITHIN_S)
            assert not role.lost
            group.looking.acquire()  # until it resigns

    raised: list[BaseException | None] = []
    thread = threading.Thread(target=lambda: raised.append(ends(lambda: anyio.run(member))))
    thread.start()
    assert computes.wait(WITHIN_S)
    try:
        holds(place, "r0")
    finally:
        goes_on.set()
        thread.join()
    assert raised == [None]


@pytest.mark.parametrize("how", ["entered", "generator"])
def test_an_event_loop_ends_though_a_group_was_not_left(
    how: str, make: Callable[..., Group], caplog: pytest.LogCaptureFixture
) -> None:
    """It was entered by hand, or in a generator that was left by `break`: asyncio cancels the group's tasks, and they
    leave.
    """
    groups: list[Group] = []

    async def member() -> AsyncIterator[Group]:
        async with make() as group:
            await group.wait_held("r0")
            yield group

    async def main() -> None:
        if how == "entered":
            groups.append(await make().__aenter__())
            await groups[0].wait_held("r0")
            return
        keep.append(member())
        async for group in keep[0]:
            groups.append(group)
            break

    keep: list[AsyncIterator[Group]] = []
    assert ends(lambda: asyncio.run(main())) is None
    assert groups[0].membership.engine.wait_left(WITHIN_S)
    assert groups[0].membership.engine.session.phase is Phase.LEFT
    assert "cancelled" in caplog.text


@pytest.mark.parametrize("how", ["at once", "on returning"])
@pytest.mark.parametrize("where", ["work", "on_assigned", "on_revoked", "on_lost"])
def test_code_that_cancels_its_own_task_has_failed(make: Callable[..., Group], where: str, how: str) -> None:
    """The task belongs to the group. The body is cancelled and learns why."""

    async def cancel(_: object) -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        if how == "at once":
            await asyncio.sleep(0)

    async def work(tenure: Tenure) -> None:
        tenure.scope.cancel()

    options: dict[str, Any] = {where: cancel} | ({"work": work} if where == "on_lost" else {})

    async def member() -> None:
        async with make(**options) as group:
            (tenure,) = await group.wait_held()
            if where == "on_revoked":
                tenure.ask_back()
            await asyncio.sleep(3_600)

    error = ends(lambda: asyncio.run(member()))
    assert isinstance(error, UsageError), error
    assert "was cancelled" in str(error)


@pytest.mark.anyio
@pytest.mark.parametrize("how", ["leave", "aexit"])
@pytest.mark.parametrize("where", ["work", "on_assigned", "on_revoked", "on_lost"])
async def test_leaving_where_it_would_wait_for_itself_is_refused(
    make: Callable[..., Group], where: str, how: str
) -> None:
    """Leaving waits for work and callbacks."""
    refused = anyio.Event()

    async def leave(_: object) -> None:
        with pytest.raises(UsageError, match="wait for itself"):
            await (group.leave() if how == "leave" else group.__aexit__(None, None, None))
        refused.set()

    async def work(tenure: Tenure) -> None:
        tenure.scope.cancel()

    options: dict[str, Any] = {where: leave} | ({"work": work} if where == "on_lost" else {})
    group = make(**options, member=MemberSettings(drain_timeout_ms=60_000))
    with anyio.fail_after(WITHIN_S):
        async with group:
            await (group.wait_held() if where == "on_revoked" else refused.wait())
    assert refused.is_set()


@pytest.mark.anyio
async def test_leaving_from_work_in_a_task_of_its_own_is_allowed(make: Callable[..., Group]) -> None:
    """Work ends when it is asked to."""

    async def work(tenure: Tenure) -> None:
        tasks.start_soon(group.leave)
        await tenure.wait_draining()

    with anyio.fail_after(WITHIN_S):
        async with anyio.create_task_group() as tasks, make(work=work) as group:
            await group.wait_left()


@pytest.mark.anyio
async def test_a_group_is_entered_once(make: Callable[..., Group]) -> None:
    """Neither twice at the same time, which does no harm, nor again later."""
    async with make() as group:
        with pytest.raises(UsageError, match="make another"):
            await group.__aenter__()
        await group.wait_held("r0")
    with pytest.raises(UsageError, match="make another"):
        await group.__aenter__()


class Blocked:
    """An event loop that runs nothing."""

    def state(self) -> str:
        return "running"

    def run_soon(self, _: object) -> None: ...


def looks(attendance: Attendance, *times: int) -> list[int | None]:
    return [attendance.blocked_since(now) for now in times]


def test_a_loop_is_blocked_once_it_has_not_answered_for_long_enough() -> None:
    """Looked at four times as often."""
    loop: Any = Blocked()
    assert looks(Attendance(loop, 1_000), *range(0, 1_500, 250)) == [None] * 5 + [0]


def test_a_stopped_process_has_not_blocked_its_loop() -> None:
    """SIGSTOP, or a machine that was paused: however long that was, the loop has time afterwards."""
    loop: Any = Blocked()
    attendance = Attendance(loop, 1_000)
    assert looks(attendance, 0, 250, 90_000, 90_250) == [None] * 4
    assert looks(attendance, 90_500)[-1] is not None


@pytest.mark.anyio
async def test_a_loop_may_answer_at_any_moment() -> None:
    """Also while the engine's thread looks whether it has: threads take turns here at every instruction, nearly."""
    attendance, interval = Attendance(running_event_loop(), 300_000), sys.getswitchinterval()

    async def answer_always() -> None:
        while True:
            await anyio.lowlevel.checkpoint()

    sys.setswitchinterval(1e-6)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(answer_always)
            looked = await anyio.to_thread.run_sync(lambda: looks(attendance, *range(10_000)))
            tasks.cancel_scope.cancel()
    finally:
        sys.setswitchinterval(interval)
    assert looked == [None] * 10_000


def test_work_that_goes_on_in_a_thread_keeps_its_resource(caplog: pytest.LogCaptureFixture) -> None:
    """Though it marked steps before and does not mark this one, and other work blocks the event loop."""
    place = f"memory://event-loops-{next(_count)}"
    own = MemberSettings(max_processing_ms=300, drain_timeout_ms=300)
    said, goes_on = threading.Event(), threading.Event()

    async def member() -> None:
        marked = anyio.Event()

        async def work(tenure: Tenure) -> None:
            if tenure.resource == "r1":
                with tenure.processing():
                    await anyio.lowlevel.checkpoint()
                marked.set()
                await anyio.to_thread.run_sync(goes_on.wait)
            elif tenure.resource == "r2":
                return
            await marked.wait()
            while not ("so this process gives up" in caplog.text or goes_on.is_set()):
                flush()
            said.set()
            goes_on.wait(WITHIN_S)
            await tenure.wait_draining()

        async with Group("g", ["r0", "r1", "r2"], redis_url=place, settings=SLOW, member=own, work=work):
            await anyio.to_thread.run_sync(goes_on.wait)

    thread = threading.Thread(target=lambda: anyio.run(member))
    thread.start()
    assert said.wait(WITHIN_S)
    assert "so this process gives up r2\n" in caplog.text
    goes_on.set()
    thread.join()
