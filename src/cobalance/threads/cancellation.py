"""Tells the end of a task, as its event loop wanted it, from a failure of the code in it."""

from __future__ import annotations

import asyncio
import math
import sys
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import anyio

if TYPE_CHECKING:
    from collections.abc import Callable

loop_ends: ContextVar[Callable[[], bool]] = ContextVar("loop_ends", default=lambda: False)
"""Says whether asyncio has cancelled all tasks, as it does at the end of an event loop. Set in each task of a group's."""


def is_cancellation(error: BaseException) -> bool:
    """Whether it is a cancellation of asyncio's or trio's, the closing of a coroutine, or a group of only these."""
    if isinstance(error, BaseExceptionGroup):
        return all(is_cancellation(it) for it in error.exceptions)
    trio = sys.modules.get("trio")
    ends = (asyncio.CancelledError, GeneratorExit, *(() if trio is None else (trio.Cancelled,)))
    return isinstance(error, ends)


def is_failure(error: BaseException) -> bool:
    """Whether a plain function of the program's has failed. Nobody cancels one that runs: a cancellation that it raises
    is another task's, whose result it has asked for.
    """
    return isinstance(error, Exception) or is_cancellation(error)


def is_cancelled() -> bool:
    """Whether asyncio is cancelling the current task. In trio, only one's own cancellation can come out of code."""
    task = asyncio_task()
    return task is None or bool(task.cancelling())


def is_expected(error: BaseException) -> bool:
    """Whether it is a cancellation by a scope, or by the end of the event loop, and not by the program, which may cancel
    any of asyncio's tasks.
    """
    if isinstance(error, GeneratorExit) or asyncio_task() is None:
        return is_cancellation(error)
    return is_cancellation(error) and (is_scope_cancelled() or loop_ends.get()())


def is_scope_cancelled() -> bool:
    """Whether a scope cancels the current task."""
    return anyio.current_effective_deadline() == -math.inf


def asyncio_task() -> asyncio.Task[Any] | None:
    """Returns the current task; None in trio."""
    try:
        return asyncio.current_task()
    except RuntimeError:
        return None
