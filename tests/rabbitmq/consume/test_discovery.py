"""Looking for queues while Redis comes and goes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import anyio
import anyio.to_thread
import pytest

from cobalance.errors import UnknownGroup, Unreachable
from cobalance.rabbitmq.consume.discovery import Discovery
from cobalance.rabbitmq.topics.layouts import Look


class Flaky:
    """A coordinator and a source whose Redis is lost during a look."""

    group, id = "g", "s"

    def __init__(self, *troubles: Exception) -> None:
        self.troubles = list(troubles)

    def state(self) -> dict[str, str]:
        return {"recovering": "0", "heard": "5"}

    def declared(self, _: str) -> list[str]:
        return []

    def resources(self) -> list[Any]:
        return []

    def look(self, *_: object) -> Look:
        return Look(("q",))

    def subscriptions(self) -> list[Any]:
        """The last request of a look."""
        if self.troubles:
            raise self.troubles.pop(0)
        return []


def discovery_of(
    it: Any,
    declare: Callable[[tuple[str, ...], int], None] = lambda *_: None,
    *,
    refresh_ms: int = 1,
    head: Callable[[], str | None] = lambda: "m",
) -> Discovery:
    """Of a head that looks all the time."""
    return Discovery(
        *(it, it),
        refresh_ms=refresh_ms,
        head=head,
        is_connected=lambda: True,
        declare=declare,
        step_down=lambda: None,
    )


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_a_redis_that_is_lost_during_a_look_ends_nobody() -> None:
    """Not even at its last request: the next look finds what there is."""
    declared: list[tuple[tuple[str, ...], int]] = []
    found = anyio.Event()

    def declare(names: tuple[str, ...], version: int) -> None:
        declared.append((names, version))
        found.set()

    flaky: Any = Flaky(Unreachable("gone"), UnknownGroup("empty"))
    discovery = discovery_of(flaky, declare)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(discovery.run)
        with anyio.fail_after(60):
            await found.wait()
        tasks.cancel_scope.cancel()
    assert declared[0] == (("q",), 5)


class Unchanged(Flaky):
    """Has not changed for long, and would be looked at in an hour."""

    def __init__(self) -> None:
        super().__init__()
        self.looks, self.again = 0, threading.Event()

    def look(self, *_: object) -> Look:
        self.looks += 1
        if self.looks > 1:
            self.again.set()
        return Look(None, again_in_ms=3_600_000)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_who_wants_to_look_often_does() -> None:
    """Also where a source has not changed for long: there are others, and the program says how soon they are noticed."""
    unchanged: Any = Unchanged()
    discovery = discovery_of(unchanged)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(discovery.run)
        assert await anyio.to_thread.run_sync(unchanged.again.wait, 10)
        tasks.cancel_scope.cancel()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_who_has_joined_anew_looks_at_once() -> None:
    """Redis may have lost the list, which nobody else declares."""
    unchanged: Any = Unchanged()
    ids = iter(["m.1", "m.1", *50 * ["m.2"]])
    discovery = discovery_of(unchanged, refresh_ms=3_600_000, head=lambda: next(ids))
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(discovery.run)
        assert await anyio.to_thread.run_sync(unchanged.again.wait, 10)
        tasks.cancel_scope.cancel()
    assert unchanged.looks == 2


class Slow(Flaky):
    """Still looks when its connection is closed, which raises."""

    def __init__(self) -> None:
        super().__init__()
        self.looking, self.closed, self.ended = threading.Event(), threading.Event(), threading.Event()

    def look(self, *_: object) -> Look:
        self.looking.set()
        self.closed.wait(60)
        threading.Timer(0, self._tell_end, [threading.current_thread()]).start()
        raise Unreachable("closed")

    def _tell_end(self, looking: threading.Thread) -> None:
        looking.join()
        self.ended.set()


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio", "trio"])
async def test_a_member_that_leaves_in_the_middle_of_a_look_says_nothing_of_it(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Its connections were closed on purpose, so there is nothing to report."""
    slow: Any = Slow()
    discovery = discovery_of(slow)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(discovery.run)
        assert await anyio.to_thread.run_sync(slow.looking.wait, 10)
        tasks.cancel_scope.cancel()
    slow.closed.set()
    assert await anyio.to_thread.run_sync(slow.ended.wait, 10)
    assert not caplog.records
