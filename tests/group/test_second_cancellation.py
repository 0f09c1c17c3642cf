"""Asyncio's own cancellation ignores shields: a handler's thread is awaited even so, or its resource is not given to
others.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import suppress

import anyio
import pytest
from tests.consumers import PATIENT, WITHIN_S, Place, new_topic, until
from tests.names import unique

from cobalance import Group
from cobalance.errors import UsageError
from cobalance.rabbitmq import Delivery
from cobalance.settings import MemberSettings
from cobalance.threads.worker_threads import WorkerThreads

pytestmark = pytest.mark.anyio


class Blocking:
    """A handler whose thread does not return until it is released."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()

    def handle(self, _: Delivery) -> None:
        self.begun.set()
        self.go_on.wait()


async def cancel(task: asyncio.Task[None], times: int) -> None:
    """Cancels this many times, each time after the last one has taken effect."""
    for _ in range(times):
        task.cancel()
        await anyio.wait_all_tasks_blocked()


async def test_a_thread_is_waited_for_however_often_its_task_is_cancelled() -> None:
    """Until it has returned."""
    begun, go_on, returned = threading.Event(), threading.Event(), threading.Event()

    def function() -> None:
        begun.set()
        go_on.wait()
        returned.set()

    task = asyncio.create_task(WorkerThreads().run_to_end(function, lambda: anyio.CancelScope(shield=True)))
    await asyncio.to_thread(begun.wait)
    await cancel(task, 3)
    assert not task.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await task
    assert returned.is_set()


async def test_the_patience_still_ends() -> None:
    """After that the thread is left alone."""
    begun, go_on = threading.Event(), threading.Event()

    def function() -> None:
        begun.set()
        go_on.wait()

    patience = anyio.CancelScope(shield=True)
    task = asyncio.create_task(WorkerThreads().run_to_end(function, lambda: patience))
    await asyncio.to_thread(begun.wait)
    await cancel(task, 2)
    patience.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()


async def cancel_work(times: int) -> None:
    """Cancels all of the loop's tasks, as at its end."""
    for _ in range(times):
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            if task.get_name().endswith("._run"):
                task.cancel()
        await anyio.wait_all_tasks_blocked()


async def test_a_worker_cancelled_twice_releases_nothing_before_its_thread_has_returned(here: Place) -> None:
    """After that the membership ends, with a reason."""
    blocking = Blocking()
    own = MemberSettings(drain_timeout_ms=60_000)

    async def be_a_member() -> None:
        async with here.member(topic, blocking.handle, member=own):
            await until(blocking.begun.is_set)
            await cancel_work(2)
            assert here.journal("released", "abandoned") == []
            blocking.go_on.set()
            with anyio.fail_after(WITHIN_S):
                await asyncio.Event().wait()

    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)
        try:
            with pytest.raises(UsageError, match="was cancelled"):
                await be_a_member()
            assert here.journal("abandoned")
        finally:
            blocking.go_on.set()


async def test_a_leave_that_is_cut_short_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """In a line that says when others get what it held; and its last call is not made a problem of Redis."""
    name, go_on, begun = unique("cut-short"), threading.Event(), asyncio.Event()

    def wait_for_the_end() -> None:
        go_on.wait()

    async def be_a_member() -> None:
        async with Group(name, ["r"], redis_url=f"memory://{name}", settings=PATIENT) as group:
            await group.wait_held()
            group.membership.engine._calls.put(wait_for_the_end)
            begun.set()
            await asyncio.sleep(3_600)

    task = asyncio.create_task(be_a_member())
    await begun.wait()
    calls = next(it for it in threading.enumerate() if it.name == f"cobalance-{name}-calls")
    await cancel(task, 2)
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    await asyncio.to_thread(calls.join, WITHIN_S)
    warnings = [it.message for it in caplog.records if it.levelno >= logging.WARNING]
    assert len(warnings) == 1
    assert "until its session has expired" in warnings[0]


async def test_a_member_cancelled_twice_releases_nothing_that_a_thread_works(
    here: Place, caplog: pytest.LogCaptureFixture
) -> None:
    """It ends at once, as requested. Others get the resource only after its session has expired, and the log names what
    goes on.
    """
    blocking = Blocking()
    own = MemberSettings(drain_timeout_ms=60_000)
    with new_topic(here.amqp_url) as topic:
        here.publish(topic, 1)

        async def be_a_member() -> None:
            async with here.member(topic, blocking.handle, member=own):
                await asyncio.sleep(3_600)

        try:
            task = asyncio.create_task(be_a_member())
            await until(blocking.begun.is_set)
            await cancel(task, 2)
            with anyio.fail_after(PATIENT.session_timeout_ms / 1000), suppress(asyncio.CancelledError):
                await task
            assert here.journal("released", "abandoned") == []
            assert here.resources()[topic.queue_names[0]].owner
            assert f"{topic.queue_names[0]} may go on" in caplog.text
        finally:
            blocking.go_on.set()
