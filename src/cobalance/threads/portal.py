"""An event loop on its own thread, and calls into it that are cancelled when their caller is interrupted."""

from __future__ import annotations

from collections import deque
from concurrent.futures import CancelledError
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Self, TypeVar

import anyio

from cobalance.threads.cancellation import is_cancellation
from cobalance.threads.gate import LOOK_S, Gate, Promise
from cobalance.threads.log_lines import ServiceThread
from cobalance.threads.wakeup import Wakeup
from cobalance.threads.worker_threads import callers_context, is_at_the_end

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType
    from typing import Any

T = TypeVar("T")


class EventLoopThread:
    """Runs an event loop for the duration of a ``with``. The thread is a daemon, so it never keeps a process alive.

    A signal handler may interrupt its callers anywhere by raising: they hand over what the loop is to do without a lock,
    and each wait is that of a :class:`Gate`.
    """

    def __init__(self) -> None:
        self._loop = _Loop()

    def __enter__(self) -> Self:
        self._loop = loop = _Loop()
        try:
            self._thread = ServiceThread(loop.run, "cobalance-event-loop")
            self._thread.start()
            loop.begun.result()
            return self
        except BaseException:
            loop.end(cancel=True)
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

    def begin(self, function: Callable[..., Awaitable[T]], *args: Any) -> Promise[T]:
        """Begins a call in the loop. Its promise is cancelled if the loop ends first, or has ended."""
        call = _PostedCall(function, *args)
        self._loop.post(call)
        return call

    def call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Calls an async function in the loop and returns its result. If the waiting thread is interrupted, as by a
        signal handler, the call is cancelled. Once this loop has ended, another one is made for the call.
        """
        call = _PostedCall(function, *args)
        try:
            self._loop.post(call)
            return call.result()
        except CancelledError:
            if call.is_set:  # it is the function's
                raise
            self._loop.over.wait()
        except BaseException:
            if not call.done():
                self.begin(call.stop)
            raise
        finally:
            del call  # it may hold the exception, whose traceback refers to this frame
        with ExitStack() as stack:
            try:
                other = stack.enter_context(EventLoopThread())
            except RuntimeError as error:
                if not is_at_the_end(error):
                    raise
                return anyio.run(function, *args)
            return other.call(function, *args)

    def ask_to_end(self) -> None:
        """Ends the loop once its calls have ended. Does not wait."""
        self._loop.end(cancel=False)

    def _end(self, *, cancel: bool) -> None:
        if not self._loop.begun.done():  # its beginning was interrupted
            self._loop.end(cancel=True)
            return
        self._loop.end(cancel=cancel)
        self._loop.over.wait()
        self._thread.join()


class _Loop:
    """What happens on the thread, and what others ask of it. None of them waits here."""

    def __init__(self) -> None:
        self.begun: Promise[None] = Promise()
        """Set when the loop runs, or to what prevents it."""
        self.over = Gate()
        self._wakeup: Wakeup | None = None
        self._is_unwanted = self._is_cancelled = False
        self._posted: deque[_PostedCall[Any]] = deque()
        self._open: set[_PostedCall[Any]] = set()
        """The calls that were posted and have not ended."""

    def post(self, call: _PostedCall[Any]) -> None:
        """Begins a call, or cancels it if the loop has ended, or ends before; any thread."""
        self._open.add(call)
        self._posted.append(call)
        self._wake()
        if self.over.is_open:  # after adding it: either it is seen here, or as the loop ends
            call.cancel()

    def end(self, *, cancel: bool) -> None:
        """Ends the loop once its calls have ended, or lets it not begin; any thread."""
        self._is_cancelled |= cancel
        self._is_unwanted = True
        self._wake()

    def _wake(self) -> None:
        if self._wakeup is not None:  # otherwise it looks as it begins
            self._wakeup.notify()

    def run(self) -> None:
        try:
            anyio.run(self._serve)
        except BaseException as error:  # noqa: BLE001 -- raised where the result is awaited
            if not self.begun.done():
                self.begun.set_exception(error)
        self.over.open()
        for call in tuple(self._open):
            call.cancel()

    async def _serve(self) -> None:
        self._wakeup = wakeup = Wakeup()
        async with anyio.create_task_group() as tasks:
            self.begun.set_result(None)
            is_unwanted = self._is_unwanted
            while not is_unwanted:
                await wakeup.wait()
                is_unwanted = self._is_unwanted  # first: what was posted before still begins
                while self._posted:
                    call = self._posted.popleft()
                    _ = call.context.run(tasks.start_soon, self._carry_out, call)
            if self._is_cancelled:
                tasks.cancel_scope.cancel()

    async def _carry_out(self, call: _PostedCall[Any]) -> None:
        try:
            await call.run()
        finally:
            self._open.discard(call)


class _PostedCall(Promise[T]):
    """A call on the event loop, which can be cancelled even before it has begun."""

    def __init__(self, function: Callable[..., Awaitable[T]], *args: Any) -> None:
        super().__init__()
        self._function, self._args = function, args
        self.context = callers_context()
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                self.set_result(await self._function(*self._args))
        except BaseException as error:
            if not is_cancellation(error):
                self.set_exception(error)
            if not isinstance(error, Exception):
                raise
        finally:
            self.cancel()

    async def stop(self) -> None:
        if self._scope is not None:
            self._scope.cancel()


class Visit:
    """Enters an async context manager in an event loop, and leaves it, both in one task of the loop's."""

    def __init__(self, event_loop: EventLoopThread, manager: AbstractAsyncContextManager[object]) -> None:
        self._event_loop, self._manager = event_loop, manager
        self._entered, self._is_inside = Gate(), False
        self._reason: tuple[type[BaseException] | None, BaseException | None, TracebackType | None] = None, None, None

    def __enter__(self) -> None:
        self._stay = self._event_loop.begin(self._live)
        while not (self._entered.wait(LOOK_S) or self._stay.done()):
            pass
        if not self._is_inside:
            self._stay.result()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._reason = kind, error, trace
        self.ask_to_end()
        return self._stay.result()

    def ask_to_end(self) -> None:
        """Leaves. Does not wait; does nothing the second time."""
        self._event_loop.begin(now, self._asked.set)

    async def _live(self) -> bool | None:
        self._asked = anyio.Event()
        try:
            await self._manager.__aenter__()
            self._is_inside = True
        finally:
            self._entered.open()
        try:
            await self._asked.wait()
        finally:  # what goes wrong inside may cancel the wait
            left = await self._manager.__aexit__(*self._reason)
        return left


async def now(function: Callable[..., T], *args: Any) -> T:
    """Calls a plain function."""
    return function(*args)


async def within(seconds: float | None, wait: Callable[..., Awaitable[T]], *args: str) -> T:
    """Awaits a call. Raises TimeoutError if it takes longer."""
    with anyio.fail_after(seconds):
        return await wait(*args)
