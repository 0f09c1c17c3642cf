"""Calls without async that a signal handler interrupts by raising, at each moment at which Python may run one."""

from __future__ import annotations

import itertools
import signal
import threading
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from tests.interruptions import WAIT_S, Interrupted, interrupted, wait_for_the_end_of

from cobalance.group.blocking_group import BlockingGroup
from cobalance.group.tenure import Tenure
from cobalance.settings import GroupSettings, MemberSettings
from cobalance.threads.gate import Gate
from cobalance.threads.portal import EventLoopThread, _PostedCall, now

SETTINGS = GroupSettings(gather_ms=0)

STEPS = [pytest.param(7, id="some"), pytest.param(1, id="all", marks=pytest.mark.thorough)]
"""Every so many moments."""

_count = itertools.count()


def make() -> BlockingGroup:
    """A member of a group of its own."""
    url = f"memory://interruptions-{next(_count)}"
    return BlockingGroup("g", ["r"], redis_url=url, settings=SETTINGS, member=MemberSettings(drain_timeout_ms=0))


def test_a_wait_that_times_out_leaves_nothing_behind() -> None:
    """Not even in a loop that waits a moment each time."""
    gate = Gate()
    assert not any(gate.wait(0.001) for _ in range(3))
    assert not gate._parked
    gate.open()
    assert gate.wait()


def test_a_handler_may_open_the_gate_that_its_own_thread_waits_at() -> None:
    """At any moment; an event of the standard library may be locked then."""
    moment, is_interrupted = 0, True
    while is_interrupted:
        gate = Gate()
        is_interrupted = interrupted(lambda it=gate: it.wait(0.01), moment, handler=gate.open)  # type: ignore[misc]
        assert gate.is_open == is_interrupted
        moment += 1
    assert moment > 5


async def answer() -> str:
    """Takes a while, in which its caller waits."""
    await anyio.sleep(0.0005)
    return "here"


def test_a_call_on_an_event_loop() -> None:
    """The loop answers other threads, and ends."""
    with ThreadPoolExecutor(1) as other, EventLoopThread() as event_loop:
        moment = 0
        while interrupted(lambda: event_loop.call(answer), moment):
            assert other.submit(event_loop.call, answer).result(WAIT_S) == "here"
            moment += 1
        assert moment > 20


def test_the_end_of_an_event_loop() -> None:
    """It ends all the same, or can be ended again."""
    moment, is_interrupted = 0, True
    while is_interrupted:
        event_loop = EventLoopThread().__enter__()
        is_interrupted = interrupted(lambda it=event_loop: it.__exit__(None), moment)  # type: ignore[misc]
        event_loop.__exit__(None)
        wait_for_the_end_of("cobalance-event-loop")
        moment += 1
    assert moment > 10


@pytest.mark.parametrize("step", STEPS)
def test_entering(step: int) -> None:
    """Its event loop ends; or it has been entered, between which and the block no `with` can be made safe, and can be left."""
    moment, is_interrupted = 0, True
    while is_interrupted:
        group = make()
        is_interrupted = interrupted(group.__enter__, moment, in_threading=False)
        if group._entered and not group._event_loop._loop._is_unwanted:
            group.__exit__(None, None, None)
        wait_for_the_end_of("cobalance-event-loop")
        moment += step
    assert moment > 50


@pytest.mark.parametrize("step", STEPS)
def test_leaving(step: int) -> None:
    """The member leaves all the same, and its event loop ends."""
    moment, is_interrupted = 0, True
    while is_interrupted:
        group = make().__enter__()
        is_interrupted = interrupted(lambda it=group: it.__exit__(None, None, None), moment, in_threading=False)  # type: ignore[misc]
        wait_for_the_end_of("cobalance-event-loop")
        moment += step
    assert moment > 50


@pytest.mark.parametrize("step", STEPS)
def test_starting_and_stopping(step: int) -> None:
    """What was begun can be ended by another thread."""
    moment, is_interrupted = 0, True
    with ThreadPoolExecutor(1) as other:
        while is_interrupted:
            group = make()
            is_interrupted = interrupted(lambda it=group: (it.start(), it.stop()), moment, in_threading=False)  # type: ignore[misc]
            other.submit(group.stop).result(WAIT_S)
            wait_for_the_end_of("cobalance-event-loop")
            moment += step
    assert moment > 100


@pytest.mark.parametrize("step", STEPS)
def test_calls_of_a_member(step: int) -> None:
    """Other threads' calls are answered, and it leaves."""
    with ThreadPoolExecutor(1) as other, make() as group:
        group.wait_held()
        moment = 0
        while interrupted(lambda: group.commit("r", 1), moment):
            assert other.submit(group.describe).result(WAIT_S).name == "g"
            moment += step
        assert moment > 20


def test_a_piece_of_work() -> None:
    """It has ended: otherwise it would count as hung."""
    with make() as group:
        (tenure,) = group.wait_held()

        def work() -> None:
            with tenure.processing():
                pass

        moment = 0
        while interrupted(work, moment):
            assert tenure._inner.busy_since is None
            moment += 1
        assert moment > 10


@pytest.mark.parametrize("step", STEPS)
def test_leading(step: int) -> None:
    """Wherever the wait, the block or its end is interrupted, the role is there for the next block."""

    def lead() -> None:
        with group.leadership():
            pass

    with ThreadPoolExecutor(1) as other, make() as group:
        group.wait_held()
        moment = 0
        while interrupted(lead, moment):
            other.submit(lead).result(WAIT_S)
            moment += step
        assert moment > 50


def test_a_role_that_arrives_in_the_turn_in_which_the_wait_for_it_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wait that has ended cannot be cancelled any more; the role is there for the next block all the same."""
    begun, go_on, main = Gate(), Gate(), threading.get_ident()
    with make() as group:
        (held,) = group.wait_held()
        event_loop, arrived = group._event_loop, anyio.Event()
        post = event_loop._loop.post

        async def wait_role(_: object) -> Tenure:
            signal.pthread_kill(main, signal.SIGUSR1)
            await arrived.wait()
            return held._inner

        def block() -> None:
            begun.open()
            go_on.wait()

        def interrupt(*_: object) -> None:
            event_loop.begin(now, block)
            begun.wait()
            event_loop.begin(now, arrived.set)  # begins together with the cancellation, and with what follows
            raise Interrupted

        def post_and_go_on(call: _PostedCall[object]) -> None:
            post(call)
            if call._function.__name__ == "give":
                go_on.open()

        monkeypatch.setattr(group._group.membership, "wait_role", wait_role)
        monkeypatch.setattr(event_loop._loop, "post", post_and_go_on)
        before = signal.signal(signal.SIGUSR1, interrupt)
        with pytest.raises(Interrupted), group.leadership():
            raise AssertionError("the body must not run")
        signal.signal(signal.SIGUSR1, before)
        group.describe()  # whatever was under way has ended
        assert not held._inner.in_use
