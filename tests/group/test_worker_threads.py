"""Threads for plain functions: they do not keep the process alive, and are reused."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar
from typing import Any

import anyio
import anyio.from_thread
import anyio.lowlevel
import pytest
from tests.names import unique
from tests.rabbitmq.wire.test_shortages import NO_THREAD, Shortage

from cobalance import Group
from cobalance.errors import CobalanceError, OutOfThreads
from cobalance.threads import worker_threads
from cobalance.threads.worker_threads import SharedCall, WorkerThreads, in_thread

pytestmark = pytest.mark.anyio

WAIT_S = 60

NAME: ContextVar[str] = ContextVar("name")


@pytest.fixture(params=["asyncio", "trio"])
def anyio_backend(request: pytest.FixtureRequest) -> str:
    return str(request.param)


async def test_a_thread_is_a_daemon_and_used_again() -> None:
    """What a program stores in it (such as a connection) is there the next time."""
    threads = WorkerThreads()
    found = [await threads.run(threading.current_thread) for _ in range(20)]
    assert all(thread.daemon for thread in found)
    assert len(set(found)) < 5  # trio's may alternate


async def test_what_a_function_raises_is_raised() -> None:
    """Even if it is not an Exception."""

    def leave() -> None:
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        await WorkerThreads().run(leave)


@pytest.mark.parametrize("run", [WorkerThreads().run, in_thread], ids=["worker thread", "new thread"])
async def test_a_function_may_go_back_to_the_event_loop_or_have_one_of_its_own(run: Any) -> None:
    """It sees the context variables of its caller."""
    NAME.set("outer")
    main, loop = threading.get_ident(), anyio.lowlevel.current_token()

    async def get_ident() -> int:
        return threading.get_ident()

    def function() -> tuple[str, int, int]:
        own = anyio.run(get_ident)
        return NAME.get(), anyio.from_thread.run(get_ident, token=loop), own

    name, back, own = await run(function)
    assert (name, back) == ("outer", main)
    assert own != main


@pytest.mark.parametrize("end", ["return", "patience"])
async def test_a_cancellation_waits_for_a_running_function(end: str) -> None:
    """But no longer than the patience lasts."""
    begun, go_on, patience = threading.Event(), threading.Event(), anyio.CancelScope(shield=True)
    story: list[str] = []

    def function() -> None:
        begun.set()
        go_on.wait()
        story.append("returned")

    async def run(threads: WorkerThreads, scope: anyio.CancelScope) -> None:
        with scope:
            await threads.run_to_end(function, lambda: patience)
        story.append("over")

    scope = anyio.CancelScope()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(run, WorkerThreads(), scope)
        await anyio.to_thread.run_sync(begun.wait)
        scope.cancel()
        await anyio.wait_all_tasks_blocked()
        assert story == []
        if end == "patience":
            patience.cancel()
            await anyio.wait_all_tasks_blocked()
            assert story == ["over"]
        go_on.set()
    assert story[0] == ("returned" if end == "return" else "over")


async def test_a_cancelled_call_that_has_not_begun_never_does() -> None:
    """It is not awaited either."""
    called: list[Any] = []
    note: Callable[[], None] = lambda: called.append(1)  # noqa: E731
    with anyio.CancelScope() as scope:
        scope.cancel()
        await WorkerThreads().run_to_end(note, lambda: anyio.CancelScope(shield=True))
    assert called == []


@pytest.mark.parametrize(
    "make",
    [lambda: WorkerThreads().run, lambda: in_thread, lambda: lambda call: SharedCall(call).result()],
    ids=["worker thread", "new thread", "shared call"],
)
async def test_a_call_waits_for_a_thread_that_the_system_refuses(make: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """For a while; then the error says what to raise."""
    shortage = Shortage(monkeypatch, threading.Thread, "start", NO_THREAD)
    pause = anyio.sleep

    async def end_shortage(seconds: float) -> None:
        shortage.lasts = False
        await pause(seconds)

    monkeypatch.setattr(anyio, "sleep", end_shortage)
    shortage.lasts = True
    assert await make()(lambda: 7) == 7
    assert shortage.met.is_set()
    monkeypatch.setattr(worker_threads, "PATIENCE_S", 0)
    shortage.lasts = True
    with pytest.raises(OutOfThreads, match="ulimit -u"):
        await make()(lambda: 7)


async def test_once_the_program_ends_no_thread_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Python 3.12 gives none any more. What is ours holds up the event loop instead; the program's functions, which may
    call back into it, are refused.
    """
    at_the_end = RuntimeError("can't create new thread at interpreter shutdown")
    Shortage(monkeypatch, threading.Thread, "start", at_the_end).lasts = True
    monkeypatch.setattr(worker_threads, "PATIENCE_S", 1_000)
    assert await in_thread(threading.current_thread) is threading.current_thread()
    assert await SharedCall(threading.current_thread).result() is threading.current_thread()
    with pytest.raises(OutOfThreads, match="once a program ends"):
        await WorkerThreads().run(threading.current_thread)


async def test_a_membership_that_ends_without_a_thread_does_not_blame_the_program(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Log and health say what there is no more of."""
    shortage = Shortage(monkeypatch, threading.Thread, "start", NO_THREAD)
    monkeypatch.setattr(worker_threads, "PATIENCE_S", 0)
    group = Group("g", redis_url=f"memory://{unique('threads')}", on_assigned=lambda _: None)
    await group.start()
    shortage.lasts = True
    group.declare(["r"], 1)
    with anyio.fail_after(60):
        await group.wait_left()
    shortage.lasts = False
    assert isinstance(group.failed, OutOfThreads)
    assert "program's code" not in f"{caplog.text} {group.health.reasons}"
    assert "ulimit -u" in caplog.text
    with pytest.raises(OutOfThreads):
        await group.stop()


async def test_tasks_of_several_event_loops_share_a_call(anyio_backend: str) -> None:
    """Each gets an error of its own, since raising one adds to its traceback."""
    begun, go_on, errors = list[None](), threading.Event(), list[CobalanceError]()

    def fail() -> None:
        begun.append(None)
        assert go_on.wait(WAIT_S)
        raise CobalanceError("in vain")

    async def wait() -> None:
        with pytest.raises(CobalanceError, match="in vain") as raised:
            await call.result()
        errors.append(raised.value)

    async def wait_twice(ready: threading.Barrier) -> None:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(wait)
            tasks.start_soon(wait)
            await anyio.wait_all_tasks_blocked()
            ready.wait(WAIT_S)

    call, ready = SharedCall(fail), threading.Barrier(3)
    loops = [threading.Thread(target=lambda: anyio.run(wait_twice, ready, backend=anyio_backend)) for _ in range(2)]
    for loop in loops:
        loop.start()
    ready.wait(WAIT_S)
    go_on.set()
    for loop in loops:
        loop.join(WAIT_S)
    assert (len(begun), len(set(map(id, errors)))) == (1, 4)
    await wait()
    assert len(begun) == 2
