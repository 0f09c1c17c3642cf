"""An event loop on its own thread, and calls into it that are cancelled when their caller is interrupted."""

from __future__ import annotations

import threading
from concurrent.futures import CancelledError, Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

from cobalance.threads.gate import Gate, ended
from cobalance.threads.log_lines import ServiceThread

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any

T = TypeVar("T")


class EventLoopThread:
    """Runs an event loop for the duration of a ``with``. The thread is a daemon, so it never keeps a process alive."""

    def __init__(self) -> None:
        self._lock = threading.RLock()  # a signal handler may call while its thread does
        """A call begins before the loop ends, or not at all."""
        self._opening = _Opening()

    def __enter__(self) -> Self:
        self._opening = _Opening()
        try:
            self._thread = ServiceThread(_run, "cobalance-event-loop", (self._opening,))
            self._thread.start()
            self.portal = self._opening.result()
            return self
        except BaseException:
            self._opening.abandon()
            raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        self._end(cancel=kind is not None)

    @contextmanager
    def ending(self, *, cancel: bool) -> Iterator[None]:
        """Ends the loop after the block. An exception that interrupts the block, such as a second Ctrl-C, skips the
        wait.
        """
        try:
            yield
        except Exception:
            self._end(cancel=True)
            raise
        self._end(cancel=cancel)

    def begin(self, function: Callable[..., Awaitable[T]], *args: Any) -> Future[T]:
        """Begins a call in the loop. Its future is cancelled if the loop ends first, or has ended."""
        with self._lock:
            try:
                return self.portal.start_task_soon(function, *args)
            except RuntimeError:  # it has ended
                never: Future[T] = Future()
                never.cancel()
                return never

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Calls an async function in the loop and returns its result. If the waiting thread is interrupted, as by a
        signal handler, the call is cancelled. Once this loop has ended, another one is made for the call.
        """
        call = _Call(function, *args)
        try:
            return ended(self.begin(call.run)).result()
        except CancelledError:
            self._thread.join()
        except BaseException:
            self.begin(call.stop)
            raise
        with EventLoopThread() as other:
            return other.call(function, *args)

    def _end(self, *, cancel: bool) -> None:
        if self._opening.portal is None:  # its beginning was interrupted
            self._opening.abandon()
            return
        with self._lock, suppress(RuntimeError):  # it has already ended
            self.portal.call(self.portal.stop, cancel)
        self._thread.join()


class _Opening:
    """The beginning of a loop, for which a thread waits that a signal handler may interrupt by raising."""

    def __init__(self) -> None:
        self.portal: BlockingPortal | None = None
        self.is_unwanted = False
        self._error: BaseException | None = None
        self._ended = Gate()

    def result(self) -> BlockingPortal:
        """The portal, once the loop runs; raises why it does not."""
        self._ended.wait()
        if self.portal is None:
            raise self._error or RuntimeError("the event loop has ended")
        return self.portal

    def begun(self, portal: BlockingPortal) -> None:
        self.portal = portal
        self._ended.open()

    def failed(self, error: BaseException) -> None:
        """Does nothing if the loop has begun: then nobody waits here."""
        self._error = error
        self._ended.open()

    def abandon(self) -> None:
        """Ends the loop, or lets it not begin. Does not wait."""
        self.is_unwanted = True
        if self.portal is not None:  # otherwise the loop sees the mark as it begins
            with suppress(RuntimeError):  # it has already ended
                self.portal.start_task_soon(self.portal.stop, True)


def _run(opening: _Opening) -> None:
    try:
        anyio.run(_serve, opening)
    except BaseException as error:  # noqa: BLE001 -- raised where the result is awaited
        opening.failed(error)


async def _serve(opening: _Opening) -> None:
    async with BlockingPortal() as portal:
        opening.begun(portal)
        if not opening.is_unwanted:
            await portal.sleep_until_stopped()


class _Call(Generic[T]):
    """A call on the event loop, which can be cancelled even before it has begun."""

    def __init__(self, function: Callable[..., Awaitable[T]], *args: Any) -> None:
        self._function, self._args = function, args
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> T:
        with anyio.CancelScope() as self._scope:
            return await self._function(*self._args)
        raise InterruptedError  # never seen: the caller is gone

    async def stop(self) -> None:
        if self._scope is not None:
            self._scope.cancel()


async def within(seconds: float | None, wait: Callable[..., Awaitable[T]], *args: str) -> T:
    """Awaits a call. Raises TimeoutError if it takes longer."""
    with anyio.fail_after(seconds):
        return await wait(*args)
