"""Requests go first; an errand waits once, however often it is asked for."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence

import anyio
import pytest

from cobalance import Group, GroupSettings
from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.memory.transport import MemoryTransport
from cobalance.coordinator.requests import Header, Heartbeat, Report, Request
from cobalance.coordinator.transport import Reply, Script
from cobalance.group.calls import ERRAND_MS, Calls

WITHIN_S = 60.0
HEARTBEAT = Request(Header("a", 1), Heartbeat())


class Clock:
    now_ms = 0

    def __call__(self) -> int:
        return self.now_ms


def one() -> None: ...


def other() -> None: ...


def test_requests_go_first() -> None:
    """Whatever errands were asked for before them."""
    calls = Calls(Clock())
    calls.ask(one)
    calls.ask(other)
    calls.put(HEARTBEAT)
    assert [calls.get() for _ in range(3)] == [HEARTBEAT, one, other]


def test_an_errand_waits_once() -> None:
    """And again if it is asked for while it runs, after a pause."""
    clock = Clock()
    calls = Calls(clock)
    for _ in range(1_000):
        calls.ask(one)
    assert calls.get() is one
    for _ in range(1_000):
        calls.ask(one)
    calls.ask(other)
    assert calls.get() is other
    calls.put(HEARTBEAT)
    assert calls.get() is HEARTBEAT
    clock.now_ms += ERRAND_MS
    assert calls.get() is one
    calls.put(None)
    assert calls.get() is None


class Slow(MemoryTransport):
    """Each report takes until somebody lets it pass."""

    def __init__(self, store: MemoryStore) -> None:
        super().__init__(store)
        self.counts: Counter[str] = Counter()
        self.reporting, self.passes = threading.Event(), threading.Event()

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        self.counts[script.name] += 1
        if script.name == "report":
            self.reporting.set()
            assert self.passes.wait(WITHIN_S)
        return super().call(script, keys, args)


@pytest.mark.anyio
@pytest.mark.parametrize("anyio_backend", ["asyncio"])
async def test_who_asks_ever_so_often_costs_no_heartbeat(anyio_backend: str) -> None:
    """A hundred people look at a group whose Redis is slow: the next heartbeat waits for one answer, not for all."""
    del anyio_backend
    store = MemoryStore()
    slow, admin = Slow(store), Coordinator(MemoryTransport(store), "g")
    settings = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=100, gather_ms=0)
    with anyio.fail_after(WITHIN_S):
        async with Group("g", ["r"], transport=slow, settings=settings) as group:
            await group.wait_held("r")
            for _ in range(100):
                admin.execute(Request(Header("-", 0), Report()))
            await anyio.to_thread.run_sync(slow.reporting.wait)
            beats = slow.counts["heartbeat"]
            slow.passes.set()
            while slow.counts["heartbeat"] < beats + 2:
                await anyio.lowlevel.checkpoint()
            assert slow.counts["report"] <= 2
