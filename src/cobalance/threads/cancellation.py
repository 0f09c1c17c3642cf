"""Tells the end of a task, as its event loop wanted it, from a failure of the code in it."""

from __future__ import annotations

import asyncio
import sys


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
    try:
        task = asyncio.current_task()
    except RuntimeError:  # in trio
        return True
    return task is None or bool(task.cancelling())
