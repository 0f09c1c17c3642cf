"""One AMQP connection on its own daemon thread, so that heartbeats go out whatever the handlers do.

pika is not thread-safe: everything that touches it runs on the I/O thread. `submit` runs a function there from any
thread, and callbacks are called there. A lost connection is reported and stays lost until `connect` is called again,
because the member must rejoin its group first, and this module knows nothing of groups.
"""

import logging
import threading
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Any

from pika import URLParameters
from pika import exceptions as pika_errors
from pika.adapters.select_connection import IOLoop
from pika.channel import Channel

from cobalance.rabbitmq.wire.address import host_of, place
from cobalance.rabbitmq.wire.channel_limit import ChannelLimit
from cobalance.rabbitmq.wire.failures import GivenUp, connect_failure, loss_reason, shortage
from cobalance.rabbitmq.wire.hosts import first_that_works
from cobalance.rabbitmq.wire.parameters import connection_parameters
from cobalance.rabbitmq.wire.pika_internals import QuickConnection, bare_close, close_loop, drop, lose
from cobalance.rabbitmq.wire.pika_log import our_connection
from cobalance.rabbitmq.wire.proof import Proof
from cobalance.threads.log_lines import ServiceThread

logger = logging.getLogger("cobalance.rabbitmq")

Job = Callable[[], object]

Borrower = tuple[Callable[[Channel], None], Callable[[Channel, Exception], None], Callable[[Exception], None]]

LENT_MS = 10_000.0
"""A channel that was lent for longer takes a place for good, and the next one is lent."""

COUNTED_MS = 50.0
"""RabbitMQ counts a user's channels a moment late: one that was closed may still count against the next."""

NO_FAREWELL = "it was closed, and RabbitMQ did not answer that"

SILENT_HEARTBEATS = 2
"""This many heartbeats without a byte mean that the peer or the network is gone (AMQP 0.9.1, 4.2.7)."""


class BrokerConnection:
    """A connection to RabbitMQ that can be lost and made again.

    `name` is shown in RabbitMQ's list of connections ("group/member"). `heartbeat_s` applies unless the URL sets one;
    the broker closes a silent connection after two to three heartbeats. `on_lost(reason)`, `on_blocked(blocked)` and
    `on_proven(proven)` run on the I/O thread; `on_lost` is not called after `close`. The connection is only probed if
    `on_proven` is given.
    """

    def __init__(
        self,
        url: str,
        name: str,
        *,
        heartbeat_s: int = 10,
        on_lost: Callable[[str], None] = lambda _: None,
        on_blocked: Callable[[bool], None] = lambda _: None,
        on_proven: Callable[[bool], None] | None = None,
    ) -> None:
        self.name = name
        self.place, self.host = place(url), host_of(url)
        """Where it is connected to, or was last. Before that: all places, and the host if there is one."""
        self.blocked = False
        """The broker is short of memory or disk and has stopped reading from us."""
        self.server_version = ""
        """The RabbitMQ version of the last connection, such as "4.0.5"."""
        self.cluster = ""
        """The name of its cluster, which tells brokers apart."""
        self.frame_max = 0
        """The largest frame it accepts, in bytes; 0 if unknown."""
        self._url, self._heartbeat_s = url, heartbeat_s
        self._on_lost, self._on_blocked, self._on_proven = on_lost, on_blocked, on_proven
        self._lock = threading.Lock()
        self._jobs: deque[Job] = deque()
        self._waking = False
        self._loop: IOLoop | None = None  # None unless the connection is open.
        self._pika: QuickConnection | None = None
        self._thread: ServiceThread | None = None
        self.locks: set[str] = set()
        """The lock queues that it holds, or has asked for. I/O thread only."""
        self._listeners: list[Callable[[str], None]] = []
        self._channels: list[Channel] = []
        self._limit = ChannelLimit(name)
        self._borrowers: deque[Borrower] = deque()
        self._lent = set[Channel]()
        self._settling = 0
        self._proof: Proof | None = None
        self._closing = False
        self._reason = NO_FAREWELL

    def __repr__(self) -> str:
        return f"BrokerConnection({self.name!r} to {self.place}, {'open' if self.is_open else 'closed'})"

    @property
    def is_open(self) -> bool:
        """Whether the connection is open, as far as we know. Already False when the end listeners run."""
        pika = self._pika
        return self._loop is not None and (pika is None or not pika.is_closed)

    @property
    def is_own_thread(self) -> bool:
        """Whether this runs on the I/O thread, which must not wait for what only it can bring."""
        # Threads, not their numbers: the system gives the number of one that has ended to another.
        return self._thread is threading.current_thread()

    @property
    def is_proven(self) -> bool:
        """Whether RabbitMQ cannot have given this connection up yet; see :mod:`cobalance.rabbitmq.wire.proof`."""
        proof = self._proof
        return proof is not None and proof.holds

    @property
    def bytes_sent(self) -> int:
        """How many bytes were given to it to send. I/O thread only."""
        return 0 if self._pika is None else self._pika.bytes_sent

    @property
    def bytes_taken(self) -> int:
        """How many of them have arrived, as far as the system says. I/O thread only."""
        return 0 if self._pika is None else self._pika.bytes_sent - self._pika.unsent

    @property
    def channels_allowed(self) -> int | None:
        """How many channels it may have, as far as known; None if any number."""
        return self._limit.most

    def connect(self, timeout_ms: int = 10_000) -> None:
        """Connects to one of the URL's hosts. Blocks for at most the timeout, of which each host is given its share, and at
        least a second; see :func:`first_that_works`.

        Raises:
            Unreachable, AuthenticationRefused, VirtualHostMissing, NotRabbitMQ: what is wrong.
        """
        if self.is_open:
            raise RuntimeError(f"{self!r} is in use")
        if self._thread is not None:
            self._thread.join()  # the thread of the last connection, which is just ending
        self._closing, self.blocked = False, False
        first_that_works(self._url, self._connect, timeout_ms)

    def _connect(self, url: str, timeout_ms: int) -> None:
        parameters = connection_parameters(url, self.name, self._heartbeat_s, timeout_ms)
        self.place, self.host, self._reason = place(url), host_of(url), NO_FAREWELL
        opened: Future[Exception | None] = Future()
        thread = ServiceThread(self._run, f"amqp {self.name}", (parameters, opened))
        try:
            thread.start()
        except RuntimeError as error:
            raise connect_failure(error, self.place) from None
        self._thread = thread
        failure = opened.result()
        if failure is not None:
            thread.join()
            raise failure

    def submit(self, job: Job) -> bool:
        """Runs a function on the I/O thread soon, in order; from any thread.

        Returns False, and never runs it, if not connected.

        A burst of submissions costs one wake-up. An accepted job always runs, even if the connection has just been
        lost, so it must check the state of what it touches.
        """
        with self._lock:
            loop = self._loop
            if loop is None:
                return False
            self._jobs.append(job)
            if not self._waking:
                loop.add_callback_threadsafe(self._run_jobs)  # a signal handler may raise in there
                self._waking = True
        return True

    def call_later(self, delay_ms: float, job: Callable[[], None]) -> None:
        """Runs a function on the I/O thread after a delay, if the connection is still open then. I/O thread only."""
        if self._loop is not None:
            self._loop.call_later(delay_ms / 1000, job)

    def open_channel(self, on_open: Callable[[Channel], None], *, lasting: bool = False) -> Channel:
        """Returns a new channel; it is open when `on_open` runs. I/O thread only.

        Raises:
            ChannelLimitReached: RabbitMQ does not allow another `lasting` channel.
        """
        if self._pika is None:
            raise pika_errors.ConnectionWrongStateError(f"{self!r} has no channels to open")
        if lasting:
            self._limit.check(len(self._channels) - len(self._lent) + 1, self.place)

        def opened(channel: Channel) -> None:
            self._limit.opened()
            channel.add_on_close_callback(lambda *_: self._limit.closed())
            on_open(channel)

        channel = self._pika.channel(on_open_callback=opened)
        channel.add_on_close_callback(self._channel_closed)
        self._channels.append(channel)
        return channel

    def lend_channel(
        self,
        use: Callable[[Channel], None],
        closed: Callable[[Channel, Exception], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Opens a channel for a moment, in turn where RabbitMQ allows few. I/O thread only.

        `use` closes it; `closed` says that it is, and `failed` that it could not be opened. None of them runs if the
        connection ends first.
        """
        self._borrowers.append((use, closed, failed))
        self._lend()

    def add_end_listener(self, listener: Callable[[str], None]) -> None:
        """Calls `listener(reason)` once on the I/O thread when the connection ends in any way, at once if it just has.

        I/O thread only.
        """
        if self._pika is None:
            listener(self._reason)
        else:
            self._listeners.append(listener)

    def remove_end_listener(self, listener: Callable[[str], None]) -> None:
        """Undoes `add_end_listener`; does nothing if the listener is not registered. I/O thread only."""
        if listener in self._listeners:
            self._listeners.remove(listener)

    def close(self, timeout_ms: int = 5_000) -> None:
        """Closes channels (bare, to keep messages in order), then the connection, and waits. Safe if there is none."""
        self._closing = True
        self.submit(self._close)
        thread = self._thread
        if thread is None or thread is threading.current_thread():
            return
        thread.join(timeout_ms / 1000)
        with self._lock:  # A broker that does not answer cannot hold us up: the socket goes with the loop.
            if self._loop is not None:
                self._loop.add_callback_threadsafe(self._loop.stop)
        thread.join(1)

    # Everything below runs on the I/O thread.

    def _run(self, parameters: URLParameters, opened: Future[Exception | None]) -> None:
        with our_connection():
            try:
                loop = IOLoop()
            except Exception as error:  # noqa: BLE001 -- whoever connects waits for this thread
                opened.set_result(connect_failure(error, self.place))
                return
            try:
                self._live(loop, parameters, opened)
            finally:
                close_loop(loop)

    def _live(self, loop: IOLoop, parameters: URLParameters, opened: Future[Exception | None]) -> None:
        try:
            self._start(loop, parameters, opened)
            loop.start()
        except (
            BaseException
        ) as error:  # reported as the reason of the loss, a SystemExit, too, which would end silently
            if opened.done() or shortage(error) is None:
                logger.exception("the I/O thread of %r failed: please report this", self)
            self._reason = f"the I/O thread failed: {error!r}"
            if not opened.done():
                opened.set_result(connect_failure(error, self.place))
        self._end()

    def _start(self, loop: IOLoop, parameters: URLParameters, opened: Future[Exception | None]) -> None:
        def on_open(connection: Any) -> None:
            self._pika = connection
            self.server_version = str((connection.server_properties or {}).get("version", ""))
            self.cluster = str((connection.server_properties or {}).get("cluster_name", ""))
            self.frame_max = connection.params.frame_max
            self._limit.connected(connection.params.channel_max)
            connection.add_on_connection_blocked_callback(lambda *_: self._set_blocked(True))
            connection.add_on_connection_unblocked_callback(lambda *_: self._set_blocked(False))
            with self._lock:
                self._loop = loop
            opened.set_result(None)
            self._watch(connection)
            if self._on_proven is not None:
                self._prove(connection.params.heartbeat or self._heartbeat_s, self._on_proven)

        def on_open_error(connection: Any, error: Any) -> None:
            opened.set_result(connect_failure(error, self.place, spoke_otherwise=connection.heard_no_amqp))
            loop.stop()

        def on_close(_: object, error: Exception) -> None:
            self._reason = loss_reason(error)
            self._limit.lost(self._reason)
            loop.stop()

        QuickConnection(parameters, on_open, on_open_error, on_close, custom_ioloop=loop)

    def _prove(self, heartbeat_s: float, tell: Callable[[bool], None]) -> None:
        """If only one channel is allowed, that may be one too many, so this waits until more are tried."""
        if self._limit.most == 1:
            self.call_later(heartbeat_s * 1000, lambda: self._prove(heartbeat_s, tell))
            return
        self._proof = Proof(self, heartbeat_s, tell)
        self._proof.begin()

    def _watch(self, connection: Any, heard: int = 0, silent: int = 0) -> None:
        """RabbitMQ sends something twice per heartbeat; pika checks too rarely for heartbeats as short as ours."""
        loop, heartbeat_s = self._loop, connection.params.heartbeat
        if loop is None or not heartbeat_s:
            return
        silent = silent + 1 if connection.bytes_received == heard else 0
        if silent >= SILENT_HEARTBEATS:
            self._reason = f"nothing was heard for {silent * heartbeat_s} s, not even a heartbeat"
            loop.stop()
            return
        heard = connection.bytes_received
        loop.call_later(heartbeat_s, lambda: self._watch(connection, heard, silent))

    def _run_jobs(self) -> None:
        if self._pika is None or self._pika.is_closed:  # The connection has just ended: these jobs run in _end.
            return
        with self._lock:
            jobs, self._jobs = self._jobs, deque()
            self._waking = False
        try:
            while jobs:
                jobs.popleft()()
        finally:
            if jobs:  # A job failed, which ends the connection; the rest run in _end.
                with self._lock:
                    self._jobs.extendleft(reversed(jobs))

    def _end(self) -> None:
        with self._lock:
            was_open, self._loop = self._loop is not None, None
        if self._pika is not None:
            drop(self._pika)  # After a failure, or if the broker did not answer our close; otherwise closed already.
        self._pika = self._proof = None
        self._borrowers.clear()
        self.locks.clear()
        self._lent, self._settling = set(), 0
        listeners, self._listeners = self._listeners, []
        lost = [partial(lose, channel, GivenUp(self._reason)) for channel in self._channels]  # unless pika lost it
        self._run_last_jobs([*lost, *(partial(listener, self._reason) for listener in listeners)])
        self._channels.clear()
        if was_open and not self._closing:
            self._on_lost(self._reason)

    def _run_last_jobs(self, first: list[Job]) -> None:
        """Runs the remaining jobs; no failure here may keep the loss from being reported."""
        with self._lock:
            jobs, self._jobs, self._waking = self._jobs, deque(), False
        for job in (*first, *jobs):
            try:
                job()
            except BaseException:
                logger.exception("a job of %r failed after its end: please report this", self)

    def _close(self) -> None:
        for channel in [c for c in self._channels if not (c.is_closing or c.is_closed)]:
            bare_close(channel)
        if self._pika is not None and self._pika.is_open:
            self._pika.close()

    def _channel_closed(self, channel: Channel, _: Exception) -> None:
        self._channels.remove(channel)

    def _lend(self) -> None:
        while self._borrowers and (not (self._lent or self._settling) or self._limit.leaves_room(len(self._channels))):
            use, closed, failed = self._borrowers.popleft()
            try:
                channel = self.open_channel(use)
            except pika_errors.AMQPError as error:
                failed(error)
            else:
                self._lent.add(channel)
                channel.add_on_close_callback(self._returned)
                self.call_later(LENT_MS, partial(self._give_up, channel))
                channel.add_on_close_callback(closed)

    def _returned(self, channel: Channel, _: object) -> None:
        if channel in self._lent:
            self._lent.remove(channel)
            self._settling += 1
            self.call_later(COUNTED_MS, self._settled)

    def _give_up(self, channel: Channel) -> None:
        """RabbitMQ does not answer on it: nobody waits for it any longer."""
        if channel in self._lent:
            self._lent.remove(channel)
            logger.warning("%s: RabbitMQ has not answered a query for %d s", self.name, LENT_MS // 1000)
            self._lend()

    def _settled(self) -> None:
        self._settling -= 1
        self._lend()

    def _set_blocked(self, blocked: bool) -> None:
        self.blocked = blocked
        self._on_blocked(blocked)
