"""What pika logs of connections of ours goes to its loggers at DEBUG.

pika writes some twenty lines at INFO for each connection, and a WARNING for every refusal, most of which are answers that we ask for:
whether an exchange exists is told by a 404. What matters of them is in our own lines and exceptions. Connections that the program makes
itself are logged as ever.
"""

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pika.adapters.blocking_connection
import pika.adapters.select_connection  # noqa: F401 -- both, so that all their loggers are there

from cobalance.rabbitmq.wire.pika_internals import host_resolved_by


class _Ours(threading.local):
    depth = 0


_ours = _Ours()


@contextmanager
def our_connection() -> Iterator[None]:
    """What this thread does with pika meanwhile is ours."""
    _ours.depth += 1
    try:
        yield
    finally:
        _ours.depth -= 1


class OurHost(str):
    """The host of a connection of ours, by which pika's thread that resolves it is known to be ours, too."""

    __slots__ = ()


def lowered(record: logging.LogRecord) -> bool:
    """A logger's filter: of what is ours, only somebody who debugs wants to know."""
    if not (_ours.depth or isinstance(host_resolved_by(threading.current_thread()), OurHost)):
        return True
    record.levelno, record.levelname = logging.DEBUG, "DEBUG"
    return logging.getLogger(record.name).isEnabledFor(logging.DEBUG)


# A logger's filter does not see what those below it log.
for _name in list(logging.root.manager.loggerDict):
    if _name.startswith("pika."):
        logging.getLogger(_name).addFilter(lowered)
