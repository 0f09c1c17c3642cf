"""The group without async: work and callbacks in threads."""

from __future__ import annotations

import itertools
import signal
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import CancelledError, Future
from contextlib import closing, suppress
from typing import Any

import anyio
import attrs
import pytest
from tests.interruptions import Interrupted, interrupted, wait_for_the_end_of

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.open import open_transport
from cobalance.errors import CobalanceError, Fenced, GroupFailed, OffsetRegressed, Unreachable, UsageError
from cobalance.group.blocking_group import BlockingGroup, BlockingTenure
from cobalance.group.tenure import Tenure
from cobalance.settings import GroupSettings, MemberSettings
from cobalance.threads.portal import EventLoopThread, now

SETTINGS = GroupSettings(
    session_timeout_ms=10_000, heartbeat_interval_ms=250, revocation_timeout_ms=10_000, gather_ms=0
)
NAMES = ("r0", "r1", "r2", "r3")
WITHIN_S = 60.0

_count = itertools.count()


@pytest.fixture(params=["memory", "redis"])
def make(request: pytest.FixtureRequest) -> Callable[..., BlockingGroup]:
    """Creates members of a new group."""
    memory = request.param == "memory"
    url = f"memory://thread-tests-{next(_count)}" if memory else str(request.getfixturevalue("redis_url"))
    name = f"test-{time.time_ns()}"

    def make(
        resources: tuple[str, ...] | None = NAMES, *, settings: GroupSettings = SETTINGS, **options: Any
    ) -> BlockingGroup:
        options.setdefault("member", MemberSettings(drain_timeout_ms=1_500))
        with (
            suppress(CobalanceError),
            closing(open_transport(url)) as transport,
        ):  # an earlier member may have created it
            Coordinator(transport, name).create(settings)
        return BlockingGroup(name, resources, redis_url=url, settings=settings, **options)

    return make


class Diary:
    """Entries from any thread, with waiting."""

    def __init__(self) -> None:
        self.entries: list[tuple[str, str]] = []
        self._changed = threading.Condition()

    def note(self, what: str, *tenures: BlockingTenure) -> None:
        """Adds an entry for each tenure."""
        with self._changed:
            self.entries += [(what, it.resource) for it in tenures]
            self._changed.notify_all()

    def of(self, resource: str) -> list[str]:
        """The entries of one resource."""
        return [what for what, name in self.entries if name == resource]

    def wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(condition, WITHIN_S), self.entries

    def count(self, what: str) -> int:
        """Number of entries of one kind."""
        return sum(kind == what for kind, _ in self.entries)

    def options(self) -> dict[str, Any]:
        def work(tenure: BlockingTenure) -> None:
            self.note("begins", tenure)
            tenure.wait_draining()
            self.note("ends", tenure)

        return {
            "work": work,
            "on_assigned": lambda tenures: self.note("assigned", *tenures),
            "on_revoked": lambda tenures: self.note("revoked", *tenures),
            "on_lost": lambda tenures: self.note("lost", *tenures),
        }


def test_resources_are_shared_and_handed_over(make: Callable[..., BlockingGroup]) -> None:
    """Two members with half of the resources each; the callbacks come in order."""
    one, two = Diary(), Diary()
    with make(**one.options()) as a:
        one.wait(lambda: one.count("begins") == 4)
        with make(**two.options()) as b:
            two.wait(lambda: two.count("begins") == 2)
            assert len(b.tenures) == 2
            moved = set(b.tenures)
        one.wait(lambda: one.count("begins") == 6)
        assert set(a.tenures) == set(NAMES)
    once = ["assigned", "begins", "ends", "revoked"]
    assert all(one.of(name) == (once * 2 if name in moved else once) for name in NAMES)
    assert all(two.of(name) == once for name in moved)


def test_each_tenure_has_a_thread_of_its_own(make: Callable[..., BlockingGroup]) -> None:
    """More than the forty that anyio's own limit would let work at a time."""
    everybody = threading.Barrier(60)
    threads: set[int] = set()
    diary = Diary()

    def work(tenure: BlockingTenure) -> None:
        everybody.wait(WITHIN_S)
        threads.add(threading.get_ident())
        diary.note("begins", tenure)
        tenure.wait_draining()

    with make(tuple(f"n{number:02}" for number in range(60)), work=work):
        diary.wait(lambda: diary.count("begins") == 60)
    assert len(threads) == 60


def test_commits_from_work_and_from_outside(make: Callable[..., BlockingGroup]) -> None:
    """The successor starts where they ended. Later ones are refused."""
    diary = Diary()

    def work(tenure: BlockingTenure) -> None:
        with tenure.processing():
            tenure.commit((tenure.committed or 0) + 5)
        diary.note("committed", tenure)
        tenure.wait_draining()

    with make(("r0",), work=work) as a:
        diary.wait(lambda: diary.count("committed") == 1)
        (tenure,) = a.wait_held("r0", timeout=WITHIN_S)
        a.commit("r0", 9)
        with pytest.raises(OffsetRegressed):
            tenure.commit(8)
        a.leave()
        with pytest.raises(Fenced):
            tenure.commit(10)
    with make(("r0",)) as b:
        assert b.wait_held(timeout=WITHIN_S)[0].committed == 9


def test_waiting_has_a_timeout(make: Callable[..., BlockingGroup]) -> None:
    """In seconds, without affecting what was awaited."""
    with make(("r0",)) as a, make(("r0",), member=MemberSettings(capacity=0)) as idle:
        with pytest.raises(TimeoutError):
            idle.wait_held("r0", timeout=0.01)
        (tenure,) = a.wait_held("r0", timeout=WITHIN_S)
        assert not tenure.wait_draining(0.01)
        assert tenure.active
        with pytest.raises(TimeoutError):
            a.wait_left(timeout=0.01)
        assert [row.owner for row in a.describe().resources] == [a.member]


def test_leaving_the_block_passes_leadership_on(make: Callable[..., BlockingGroup]) -> None:
    """Leaving the block passes the role on."""
    with make(("leader",)) as a, make(("leader",)) as b:
        diary = Diary()

        def lead() -> None:
            with b.leadership("leader") as tenure:
                diary.note("leads", tenure)

        other = threading.Thread(target=lead)
        with a.leadership() as tenure:
            assert tenure.active
            other.start()
            assert diary.entries == []
        other.join(WITHIN_S)
        assert diary.count("leads") == 1


class Late(Exception):
    """Raised by a program's signal handler."""


@pytest.fixture(params=["the wait is interrupted", "the wait goes on"])
def interrupt(request: pytest.FixtureRequest) -> Iterator[Callable[[], None]]:
    """Raises :class:`Late` in the main thread, that of the tests, wherever it is. A signal that another thread takes
    interrupts no wait there, as one does not that arrives just before.
    """

    def late(*_: object) -> None:
        raise Late

    before, main = signal.signal(signal.SIGUSR1, late), threading.get_ident()
    if request.param == "the wait is interrupted":
        yield lambda: signal.pthread_kill(main, signal.SIGUSR1)
    else:
        yield lambda: signal.raise_signal(signal.SIGUSR1)
    signal.signal(signal.SIGUSR1, before)


def test_who_was_interrupted_while_waiting_for_a_role_does_not_get_it(
    make: Callable[..., BlockingGroup], interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would never be returned."""
    with make(("leader",)) as a, make(("leader",)) as b:
        a.wait_held("leader", timeout=WITHIN_S)
        wait = b._group.wait_held

        async def wait_and_tell(*resources: str) -> Any:
            interrupt()
            return await wait(*resources)

        monkeypatch.setattr(b._group, "wait_held", wait_and_tell)
        with pytest.raises(Late), b.leadership():
            raise AssertionError("the body must not run")
        monkeypatch.undo()
        a.leave()
        (tenure,) = b.wait_held(timeout=WITHIN_S)
        assert tenure._inner._users == 0
        with b.leadership():
            pass
        assert tenure.wait_draining(WITHIN_S)


@pytest.mark.parametrize("call", ["wait_held", "wait_left", "wait_draining"])
def test_who_was_interrupted_while_waiting_leaves_nothing_behind(
    make: Callable[..., BlockingGroup], interrupt: Callable[[], None], monkeypatch: pytest.MonkeyPatch, call: str
) -> None:
    """The wait on the event loop is cancelled."""
    ended = threading.Event()

    async def wait(*_: str) -> Any:
        interrupt()
        try:
            await anyio.sleep_forever()
        finally:
            ended.set()

    with make(("r0",)) as a:
        (tenure,) = a.wait_held(timeout=WITHIN_S)
        target = Tenure if call == "wait_draining" else a._group
        monkeypatch.setattr(target, call, wait)
        with pytest.raises(Late):
            tenure.wait_draining() if call == "wait_draining" else getattr(a, call)()
        assert ended.wait(WITHIN_S)
        monkeypatch.undo()


@pytest.mark.parametrize("moment", ["_enter_group", "_wind_up"])
def test_a_signal_that_comes_just_before_a_long_wait_is_heard(
    make: Callable[..., BlockingGroup], monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    """Entering and leaving go on only once its handler has run."""
    heard = threading.Event()
    before = signal.signal(signal.SIGUSR1, lambda *_: heard.set())
    group = make(("r0",))
    call = getattr(group._group, moment)

    async def wait_and_call() -> None:
        await anyio.sleep(0.1)  # by then the main thread waits; a signal on this one does not interrupt that
        signal.raise_signal(signal.SIGUSR1)
        while not heard.is_set():  # noqa: ASYNC110 -- the handler knows no event loop
            await anyio.sleep(0.01)
        await call()

    monkeypatch.setattr(group._group, moment, wait_and_call)
    with group:
        group.wait_held(timeout=WITHIN_S)
    signal.signal(signal.SIGUSR1, before)
    assert heard.is_set()


@pytest.mark.parametrize("how", ["leave", "exit"])
@pytest.mark.parametrize("where", ["work", "on_assigned", "on_revoked", "on_lost"])
def test_leaving_where_it_would_wait_for_itself_is_refused(
    make: Callable[..., BlockingGroup], where: str, how: str
) -> None:
    """Leaving waits for work and callbacks."""
    refused = threading.Event()

    def leave(_: object) -> None:
        with pytest.raises(UsageError, match="wait for itself"):
            group.leave() if how == "leave" else group.__exit__(None, None, None)
        refused.set()

    def work(tenure: BlockingTenure) -> None:
        group._event_loop.call(now, tenure._inner.stop_now)

    options: dict[str, Any] = {where: leave} | ({"work": work} if where == "on_lost" else {})
    group = make(("r0",), **options, member=MemberSettings(drain_timeout_ms=60_000))
    with group:
        group.wait_held(timeout=WITHIN_S) if where == "on_revoked" else refused.wait(WITHIN_S)
    assert refused.is_set()


def test_an_exception_in_work_ends_the_membership_and_is_raised(make: Callable[..., BlockingGroup]) -> None:
    """Unchanged, also to callers that wait for the end."""

    def work(_: BlockingTenure) -> None:
        raise LookupError("a handler's own")

    with pytest.raises(LookupError, match="a handler's own"), make(work=work) as a:
        a.wait_left(timeout=WITHIN_S)


def test_a_cancelled_future_in_work_is_raised_by_stop(make: Callable[..., BlockingGroup]) -> None:
    """It is the program's, and no sign that the event loop has ended."""

    def work(_: BlockingTenure) -> None:
        future: Future[None] = Future()
        future.cancel()
        future.result()

    group = make(work=work)
    group.start()
    group.wait_left(timeout=WITHIN_S)
    with pytest.raises(CancelledError):
        group.stop()
    assert isinstance(group.failed, CancelledError)


def test_an_exception_in_the_body_drains_and_propagates(make: Callable[..., BlockingGroup]) -> None:
    """The handover takes place all the same."""
    diary = Diary()

    def fail() -> None:
        with make(("r0",), **diary.options()):
            diary.wait(lambda: diary.count("begins") == 1)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    assert diary.of("r0") == ["assigned", "begins", "ends", "revoked"]


def test_a_thread_that_never_returns_does_not_hold_up_the_end_for_ever(make: Callable[..., BlockingGroup]) -> None:
    """After the drain timeout plus the session timeout the process may exit."""
    go_on, begun = threading.Event(), threading.Event()

    def work(_: BlockingTenure) -> None:
        begun.set()
        go_on.wait()

    try:
        brief = attrs.evolve(SETTINGS, session_timeout_ms=1_000)
        with make(("r0",), work=work, settings=brief, member=MemberSettings(drain_timeout_ms=300)):
            assert begun.wait(WITHIN_S)
            leaving = time.monotonic()
        assert time.monotonic() - leaving < 6
    finally:
        go_on.set()


def test_a_resource_that_comes_back_waits_for_the_old_thread(make: Callable[..., BlockingGroup]) -> None:
    """One handler per resource at a time, even if the first was hung and its tenure is over."""
    diary, go_on = Diary(), threading.Event()

    def work(tenure: BlockingTenure) -> None:
        diary.note("begins", tenure)
        if diary.count("begins") == 1:
            with tenure.processing():
                go_on.wait()
            diary.note("returns", tenure)
        tenure.wait_draining()

    try:
        with make(("r0",), work=work, member=MemberSettings(max_processing_ms=200, drain_timeout_ms=1_500)) as a:
            (first,) = a.wait_held("r0", timeout=WITHIN_S)
            assert first.wait_draining(WITHIN_S)
            (second,) = a.wait_held("r0", timeout=WITHIN_S)
            assert second.token > first.token
            assert diary.of("r0") == ["begins"]
            go_on.set()
            diary.wait(lambda: diary.of("r0") == ["begins", "returns", "begins"])
    finally:
        go_on.set()


def test_errors_on_entering_are_clear(make: Callable[..., BlockingGroup]) -> None:
    """The same errors as with async."""
    other = make(("r0", "other"), resources_version=1)
    with make(resources_version=1), pytest.raises(GroupFailed, match="same list"), other:
        raise AssertionError("the body must not run")
    with (
        pytest.raises(Unreachable, match=r"127\.0\.0\.1:1\b"),
        BlockingGroup("g", NAMES, redis_url="redis://127.0.0.1:1/0"),
    ):
        raise AssertionError("the body must not run")


def test_it_can_be_entered_once(make: Callable[..., BlockingGroup]) -> None:
    """A membership cannot be reused."""
    group = make()
    with group:
        pass
    with pytest.raises(UsageError), group:
        raise AssertionError("the body must not run")
    assert issubclass(UsageError, CobalanceError)


def test_an_event_loop_that_is_interrupted_as_it_begins() -> None:
    """By a signal handler that raises, at any moment: its thread ends."""
    moment, is_interrupted = 0, True
    while is_interrupted:
        event_loop = EventLoopThread()
        is_interrupted = interrupted(event_loop.__enter__, moment, in_threading=False)
        if not is_interrupted:
            event_loop.__exit__(None)
        wait_for_the_end_of("cobalance-event-loop")
        moment += 1
    assert moment > 10


def test_an_entering_that_is_interrupted_as_the_event_loop_has_begun(monkeypatch: pytest.MonkeyPatch) -> None:
    """The same for the group."""
    enter = EventLoopThread.__enter__

    def enter_and_fail(event_loop: EventLoopThread) -> None:
        enter(event_loop)
        raise Interrupted

    monkeypatch.setattr(EventLoopThread, "__enter__", enter_and_fail)
    group = BlockingGroup("g", NAMES, redis_url="memory://interrupted")
    for begin in (group.__enter__, group.start):
        with pytest.raises(Interrupted):
            begin()
        wait_for_the_end_of("cobalance-event-loop")
