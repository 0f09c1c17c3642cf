"""Receives hints from Redis, on a thread and connection of its own."""

from __future__ import annotations

import contextlib
import logging
import math
import random
import selectors
import socket
import threading
import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from redis import exceptions as redis_errors

from cobalance.backoff import Backoff
from cobalance.coordinator.entries import hint_version
from cobalance.coordinator.redis.address import NotConnected
from cobalance.coordinator.redis.failures import connect_failure, permission_missing
from cobalance.coordinator.transport import LISTENING, OnHint
from cobalance.threads.log_lines import ServiceThread

if TYPE_CHECKING:
    from cobalance.coordinator.redis.address import RedisAddress
    from cobalance.coordinator.redis.hosts import RedisSource

_log = logging.getLogger("cobalance.coordinator")

_POLL_S = 1.0
_PING_EVERY_S = 5.0
"""A peer that vanished silently is noticed after two of these; meanwhile heartbeats bring the news."""
_TIMEOUT_MS = 2000
BACKOFF_S = Backoff(0.05, 1.0)
"""The pauses grow on until a subscription has lasted for the longest: something in between may end each at once."""
_RENEWED_WITHIN_S = 1.0
"""After a change of server, the listeners of a group do not all connect at once."""
REFUSED_S = 10.0
"""Pause before asking again for what the user may not do, which may be allowed meanwhile, and after a bug."""


Home = Callable[[str], tuple[str, int] | None]
"""Host and port of the server that counts who listens to a channel, if that is known; what the source locates otherwise."""


class RedisListener:
    """Receives hints of one Redis. Only its own thread uses the socket; the others just state what they want."""

    def __init__(self, source: RedisSource, on_hint: OnHint, *, home: Home = lambda _: None) -> None:
        self._source = source
        self._on_hint = on_hint
        self._home = home
        self._wanted: frozenset[str] = frozenset()
        self._wanted_lock = threading.Lock()
        self._renew_at_s = math.inf
        self._closed = threading.Event()
        self._bell, self._waker = socket.socketpair()
        self._bell.setblocking(False)
        self._waker.setblocking(False)
        self._thread = ServiceThread(self._run, f"cobalance hints {source.place}")
        self._thread.start()

    def subscribe(self, channel: str) -> None:
        """Starts listening soon; see :class:`Listener`."""
        with self._wanted_lock:
            self._wanted |= {channel}
        self._wake()

    def unsubscribe(self, channel: str) -> None:
        with self._wanted_lock:
            self._wanted -= {channel}
        self._wake()

    def renew(self) -> None:
        """Connects again within two seconds, wherever the source leads by now. Until then, it goes on hearing what it hears."""
        self._renew_at_s = time.monotonic() + random.uniform(0, _RENEWED_WITHIN_S)  # noqa: S311 -- no secret

    def close(self) -> None:
        """Ends the thread and its connection."""
        self._closed.set()
        self._wake()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout=2 * _TIMEOUT_MS / 1000)

    def _wake(self) -> None:
        # If the buffer is full the thread will wake up anyway; if the socket is gone, the listener is closed.
        with contextlib.suppress(OSError):
            self._waker.send(b"!")

    def _run(self) -> None:
        while not self._closed.is_set():
            try:
                self._listen_until_closed()
            except Exception:  # noqa: BLE001 -- a bug: a dead thread would go unnoticed
                _log.exception("Hints have failed, trying again in %d s. Please report this", REFUSED_S)
                self._closed.wait(REFUSED_S)
        self._bell.close()
        self._waker.close()

    def _listen_until_closed(self) -> None:
        failures, refused = 0, False
        while not self._closed.is_set():
            session = _Session(self._source, self._on_hint)
            try:
                while not self._closed.is_set():
                    self._connect(session)
                    session.follow(self._wanted)
                    if failures and session.has_lasted:
                        _log.info("Hints come again from Redis at %s", self._source.place)
                        failures, refused = 0, False
                    self._wait(session.wait_for(), _POLL_S)
            except redis_errors.NoPermissionError as error:
                if not refused:
                    _log.warning(
                        "%s Until then changes are noticed at the next heartbeat.",
                        permission_missing(error, self._source.place, "hints"),
                    )
                refused = True
            except (redis_errors.RedisError, OSError) as error:
                failures, refused = 0 if session.has_lasted else failures, False
                if failures == 0 and not self._closed.is_set():
                    # Problems beyond hints are reported by the calls.
                    _log.info("Hints are interrupted, trying again: %s", connect_failure(error, self._source.place))
            finally:
                session.close()
            self._pause(REFUSED_S if refused else BACKOFF_S.pause(failures) if failures else 0.0)
            failures += 1

    def _connect(self, session: _Session) -> None:
        """If there is no connection, or one to another server than the one that counts, or if another was asked for."""
        home = self._home(min(self._wanted)) if self._wanted else None  # all are of one group
        if not session.is_at(home) or time.monotonic() >= self._renew_at_s:
            self._renew_at_s = math.inf
            session.open(home)

    def _pause(self, seconds: float) -> None:
        try:
            self._wait((), seconds)
        except OSError:  # the system has no descriptor for a selector
            self._closed.wait(seconds)

    def _wait(self, others: tuple[Any, ...], timeout_s: float) -> None:
        with selectors.DefaultSelector() as selector:  # select.select knows no descriptor from 1024 on
            for it in (self._bell, *others):
                selector.register(it, selectors.EVENT_READ)
            selector.select(timeout_s)
        with contextlib.suppress(BlockingIOError):
            self._bell.recv(4096)


class _Session:
    def __init__(self, source: RedisSource, on_hint: OnHint) -> None:
        self._source = source
        self._address: RedisAddress | None = None
        self._database = ""
        self._connection: Any = NotConnected()
        self._on_hint = on_hint
        self._forget()

    def _forget(self) -> None:
        self._asked: frozenset[str] = frozenset()
        self._last_heard_s = time.monotonic()
        self._pinged = False
        self._subscribed_s: float | None = None

    @property
    def has_lasted(self) -> bool:
        """Whether it has been subscribed for so long that it was worth connecting."""
        since_s = self._subscribed_s
        return since_s is not None and time.monotonic() - since_s >= BACKOFF_S.longest

    def is_at(self, home: tuple[str, int] | None) -> bool:
        """Whether there is a connection, and not to another server than `home`."""
        return self._address is not None and home in (None, self._address.address)

    def open(self, home: tuple[str, int] | None) -> None:
        self.close()
        self._forget()
        address = self._source.locate(_TIMEOUT_MS)
        self._address = address if home is None else address.at(*home)
        self._database = self._address.database
        self._connection = self._address.connection(_TIMEOUT_MS)
        self._connection.connect()

    def close(self) -> None:
        self._connection.disconnect()

    def wait_for(self) -> tuple[Any, ...]:
        # redis-py has no public way to wait for a connection and something else.
        return (self._connection._sock,)  # noqa: SLF001

    def follow(self, wanted: frozenset[str]) -> None:
        """Updates the subscriptions, and reads what has arrived."""
        if wanted - self._asked:
            self._connection.send_command("SUBSCRIBE", *self._names(wanted - self._asked))
        if self._asked - wanted:
            self._connection.send_command("UNSUBSCRIBE", *self._names(self._asked - wanted))
        self._asked = wanted
        while self._connection.can_read(0):
            self._last_heard_s, self._pinged = time.monotonic(), False
            self._handle(self._connection.read_response())
        self._check_alive()

    def _names(self, channels: Iterable[str]) -> list[str]:
        return [channel + self._database for channel in sorted(channels)]

    def _handle(self, message: Any) -> None:
        if not isinstance(message, list) or message[0] not in {b"message", b"subscribe"}:
            return
        channel = message[1].decode().removesuffix(self._database)
        if self._subscribed_s is None:
            self._subscribed_s = time.monotonic()
        if channel in self._asked:
            self._tell(channel, hint_version(message[2]) if message[0] == b"message" else LISTENING)

    def _tell(self, channel: str, version: int) -> None:
        try:
            self._on_hint(channel, version)
        except Exception:  # noqa: BLE001 -- an error of one receiver must not end all hints
            _log.exception("A hint could not be handed on")

    def _check_alive(self) -> None:
        silent_s = time.monotonic() - self._last_heard_s
        if silent_s > 2 * _PING_EVERY_S:
            raise redis_errors.TimeoutError("Timeout waiting for PONG")
        if silent_s > _PING_EVERY_S and not self._pinged:
            self._pinged = True
            self._connection.send_command("PING")
