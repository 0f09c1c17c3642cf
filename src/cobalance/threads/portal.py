"""An event loop on its own thread, and calls into it that are cancelled when their caller is interrupted."""

from __future__ import annotations

import threading
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Generic, TypeVar

import anyio
from anyio.from_thread import BlockingPortal

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from typing import Any

T = TypeVar("T")


class EventLoopThread:
    """Runs an event loop for the duration of a ``with``, and returns its portal. The thread is a daemon, so it never
    keeps a process alive.
    """

    def __enter__(self) -> BlockingPortal:
        opened: Future[BlockingPortal] = Future()
        self._thread = threading.Thread(target=_run, args=(opened,), name="cobalance-event-loop", daemon=True)
        self._thread.start()
        self._portal = opened.result()
        return self._portal

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

    def _end(self, *, cancel: bool) -> None:
        with suppress(RuntimeError):  # it has already ended
            self._portal.call(self._portal.stop, cancel)
        self._thread.join()


def _run(opened: Future[BlockingPortal]) -> None:
    try:
        anyio.run(_serve, opened)
    except BaseException as error:  # noqa: BLE001 -- raised where the result is awaited
        if not opened.done():
            opened.set_exception(error)


async def _serve(opened: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        opened.set_result(portal)
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


def call_in(portal: BlockingPortal, function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """Calls an async function in the loop and returns its result. If the waiting thread is interrupted, as by a signal
    handler, the call is cancelled.
    """
    pending = _Call(function, *args)
    try:
        return portal.call(pending.run)
    except BaseException:
        with suppress(RuntimeError):  # the event loop is gone
            portal.start_task_soon(pending.stop)
        raise


async def within(seconds: float | None, wait: Callable[..., Awaitable[T]], *args: str) -> T:
    """Awaits a call. Raises TimeoutError if it takes longer."""
    with anyio.fail_after(seconds):
        return await wait(*args)
