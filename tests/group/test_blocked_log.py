"""A log handler that does not return, as when nobody reads the pipe behind it, stops no member."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator

import anyio
import pytest
from tests.consumers import WITHIN_S, until
from tests.faults.proxy import FaultProxy
from tests.names import unique

from cobalance import Group, GroupSettings, Tenure
from cobalance.threads.log_lines import MOST_WAITING, ServiceThread, flush

pytestmark = pytest.mark.anyio

SETTINGS = GroupSettings(session_timeout_ms=1_500, heartbeat_interval_ms=250, revocation_timeout_ms=1_500, gather_ms=0)


class Stuck(logging.Handler):
    """Blocks at its first line until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks, self.released = threading.Event(), threading.Event()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.blocks.set()
        assert self.released.wait(WITHIN_S)
        self.lines.append(record.getMessage())


@pytest.fixture
def stuck() -> Iterator[Stuck]:
    it, log = Stuck(), logging.getLogger("cobalance")
    flush()
    log.addHandler(it)
    log.setLevel(logging.INFO)
    yield it
    it.released.set()
    flush()
    log.setLevel(logging.NOTSET)
    log.removeHandler(it)


async def test_a_member_cut_off_stops_before_its_successor_begins(redis_admin_url: str, stuck: Stuck) -> None:
    """And both can be left. What they had to say is said when the log goes on."""
    name, working, overlaps = unique("stuck"), set[str](), list[str]()

    def member(who: str, url: str) -> Group:
        async def work(tenure: Tenure) -> None:
            overlaps.extend(working)
            working.add(who)
            await tenure.wait_draining()
            working.remove(who)

        return Group(name, ["r"], redis_url=url, settings=SETTINGS, work=work)

    with anyio.fail_after(WITHIN_S), FaultProxy(int(redis_admin_url.rpartition(":")[2].partition("/")[0])) as proxy:
        async with member("first", proxy.through(redis_admin_url)) as first:
            await first.wait_held()
            await until(stuck.blocks.is_set)
            async with member("second", redis_admin_url) as second:
                proxy.black_hole()
                await second.wait_held()
                await until(lambda: working == {"second"})
                proxy.heal()
        assert not overlaps
        assert not stuck.lines
    stuck.released.set()
    await until(lambda: len([it for it in stuck.lines if "left after" in it]) == 2)
    assert f"group {name}: stops 1 (r): its session may have ended" in stuck.lines


async def test_what_a_group_said_is_written_when_it_has_been_left(stuck: Stuck) -> None:
    """Unless the log takes longer than a second."""
    stuck.released.set()
    async with Group("g", ["r"], redis_url=f"memory://{unique('said')}", settings=SETTINGS) as group:
        await group.wait_held()
    assert [it for it in stuck.lines if "left after" in it]


async def test_lines_that_nobody_takes_are_counted(stuck: Stuck) -> None:
    """So that a log that is stuck for good costs no more than some memory."""
    log, many = logging.getLogger("cobalance"), MOST_WAITING + 10

    def serve() -> None:
        for number in range(many):
            log.info("line %d", number)

    service = ServiceThread(serve, "service")
    service.start()
    service.join(WITHIN_S)
    assert not service.is_alive()
    stuck.released.set()
    await until(lambda: stuck.lines and "were left out" in stuck.lines[-1])
    *written, last = stuck.lines
    assert written == [f"line {number}" for number in range(len(written))]
    assert last.startswith(f"{many - len(written)} log lines were left out")


async def test_a_handler_that_fails_does_not_end_the_log(stuck: Stuck, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its error is shown as that of any thread."""
    shown = list[object]()
    monkeypatch.setattr(threading, "excepthook", lambda of: shown.append(of.exc_value))
    monkeypatch.setattr(stuck, "emit", lambda record: stuck.lines.append(str(1 // (record.levelno - logging.INFO))))
    log = logging.getLogger("cobalance")

    def serve() -> None:
        log.info("fails")
        log.warning("is written")

    ServiceThread(serve, "service").start()
    await until(lambda: stuck.lines)
    assert [type(it) for it in shown] == [ZeroDivisionError]


class Exiting(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        raise SystemExit(record.getMessage())


def test_a_handler_that_exits_silences_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """It ends the writer of one line, not of all that follow."""
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    exiting, lines, log = Exiting(), list[str](), logging.getLogger("cobalance.group")
    logging.getLogger("cobalance").addHandler(exiting)
    thread = ServiceThread(lambda: log.warning("one"), "exits")
    thread.start()
    thread.join()
    flush()
    logging.getLogger("cobalance").removeHandler(exiting)
    noting = logging.Handler()
    noting.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    log.addHandler(noting)
    thread = ServiceThread(lambda: log.warning("two"), "goes on")
    thread.start()
    thread.join()
    flush()
    log.removeHandler(noting)
    assert lines == ["two"]
