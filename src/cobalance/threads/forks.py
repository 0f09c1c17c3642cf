"""Forks of a process: its memberships, their threads and connections stay with the parent."""

from __future__ import annotations

import os
import sys

from cobalance.errors import UsageError


class Forkable:
    """What belongs to the process that has entered it."""

    name: str
    _process = 0
    """In which it was entered."""

    @property
    def is_copy(self) -> bool:
        """Whether this is a fork of the member's process."""
        return self._process not in {0, os.getpid()}

    def check_process(self) -> None:
        """Raises UsageError in a fork: nobody would answer."""
        if self.is_copy:
            raise UsageError(
                f"group {self.name} was entered before the process was forked: make another one in each process"
            )


def end_fork(error: BaseException | None) -> None:
    """Ends a fork by what would end it anyway, but at once: its event loop shares with the parent's what wakes them, so that closing the
    one would deafen the other, and using it hangs. So one that just goes on cannot. What the loop cancels is left to it.
    """
    error = error or UsageError(
        "a fork has left the `async with` of its parent's group, whose event loop only the parent can go on with: end the fork with os._exit() "
        "in the block, or fork before the event loop begins"
    )
    if not isinstance(error, Exception | SystemExit | KeyboardInterrupt):
        return
    code = error.code if isinstance(error, SystemExit) else error
    if isinstance(code, BaseException):
        sys.excepthook(type(code), code, code.__traceback__)
    elif code is not None and not isinstance(code, int):
        sys.stderr.write(f"{code}\n")
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit((code or 0) if isinstance(code, int | None) else 1)
