"""A machine that was suspended: time has passed for the coordinator, and not for what was running."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence

import anyio
import anyio.lowlevel
import pytest
from tests.names import unique

from cobalance import Group, GroupSettings, MemberSettings, Tenure
from cobalance.coordinator.memory.store import MemoryStore
from cobalance.coordinator.transport import Reply, Script
from cobalance.group import clock
from cobalance.rabbitmq.consume.watch import Watch
from cobalance.testing.transport import OwnTransport

pytestmark = pytest.mark.anyio

WITHIN_S = 60.0
HOUR_MS = 3_600_000


class Lid:
    """Closing it for a while stops the clocks that stop in a suspended machine."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._asleep_ns = 0
        read = time.clock_gettime_ns
        monkeypatch.setattr(time, "clock_gettime_ns", lambda it: read(it) + self._asleep_ns)

    def close_for(self, ms: int) -> None:
        self._asleep_ns += ms * 1_000_000


@pytest.fixture
def lid(monkeypatch: pytest.MonkeyPatch) -> Lid:
    return Lid(monkeypatch)


class Network(OwnTransport):
    """Counts the calls."""

    def __init__(self) -> None:
        super().__init__(MemoryStore())
        self.counts: Counter[str] = Counter()

    def call(self, script: Script, keys: Sequence[str], args: Sequence[str | int | bytes]) -> Reply:
        self.counts[script.name] += 1
        return super().call(script, keys, args)


def test_the_clock_counts_what_the_machine_sleeps(lid: Lid) -> None:
    """The other one does not."""
    before = clock.monotonic_ms(), clock.awake_ms()
    lid.close_for(HOUR_MS)
    assert clock.monotonic_ms() - before[0] >= HOUR_MS
    assert clock.awake_ms() - before[1] < HOUR_MS


async def test_a_machine_that_wakes_up_works_nothing_any_more(lid: Lid) -> None:
    """Its session is over, though it has not heard so, and its next heartbeat is minutes away."""
    network = Network()
    settings = GroupSettings(
        session_timeout_ms=HOUR_MS, heartbeat_interval_ms=HOUR_MS // 3, revocation_timeout_ms=HOUR_MS
    )
    begun, over = anyio.Event(), anyio.Event()

    async def work(tenure: Tenure) -> None:
        begun.set()
        try:
            await tenure.wait_draining()
        finally:
            over.set()

    with anyio.fail_after(WITHIN_S):
        async with Group(unique("lid"), ["r"], transport=network, settings=settings, work=work) as group:
            await begun.wait()
            network.is_cut = True
            lid.close_for(HOUR_MS)
            await over.wait()
            assert not group.tenures
            network.is_cut = False


async def test_what_slept_with_the_machine_does_not_hang(lid: Lid) -> None:
    """Nor did the event loop."""
    network = Network()
    settings = GroupSettings(session_timeout_ms=HOUR_MS, heartbeat_interval_ms=50, revocation_timeout_ms=HOUR_MS)
    member = MemberSettings(max_processing_ms=HOUR_MS // 10)
    begun, go_on = anyio.Event(), anyio.Event()

    async def work(tenure: Tenure) -> None:
        with tenure.processing():
            begun.set()
            await go_on.wait()
        await tenure.wait_draining()

    with anyio.fail_after(WITHIN_S):
        async with Group(unique("lid"), ["r"], transport=network, settings=settings, member=member, work=work) as group:
            await begun.wait()
            token = group.tenures["r"].token
            lid.close_for(HOUR_MS // 2)
            beats = network.counts["heartbeat"]
            while network.counts["heartbeat"] < beats + 4:
                await anyio.lowlevel.checkpoint()
            assert group.tenures["r"].token == token
            assert not group.given_up
            go_on.set()


def test_a_message_s_handler_that_slept_is_not_overdue(lid: Lid) -> None:
    """Nor is it hung for the session."""
    watch = Watch(MemberSettings(max_processing_ms=1_000, drain_timeout_ms=1_000), lambda _: None)
    watch.begin()
    lid.close_for(HOUR_MS)
    assert not watch.is_overdue
    assert watch.busy_since is not None
    assert watch.busy_since <= clock.awake_ms()
