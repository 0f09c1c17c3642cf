"""Interrupts calls as a signal handler that raises, at each moment at which Python may run one."""

from __future__ import annotations

import _weakrefset
import dis
import gc
import sys
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

WAIT_S = 60


_SWALLOWS = _weakrefset.__file__, "_remove"
"""A callback: Python swallows what it raises."""


class Interrupted(BaseException):
    """What a signal handler raises: a soft time limit, or Ctrl-C in a notebook."""


MOMENTS = ("RESUME", "JUMP_BACKWARD", "CALL")
"""After these instructions, whose names may go on, Python runs signal handlers."""


def raise_interrupted() -> None:
    raise Interrupted


class Interruption:
    """Acts as a signal handler in this thread at one of the moments at which one could; counts from 0."""

    def __init__(
        self, moment: int, *, in_threading: bool = True, handler: Callable[[], object] = raise_interrupted
    ) -> None:
        self._in_threading, self._handler = in_threading, handler
        self._left, self.has_come = moment, False
        self._last: dict[FrameType, str] = {}

    def __call__(self, frame: FrameType, event: str, _: object) -> Any:
        """As `sys.settrace` wants it."""
        if frame.f_code.co_filename == threading.__file__ and not self._in_threading:
            return None
        if (frame.f_code.co_filename, frame.f_code.co_name) == _SWALLOWS:
            return None
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        if event == "return":
            self._last.pop(frame, None)
        if event != "opcode":
            return self
        before = self._last.get(frame, "")
        self._last[frame] = dis.opname[frame.f_code.co_code[frame.f_lasti]]
        if before.startswith(MOMENTS) and not self.has_come:
            self._left -= 1
            if self._left < 0:
                self.has_come = True
                self._last.clear()  # it would keep generators from being closed
                self._handler()
        return self


def interrupted(
    call: Callable[[], object],
    moment: int,
    *,
    in_threading: bool = True,
    handler: Callable[[], object] = raise_interrupted,
) -> bool:
    """Calls it, and interrupts it at that moment, by raising unless there is a handler; False if it was over before. Interrupted in the module `threading`, as
    it waits for a new thread to begin, a call may leave that thread waiting for a lock for ever.
    """
    interruption, before = Interruption(moment, in_threading=in_threading, handler=handler), sys.gettrace()
    gc.disable()  # Python swallows what a finalizer raises
    sys.settrace(interruption)
    try:
        call()
    except Interrupted:
        pass
    except RuntimeError as error:
        if not (isinstance(error.__context__, Interrupted) and str(error).endswith("lock")):  # of Python's Condition
            raise
    finally:
        sys.settrace(before)
        gc.enable()
    return interruption.has_come  # Python itself swallows what a weak reference's callback raises


def wait_for_the_end_of(*names: str) -> None:
    """Of the threads with these names, and of those that they begin. What Python keeps may never have begun."""
    while found := [it for it in threading.enumerate() if it.name in names and _begins(it)]:
        found[0].join(WAIT_S)
        assert not found[0].is_alive()


def _begins(thread: threading.Thread) -> bool:
    """Not so if a call that was interrupted in the module `threading`, in an earlier test, has left its lock locked."""
    started: Any = thread._started  # type: ignore[attr-defined]
    if not started._cond.acquire(timeout=0.5):
        return False
    started._cond.release()
    return bool(started.wait(0.5))
