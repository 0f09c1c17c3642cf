"""Lowers pika's log records about our own connections to DEBUG.

pika logs some twenty lines at INFO per connection, and a WARNING for every refusal, most of which we provoke: a 404 is
how we learn that an exchange does not exist. What matters is in our own log lines and exceptions. Connections that the
program makes itself are logged as always.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika.adapters.blocking_connection
import pika.adapters.select_connection  # noqa: F401 -- both, so that all their loggers are there

from cobalance.rabbitmq.wire.pika_internals import host_resolved_by
from cobalance.threads.log_lines import contain, divert


class _Ours(threading.local):
    depth = 0


_ours = _Ours()


@contextmanager
def our_connection() -> Iterator[None]:
    """Marks what this thread does with pika as ours."""
    _ours.depth += 1
    try:
        yield
    finally:
        _ours.depth -= 1


class OurHost(str):
    """The host of one of our connections; marks pika's resolver thread for it as ours, too."""

    __slots__ = ()


def lowered(record: logging.LogRecord) -> bool:
    """A logger's filter: lowers our records to DEBUG."""
    if not _is_ours():
        return True
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


def _is_ours() -> bool:
    return bool(_ours.depth) or isinstance(host_resolved_by(threading.current_thread()), OurHost)


# A logger's filter does not see the records of its descendants.
for _name in list(logging.root.manager.loggerDict):
    if _name.startswith("pika."):
        logging.getLogger(_name).addFilter(lowered)
        logging.getLogger(_name).addFilter(divert)
        contain(logging.getLogger(_name), _is_ours)
