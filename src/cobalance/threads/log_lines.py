"""Log lines of threads that members depend on. Writing a line may take forever, if nobody reads the pipe behind a log
handler or the server it sends to is cut off, so another thread does it. No line shows a traceback's secrets, and a
logging configuration that raises ends nobody.
"""

from __future__ import annotations

import atexit
import logging
import os
import sys
import threading
from collections import deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from cobalance.redact import redacted_traceback

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    ExcInfo = tuple[type[BaseException], BaseException, TracebackType | None]

MOST_WAITING = 1_000
"""The most lines that wait to be written. Later ones are counted instead, and the count is logged."""

PATIENCE_S = 1.0
"""How long a group that is left waits for its last lines."""


class ServiceThread(threading.Thread):
    """A daemon thread that members depend on: it does not wait for the log."""

    def __init__(self, target: Callable[..., object], name: str, args: tuple[Any, ...] = ()) -> None:
        super().__init__(target=target, name=name, args=args, daemon=True)


class LogLines:
    """Lines that wait to be written, and the thread that writes them, which ends when none is left."""

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Starts over; in a fork, where the thread is missing and may have left the lock locked."""
        self._change = threading.Condition()
        self._waiting = deque[logging.LogRecord]()
        self._left_out = 0
        self._writing = False

    def divert(self, record: logging.LogRecord) -> bool:
        """A logger's filter: takes the lines of service threads, and lets the others pass."""
        if not isinstance(threading.current_thread(), ServiceThread):
            return True
        with self._change:
            if len(self._waiting) < MOST_WAITING:
                self._waiting.append(record)
            else:
                self._left_out += 1
            if not self._writing:
                with suppress(RuntimeError):  # no thread to spare: written with the next line, or on leaving
                    threading.Thread(target=self._write, name="cobalance-log", daemon=True).start()
                    self._writing = True
        return False

    def flush(self, timeout_s: float = PATIENCE_S) -> None:
        """Returns when everything is written, or the time is up; at once on a service thread, whose lines wait for another."""
        if isinstance(threading.current_thread(), ServiceThread):
            return
        with self._change:
            if self._writing:
                self._change.wait_for(lambda: not self._writing, timeout_s)
                return
        self._write()

    def _write(self) -> None:
        while (record := self._next()) is not None:
            try:
                logging.getLogger(record.name).handle(record)
            except BaseException:  # noqa: BLE001 -- the program's handler failed; the next line is written all the same
                _tell_hook()

    def _next(self) -> logging.LogRecord | None:
        with self._change:
            if self._waiting:
                return self._waiting.popleft()
            if self._left_out:
                many, self._left_out = self._left_out, 0
                words = "%d log lines were left out, since the log did not take them in time"
                return logging.LogRecord("cobalance", logging.WARNING, __file__, 0, words, (many,), None)
            self._writing = False
            self._change.notify_all()
            return None


_lines = LogLines()
divert, flush = _lines.divert, _lines.flush


def exc_info(error: BaseException | None) -> ExcInfo | None:
    """An exception for ``exc_info`` of a log call, which would ask the exception itself whether it is true."""
    return None if error is None else (type(error), error, error.__traceback__)


def redact_exception(record: logging.LogRecord) -> bool:
    """A logger's filter: leaves the exception's redacted traceback only, since handlers show all of the exception."""
    if record.exc_info and record.exc_info[1] is not None:
        record.exc_text, record.exc_info = redacted_traceback(record.exc_info[1]), None
    return True


def contain(logger: logging.Logger, applies: Callable[[], bool] = lambda: True) -> None:
    """What the program's filters and handlers raise costs the line, and not the task or the thread that writes it."""
    log_line: Callable[..., None] = logger._log  # noqa: SLF001 -- what all methods call

    def write(*args: Any, stacklevel: int = 1, **named: Any) -> None:
        try:
            log_line(*args, stacklevel=stacklevel + 1, **named)
        except Exception:  # as in LogLines; Ctrl-C may come here, too
            if not applies():
                raise
            _tell_hook()

    logger._log = write  # type: ignore[method-assign]  # noqa: SLF001


def _tell_hook() -> None:
    """Of the exception that is being handled."""
    with suppress(BaseException):
        threading.excepthook(threading.ExceptHookArgs((*sys.exc_info(), threading.current_thread())))


# A logger's filter does not see the records of its descendants. Diverted records are redacted once they come back.
for _name in ("cobalance", "cobalance.coordinator", "cobalance.group", "cobalance.rabbitmq"):
    logging.getLogger(_name).addFilter(divert)
    logging.getLogger(_name).addFilter(redact_exception)
    contain(logging.getLogger(_name))

os.register_at_fork(after_in_child=_lines.forget)
atexit.register(flush)
