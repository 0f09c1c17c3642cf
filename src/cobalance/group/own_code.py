"""Tracks where the program's own code runs, since waiting there for that code to end would deadlock."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

import anyio

from cobalance.errors import UsageError
from cobalance.threads.cancellation import is_cancellation, is_failure

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


class ContainedExit(Exception):
    """What one of the program's threads has raised that is no ``Exception``, such as ``sys.exit()``. Raised as is, it
    would end the event loop before anything is given back.
    """

    def __init__(self, raised: BaseException) -> None:
        super().__init__(type(raised).__name__)
        self.raised = raised


def as_raised(error: BaseException) -> BaseException:
    """The exception that the program's code raised."""
    return error.raised if isinstance(error, ContainedExit) else error


@contextmanager
def exits_contained() -> Iterator[None]:
    """Wraps what the program has raised in one of its threads in a ContainedExit, unless it is an ``Exception``."""
    try:
        yield
    except BaseException as error:
        if is_failure(error):
            raise
        raise ContainedExit(error) from error


class OwnCode:
    """The tasks and threads of one group that run the program's work and callbacks."""

    def __init__(self, group: str) -> None:
        self._group = group
        self._tasks: set[int] = set()
        self._threads: set[int] = set()

    @contextmanager
    def task(self) -> Iterator[None]:
        """Marks this task as one of them, and shields it from cancellations around the group."""
        with self.inner_task(), anyio.CancelScope(shield=True):
            yield

    @contextmanager
    def inner_task(self) -> Iterator[None]:
        """Marks this task, which ends before one of them does."""
        task = anyio.get_current_task().id
        self._tasks.add(task)
        try:
            yield
        finally:
            self._tasks.discard(task)

    def in_thread(self, function: Callable[[], T]) -> Callable[[], T]:
        """Wraps a function so that the thread that runs it is marked as one of them.

        Nobody cancels a thread, so what passes for a cancellation elsewhere is a failure of the function.
        """

        def run() -> T:
            thread = threading.get_ident()
            self._threads.add(thread)
            try:
                return function()
            except BaseException as error:
                if not is_cancellation(error):
                    raise
                raise UsageError(
                    f"the program's code raised {type(error).__name__} in a thread: catch it there, where something was cancelled"
                ) from error
            finally:
                self._threads.discard(thread)

        return run

    def refuse_leaving(self) -> None:
        """Raises UsageError in one of these tasks: leaving waits for work and callbacks."""
        if anyio.get_current_task().id in self._tasks:
            raise self._waits_for_itself()

    def refuse_leaving_in_thread(self) -> None:
        """Raises UsageError in one of these threads."""
        if threading.get_ident() in self._threads:
            raise self._waits_for_itself()

    def _waits_for_itself(self) -> UsageError:
        return UsageError(
            f"leaving group {self._group} in its own work or callback would wait for itself: return or raise there, "
            f"or leave in a task (or thread) that nothing there waits for"
        )
