"""The tasks and threads of a membership, and the first exception that comes out of them, which ends it."""

from __future__ import annotations

import logging
from contextlib import contextmanager, nullcontext
from typing import TYPE_CHECKING, TypeVar

import anyio

from cobalance.errors import GroupFailed, MembershipError, OutOfThreads, UsageError
from cobalance.group.own_code import OwnCode, as_raised
from cobalance.group.stopping import TASK_CANCELLED, is_escape, task_cancelled
from cobalance.redact import raised_at
from cobalance.threads.cancellation import is_cancellation, is_expected, loop_ends
from cobalance.threads.event_loop import Trio, running_event_loop
from cobalance.threads.log_lines import exc_info
from cobalance.threads.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterator
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Any

    from anyio.abc import TaskGroup

log = logging.getLogger("cobalance")

T = TypeVar("T")

PROGRAM, OWN, ENTRY = "the program's code", "the group's own code", "its entry"
"""Where the exception was raised that ends a membership."""


class Tasks:
    """Runs what belongs to one membership.

    Args:
        group: the group's name.
        log_exceptions: whether messages and tracebacks of the program's exceptions may be logged.
    """

    def __init__(self, group: str, *, log_exceptions: bool) -> None:
        self._group, self.log_exceptions = group, log_exceptions
        self.own_code = OwnCode(group)
        self.contain: Callable[[], AbstractContextManager[None]] = nullcontext
        """Wraps calls of the program's code, where that is in threads: :func:`cobalance.group.own_code.exits_contained`."""
        self.first_error: BaseException | None = None
        self.failed_in = PROGRAM
        self._threads = WorkerThreads()
        self._services: list[anyio.CancelScope] = []
        self._over = False
        """Set when services have to end."""
        self.loop_ends: Callable[[], bool] = lambda: False
        """See :data:`cobalance.threads.cancellation.loop_ends`."""
        self._tasks: TaskGroup

    async def open(self) -> None:
        """Begins to run tasks, in a task group of the current task."""
        self._loop = running_event_loop()
        self._running, self._one_ended = 0, anyio.Event()
        self._tasks, self._host = await anyio.create_task_group().__aenter__(), self._loop.current_task()

    def start(self, call: Callable[..., Awaitable[None]], *args: object) -> None:
        """Starts a task of the group's, as all of them are. Whatever ends it ends the membership, and is reported at once."""
        self._tasks.start_soon(self._run, call, args, name=getattr(call, "__qualname__", None))
        self._running += 1  # trio may have closed the task group

    async def _run(self, call: Callable[..., Awaitable[None]], args: tuple[object, ...]) -> None:
        loop_ends.set(self.loop_ends)
        try:
            await call(*args)
        except BaseException as error:
            if not is_expected(error):
                self.note_error(error, OWN)  # unless it is noted already, as the program's is where that is called
            raise
        finally:
            self._running -= 1
            self._one_ended.set()

    @contextmanager
    def service_scope(self) -> Iterator[anyio.CancelScope]:
        """A scope for what may go on until the membership is over, but no longer."""
        with anyio.CancelScope(shield=True) as scope:
            self._services.append(scope)
            if self._over:
                scope.cancel()
            try:
                yield scope
            finally:
                self._services.remove(scope)

    async def run_service(self, service: Callable[..., Awaitable[None]], *args: object) -> None:
        """Runs what may go on until the membership is over."""
        with self.service_scope():
            await service(*args)

    def start_service(self, service: Callable[..., Awaitable[None]], *args: object) -> None:
        """Starts a task for it."""
        self.start(self.run_service, service, *args)

    def end_services(self) -> None:
        """Ends the running services, and any that start later."""
        self._over = True
        for service in self._services:
            service.cancel()

    # -- the program's code ------------------------------------------------------------------------------------------

    async def in_thread(self, do: Callable[[], T], *, limited: bool = False) -> T:
        """Calls the program's code in a thread, which cannot be cancelled: it is awaited, but no longer than the
        membership lasts, or than its own limit if it has one.
        """
        with nullcontext() if limited else self.service_scope():
            return await self._threads.run(self.own_code.in_thread(do))

    async def in_thread_to_end(self, do: Callable[[], T]) -> T:
        """The same, but a cancellation does not end the wait before that thread is done."""
        return await self._threads.run_to_end(self.own_code.in_thread(do), self.service_scope)

    async def run_program(self, call: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Runs the program's code in a task of its own."""
        with self.contain(), self.own_code.inner_task():
            try:
                await call()
            except BaseException as error:
                if not is_expected(error):
                    self.note_error(error)
                raise

    # -- how they end ------------------------------------------------------------------------------------------------

    @property
    def failed(self) -> BaseException | None:
        """The exception that ended, or is ending, the membership, or kept it from being entered. None while all is well,
        and after a normal leave.
        """
        error = self.first_error
        return None if error is None or is_cancellation(error) else error

    def note_error(self, error: BaseException, where: str = PROGRAM) -> None:
        """The first one counts, and is logged."""
        if self.first_error is None:
            if is_cancellation(error) and not is_expected(error):
                error, where = task_cancelled(error), PROGRAM
            self.first_error, self.failed_in = error, OWN if isinstance(error, OutOfThreads) else where
            if not isinstance(error, GroupFailed):  # it has been logged already
                self._log_end(error)

    def note_refusal(self, error: BaseException) -> None:
        """The group was not entered, as its caller hears; unless somebody left it before, that is a failure."""
        if self.first_error is None and not isinstance(error, MembershipError):
            self.first_error, self.failed_in = error, ENTRY

    def _log_end(self, error: BaseException) -> None:
        """Logs the exception's message only if allowed: it may quote anything."""
        if not is_cancellation(error):
            raised = as_raised(error)
            kind, trace = type(raised).__name__, raised if self.log_exceptions else None
            how = f"in {self.failed_in} ends the membership"
            if isinstance(raised, OutOfThreads):
                how, trace = f"{how}. {raised}", None
            elif is_escape(raised):
                how = f"{how}: {raised}"
            elif self.failed_in is OWN:
                how += f" ({raised_at(raised)}): please report this"
            log.error("group %s: a %s %s", self._group, kind, how, exc_info=exc_info(trace))

    async def join(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> tuple[bool | None, BaseException | None]:
        """Leaves the task group, and returns its exception without an exception group around it, since users know
        nothing of our tasks: the body's exception if there is one, else the first one, of which the others are mostly
        consequences.
        """
        is_elsewhere = self._loop.current_task() is not self._host
        try:
            if is_elsewhere and isinstance(self._loop, Trio):
                await self._wait_for_all()
            swallowed = await self._tasks.__aexit__(kind, error, trace)
            cancelled_by_a_task = swallowed and self._tasks.cancel_scope.cancel_called
            if cancelled_by_a_task or (kind is None and self.first_error is not None):
                return False, _first_of(self.failed, UsageError(TASK_CANCELLED))
            return swallowed, None
        except BaseExceptionGroup as group:
            first = _most_telling(group, error, self.first_error)
        except BaseException as other:  # noqa: BLE001 -- raised by the caller, once everything is closed
            is_misuse = is_elsewhere and isinstance(other, RuntimeError)
            first = _first_of(error, self.first_error, _left_elsewhere(self._group)) if is_misuse else other
        return False, None if first is error else first

    async def _wait_for_all(self) -> None:
        """Trio has the task wait that entered the task group, whichever leaves it: nothing may be left to wait for."""
        with anyio.CancelScope(shield=True):
            while self._running:
                self._one_ended = anyio.Event()
                await self._one_ended.wait()


def _first_of(*errors: BaseException | None) -> BaseException:
    """The first one that there is. An exception may be false, and one may refuse to say whether it is."""
    return next(it for it in errors if it is not None)


def _most_telling(
    group: BaseExceptionGroup[BaseException], error: BaseException | None, first: BaseException | None
) -> BaseException:
    interruption = next((it for it in group.exceptions if not isinstance(it, Exception)), None)
    inside = {id(it) for it in group.exceptions}
    known = next((it for it in (error, first) if id(it) in inside), None)
    chosen = _first_of(interruption, known, group.exceptions[0])
    for other in group.exceptions:
        is_known = other is chosen or isinstance(other, GroupFailed)  # a group has one failure, which has been logged
        if not is_known:  # only the type: messages may quote what must not be logged
            kinds = (type(as_raised(it)).__name__ for it in (chosen, other))
            log.error("while leaving because of a %s, there was also a %s", *kinds)
    return chosen


def _left_elsewhere(group: str) -> UsageError:
    return UsageError(
        f"the `async with` of group {group} was left in another task than it was entered in, as fixtures and exit stacks do: "
        f"await group.start() and group.stop() in its place, which any task may (the member has left all the same)"
    )
