"""Work whose tenure is asked back and then kept after all: it goes on where it was, and begins nothing twice."""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Callable, Iterator

import anyio
import anyio.lowlevel
import pytest
from tests.faults.eventually import eventually as until
from tests.names import unique

from cobalance import BlockingGroup, BlockingTenure, Group, Tenure
from cobalance.settings import GroupSettings

SETTINGS = GroupSettings(session_timeout_ms=10_000, heartbeat_interval_ms=250, gather_ms=0)
NAMES = ("r0", "r1")
WITHIN_S = 60.0

pytestmark = [pytest.mark.anyio, pytest.mark.both_loops]


def options() -> dict[str, object]:
    return {"redis_url": f"memory://{unique('kept')}", "settings": SETTINGS}


def asked_back(group: Group | BlockingGroup) -> Tenure | BlockingTenure | None:
    return next((it for it in group.tenures.values() if not it.active), None)


class Counting:
    """Counts up while it may, commits each number, and cleans up until it is allowed to return."""

    def __init__(self) -> None:
        self.begun: list[tuple[str, int, int | None]] = []
        self.stopped: set[str] = set()
        self.may_return = threading.Event()

    def begin(self, tenure: Tenure | BlockingTenure) -> Iterator[int]:
        self.begun.append((tenure.resource, tenure.token, tenure.committed))
        for number in itertools.count((tenure.committed or 0) + 1):
            if not tenure.active:
                self.stopped.add(tenure.resource)
                return
            yield number

    async def work(self, tenure: Tenure) -> None:
        for number in self.begin(tenure):
            await tenure.commit(number)
        while not self.may_return.is_set():
            await anyio.lowlevel.checkpoint()

    def blocking_work(self, tenure: BlockingTenure) -> None:
        for number in self.begin(tenure):
            tenure.commit(number)
        self.may_return.wait(WITHIN_S)


async def test_work_that_stopped_goes_on_from_its_last_commit() -> None:
    """In the same tenure: it would otherwise begin with offsets that have been committed."""
    to, counting = options(), Counting()
    async with Group("g", NAMES, work=counting.work, **to) as group:  # type: ignore[arg-type]
        await until(lambda: len(counting.begun) == 2)
        async with Group("g", NAMES, **to):  # type: ignore[arg-type]
            await until(lambda: asked_back(group) is not None)
            asked = asked_back(group)
            assert asked is not None
            await until(lambda: asked.resource in counting.stopped)
        await until(lambda: asked_back(group) is None)
        assert len(counting.begun) == 2
        counting.may_return.set()
        await until(lambda: len(counting.begun) == 3)
        resource, token, committed = counting.begun[2]
        assert (resource, token) == (asked.resource, asked.token)
        assert committed is not None
        assert committed > 0
        await until(lambda: (group.tenures[resource].committed or 0) > committed)


def test_so_does_work_in_a_thread() -> None:
    """The same, with threads."""
    to, counting = options(), Counting()
    with BlockingGroup("g", NAMES, work=counting.blocking_work, **to) as group:  # type: ignore[arg-type]
        anyio.run(until, lambda: len(counting.begun) == 2)
        with BlockingGroup("g", NAMES, **to):  # type: ignore[arg-type]
            anyio.run(until, lambda: asked_back(group) is not None)
            anyio.run(until, lambda: len(counting.stopped) == 1)
        anyio.run(until, lambda: asked_back(group) is None)
        counting.may_return.set()
        anyio.run(until, lambda: len(counting.begun) == 3)
        resource, _, committed = counting.begun[2]
        assert committed is not None
        assert committed > 0
        anyio.run(until, lambda: (group.tenures[resource].committed or 0) > committed)


class Heard(logging.Handler):
    """Tells when the log says something."""

    def __init__(self, what: str) -> None:
        super().__init__()
        self._what, self._said = what, threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        if self._what in record.getMessage():
            self._said.set()

    def wait(self) -> None:
        assert self._said.wait(WITHIN_S), self._what


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Iterator[Callable[[str], Heard]]:
    """Listens for words in the log."""
    log, handlers = logging.getLogger("cobalance"), []
    caplog.set_level("INFO", "cobalance")

    def hear(what: str) -> Heard:
        handlers.append(Heard(what))
        log.addHandler(handlers[-1])
        return handlers[-1]

    yield hear
    for it in handlers:
        log.removeHandler(it)


async def test_work_that_had_returned_before_is_not_called_again(heard: Callable[[str], Heard]) -> None:
    """The event loop stands still while another member comes and goes: it hears of both at once."""
    asked, kept = heard("is to hand over"), heard("after all")
    to = options()
    calls: list[str] = []

    async def work(tenure: Tenure) -> None:
        calls.append(tenure.resource)

    async with Group("g", NAMES, work=work, **to) as group:  # type: ignore[arg-type]
        await until(lambda: len(calls) == 2)
        tokens = {it.resource: it.token for it in group.tenures.values()}
        with BlockingGroup("g", NAMES, **to):  # type: ignore[arg-type]
            asked.wait()
        kept.wait()
        for _ in range(50):
            await anyio.lowlevel.checkpoint()
        await group.commit("r0", 1)
        await group.commit("r1", 1)
        assert {it.resource: it.token for it in group.tenures.values()} == tokens
    assert sorted(calls) == ["r0", "r1"]


async def test_a_commit_counts_though_its_caller_waits_no_longer() -> None:
    """What is committed is what counts, not who has heard of it."""
    async with Group("g", NAMES, **options()) as group:  # type: ignore[arg-type]
        (tenure, _) = await group.wait_held(*NAMES)
        with anyio.CancelScope() as scope:
            scope.cancel()
            await tenure.commit(7)
        await until(lambda: tenure.committed == 7)
        await tenure.commit(8)
        assert tenure.committed == 8
