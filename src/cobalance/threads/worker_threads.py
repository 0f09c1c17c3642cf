"""Threads for the user's plain functions, and for blocking calls of this library.

They are daemons, so that none of them keeps the process alive; anyio's threads on asyncio are not, and Python would
wait for them. A thread cannot be stopped, so the caller of a user's function waits until it has returned.
"""

from __future__ import annotations

import sys
from concurrent.futures import Future
from contextvars import Context, copy_context
from copy import copy
from functools import partial
from queue import Empty, SimpleQueue
from threading import Lock, Thread
from typing import TYPE_CHECKING, Generic, NoReturn, TypeVar

import anyio
import anyio.lowlevel

from cobalance.errors import OutOfThreads
from cobalance.threads.wakeup import Wakeup, end_of, insist, result_of

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager

    from anyio import CancelScope

T = TypeVar("T")

PATIENCE_S, AGAIN_S = 5.0, 0.1
"""How long, and how often, the system is asked for a thread that it does not give."""

AT_THE_END = (
    "Python starts no more threads once a program ends: leave groups before that, instead of in an exit handler."
)

IDLE_S = 10.0
"""The same as anyio's; programs may keep connections in thread locals."""


class WorkerThreads:
    """The worker threads of one group."""

    def __init__(self) -> None:
        self._daemons = Daemons()

    async def run(self, function: Callable[[], T]) -> T:
        """Calls a function in a thread, with the caller's context variables. If the wait is cancelled, the function
        runs on by itself.
        """
        await anyio.lowlevel.checkpoint()
        return await result_of(await _patiently(lambda: self._daemons.start(partial(callers_context().run, function))))

    async def run_to_end(
        self, function: Callable[[], T], patience: Callable[[], AbstractContextManager[CancelScope]]
    ) -> T:
        """Like :meth:`run`, but a cancellation waits until the running function has returned, for as long as the scope
        of `patience` shields the wait.
        """
        call: Future[T] = Future()

        def attempt() -> None:
            _carry_out(call, function)()

        try:
            await self.run(attempt)
        finally:
            if not call.cancel() and not call.done():  # otherwise it never began, or has returned
                with patience() as scope:
                    await insist(lambda: end_of(call), scope)
        return call.result()


async def in_thread(make: Callable[[], T], undo: Callable[[T], object] = lambda _: None) -> T:
    """Returns the result of `make`, called in a new thread, with the caller's context variables. If the caller is gone
    by then, the result is passed to `undo`. Once the program ends, it is called in this one.
    """
    made: Future[T] = Future()

    def run() -> None:
        tell = _carry_out(made, make)
        tell()

    context = callers_context()
    start = Thread(target=context.run, args=(run,), name="cobalance-call", daemon=True).start
    await _patiently(start, at_the_end=partial(context.run, run))
    try:
        return await result_of(made)
    except BaseException:
        made.add_done_callback(lambda it: it.exception() is None and undo(it.result()))
        raise


class SharedCall(Generic[T]):
    """A blocking call that tasks, on any event loops, wait for together: it is under way once at a time, in one thread.

    A task that is cancelled only stops waiting, and leaves nothing behind.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._lock = Lock()
        self._call: Future[T] | None = None
        self._waiting: dict[Wakeup, None] = {}  # woken in this order

    async def result(self) -> T:
        """The result of the call under way, or of one that begins now. Each task gets its own copy of an error."""
        wakeup = Wakeup()
        call = await _patiently(self._join, at_the_end=self._join_here)
        self._waiting[wakeup] = None  # first: a call that ends from here on sees it
        try:
            while not call.done():
                await wakeup.wait()
        finally:
            del self._waiting[wakeup]
        if error := call.exception():
            raise copy(error).with_traceback(error.__traceback__)
        return call.result()

    def _join(self) -> Future[T]:
        with self._lock:
            if self._call is None or self._call.done():
                call: Future[T] = Future()
                run = partial(callers_context().run, self._run, call)
                Thread(target=run, name="cobalance-call", daemon=True).start()
                self._call = call
            return self._call

    def _join_here(self) -> Future[T]:
        call: Future[T] = Future()
        self._run(call)
        return call

    def _run(self, call: Future[T]) -> None:
        tell = _carry_out(call, self._make)
        tell()
        for wakeup in tuple(self._waiting):
            wakeup.notify()


def is_at_the_end(error: RuntimeError) -> bool:
    """Whether a thread could not be started because the program ends. From Python 3.12 on, not even exit handlers may."""
    return "interpreter shutdown" in str(error)


def _refuse() -> NoReturn:
    raise OutOfThreads(AT_THE_END)


async def _patiently(start: Callable[[], T], *, at_the_end: Callable[[], T] = _refuse) -> T:
    """Starts a thread, and waits a while if the system gives none: others may end theirs.

    Raises:
        OutOfThreads: it has given none.
    """
    give_up_at = anyio.current_time() + PATIENCE_S
    while True:
        try:
            return start()
        except RuntimeError as error:
            if is_at_the_end(error):
                break
            if anyio.current_time() >= give_up_at:
                raise OutOfThreads from None
        await anyio.sleep(AGAIN_S)
    return at_the_end()


class Daemons:
    """Reusable threads. The most recently idle one is used first, and a thread ends after a while without work."""

    def __init__(self) -> None:
        self._idle: dict[SimpleQueue[Callable[[], Callable[[], None]]], None] = {}

    def start(self, function: Callable[[], T]) -> Future[T]:
        """Calls a function in a thread, and returns its future."""
        call: Future[T] = Future()
        try:
            jobs, _ = self._idle.popitem()
        except KeyError:
            jobs = SimpleQueue()
            Thread(target=self._serve, args=(jobs,), name="cobalance-worker", daemon=True).start()
        jobs.put(lambda: _carry_out(call, function))
        return call

    def _serve(self, jobs: SimpleQueue[Callable[[], Callable[[], None]]]) -> None:
        while True:
            try:
                tell = jobs.get(timeout=IDLE_S)()
            except Empty:
                if self._idle.pop(jobs, jobs) is None:
                    return  # otherwise it is just being given a call
            else:
                self._idle[jobs] = None  # before the result is set, so that the next call finds this thread
                tell()


def _carry_out(call: Future[T], function: Callable[[], T]) -> Callable[[], None]:
    """Calls the function unless the future was cancelled. Returns a function that sets the future's result."""
    if not call.set_running_or_notify_cancel():
        return lambda: None
    try:
        result = function()
    except BaseException as error:  # noqa: BLE001 -- raised where the result is awaited
        return partial(call.set_exception, error)
    return partial(call.set_result, result)


def callers_context() -> Context:
    """The caller's, without sniffio's, so that the function may run an event loop of its own in the thread."""
    context = copy_context()
    context.run(_leave_event_loop)
    return context


def _leave_event_loop() -> None:
    if "sniffio" in sys.modules:
        import sniffio

        sniffio.current_async_library_cvar.set(None)
