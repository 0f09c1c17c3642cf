"""Forked processes: memberships, with their threads and connections, stay with the parent; what only asks goes on in
both.
"""

from __future__ import annotations

import os
import sys
import threading
from weakref import WeakSet

from cobalance.errors import UsageError
from cobalance.lazy import importing


class Forkable:
    """Base of objects that belong to the process that entered them."""

    name: str
    _process = 0
    """The process id in which it was entered."""

    @property
    def is_copy(self) -> bool:
        """Whether this process is a fork of the member's process."""
        return self._process not in {0, os.getpid()}

    def check_process(self) -> None:
        """Raises UsageError in a fork, where nothing would answer."""
        if self.is_copy:
            raise UsageError(
                f"group {self.name} was entered before the process was forked: make another one in each process"
            )


class ForkSafe:
    """Base of objects that a fork goes on using, each with a lock."""

    def __init__(self) -> None:
        self._begin()
        _fork_safe.add(self)

    def _begin(self) -> None:
        """At first, and in each fork before anything else: a thread that the fork does not have may hold the lock."""
        self._lock = threading.Lock()


_fork_safe = WeakSet[ForkSafe]()


def _begin_all() -> None:
    for it in _fork_safe:
        it._begin()  # noqa: SLF001 -- it is one of this module


os.register_at_fork(after_in_child=_begin_all)


def end_fork(error: BaseException | None) -> None:
    """Ends a forked process at once, with the exit code that the error would have caused.

    Its event loop shares the wake-up descriptors of the parent's: closing it would disable the parent's, and using it
    hangs. So a fork cannot just continue. Cancellations are left to the loop.
    """
    with importing:
        from cobalance.threads.cancellation import is_cancellation

    if error is None:
        error = UsageError(
            "a fork has left the `async with` of its parent's group, whose event loop only the parent can go on with: end the fork with os._exit() "
            "in the block, or fork before the event loop begins"
        )
    if is_cancellation(error):
        return
    code = error.code if isinstance(error, SystemExit) else error
    if isinstance(code, BaseException):
        sys.excepthook(type(code), code, code.__traceback__)
    elif code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit((code or 0) if isinstance(code, int | None) else 1)
