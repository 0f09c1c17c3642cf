"""An event loop on a thread of its own, and calls into it that end with whoever waits for them."""

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
    """For the length of a ``with``, which is given the way in. It keeps no process from ending, and one that is forgotten is left alone."""

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
        """Ends it after the block. Whoever is interrupted in there, as by a second Ctrl-C, waits for nothing any more."""
        try:
            yield
        except Exception:
            self._end(cancel=True)
            raise
        self._end(cancel=cancel)

    def _end(self, *, cancel: bool) -> None:
        with suppress(RuntimeError):  # it has ended already
            self._portal.call(self._portal.stop, cancel)
        self._thread.join()


def _run(opened: Future[BlockingPortal]) -> None:
    try:
        anyio.run(_serve, opened)
    except BaseException as error:  # noqa: BLE001 -- raised where it is waited for
        if not opened.done():
            opened.set_exception(error)


async def _serve(opened: Future[BlockingPortal]) -> None:
    async with BlockingPortal() as portal:
        opened.set_result(portal)
        await portal.sleep_until_stopped()


class _Call(Generic[T]):
    """A call on the event loop, which can be stopped even before it is known that it has begun."""

    def __init__(self, function: Callable[..., Awaitable[T]], *args: Any) -> None:
        self._function, self._args = function, args
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> T:
        """Calls it."""
        with anyio.CancelScope() as self._scope:
            return await self._function(*self._args)
        raise InterruptedError  # which nobody hears

    async def stop(self) -> None:
        """Cancels it, unless it has ended."""
        if self._scope is not None:
            self._scope.cancel()


def call_in(portal: BlockingPortal, function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """What it returns. An exception that comes over the waiting thread, as from a signal handler, ends the call too."""
    pending = _Call(function, *args)
    try:
        return portal.call(pending.run)
    except BaseException:
        with suppress(RuntimeError):  # There is no event loop any more.
            portal.start_task_soon(pending.stop)
        raise


async def within(seconds: float | None, wait: Callable[..., Awaitable[T]], *args: str) -> T:
    """What it returns; raises TimeoutError when that takes longer."""
    with anyio.fail_after(seconds):
        return await wait(*args)
