"""A process's hold on one resource, as user code sees it."""

from __future__ import annotations

import threading
from collections import OrderedDict
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, Self

import anyio
import attrs

from cobalance.coordinator.requests import Effort
from cobalance.errors import OffsetRegressed, UsageError
from cobalance.faces import hides
from cobalance.group.clock import awake_ms, monotonic_ms
from cobalance.group.stopping import Stoppable
from cobalance.limits import check_integer
from cobalance.threads.event_loop import running_event_loop

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Committer(Protocol):
    """Stores offsets; implemented by the group."""

    @property
    def is_copy(self) -> bool:
        """Whether this process is a fork of the member's process."""

    def check_process(self) -> None:
        """Raises UsageError in a fork."""

    async def commit_tenure(self, tenure: Tenure, offset: int) -> None:
        """Stores an offset under the tenure's token."""


@hides(
    *(
        "abort_at",
        "aborted",
        "ask_back",
        "asking",
        "begin_use",
        "busy_since",
        "effort",
        "end",
        "end_use",
        "ends",
        "hasten",
        "in_use",
        "keep",
        "lost",
        "note_commit",
        "on_pause",
        "pause",
        "stop_now",
    ),
    *("tries", "wait_ended", "wait_retold", "wait_unused", "work", "worked"),
)
@attrs.define(eq=False)
class Tenure:
    """A hold that begins with ``on_assigned`` and ends with ``on_revoked`` or ``on_lost``. Tokens are never reused."""

    resource: str
    token: int
    """The fencing token, higher than every earlier holder's. Store it with every side effect."""
    committed: int | None
    """The committed offset, which follows the commits of this tenure; ``None`` if there never was one. In a stream, -1 is
    before the first message, and -2 means that it was not found out yet where to start.
    """
    _group: Committer = attrs.field(repr=False)
    tries: int = attrs.field(default=0, repr=False)
    """How often in a row it was given up before, by whomever."""
    scope: anyio.CancelScope = attrs.field(factory=lambda: anyio.CancelScope(shield=True), repr=False)
    """Cancelled when the resource must be let go at once. Blocking code is not interrupted."""
    abort_at: int | None = None
    """Once it has been asked back: when (monotonic ms) it will be aborted."""
    ends: bool = False
    """Set once it is asked back for good, whatever becomes of the revocation."""
    aborted: bool = False
    """Set by the engine, on its thread, when the resource must be let go at once: the event loop may be busy."""
    paused: bool = False
    """Whether new work has to wait until it is resumed; see :meth:`Group.pause`."""
    on_pause: Callable[[], None] = attrs.field(default=lambda: None, repr=False)
    """The worker's hook, called when ``paused`` has changed."""
    _unpaused: anyio.Event = attrs.field(factory=anyio.Event, repr=False)
    _draining: anyio.Event = attrs.field(factory=anyio.Event, repr=False)
    _retold: anyio.Event = attrs.field(factory=anyio.Event, repr=False)
    _ended: anyio.Event = attrs.field(factory=anyio.Event, repr=False)
    _idle: anyio.Event = attrs.field(factory=anyio.Event, repr=False)
    _users: int = attrs.field(default=0, repr=False)
    _bodies: list[anyio.CancelScope] = attrs.field(factory=list, repr=False)
    work: Stoppable = attrs.field(init=False, repr=False)
    """What runs in the scope."""
    _busy: Busy = attrs.field(init=False, repr=False)

    def __attrs_post_init__(self) -> None:
        self.work, self._busy = Stoppable(self.scope, self.resource), Busy()

    @classmethod
    def fake(
        cls, resource: str = "fake", token: int = 1, committed: int | None = None, *, commits: list[int] | None = None
    ) -> Self:
        """Creates a tenure for tests of work functions, without a server. Commits are appended to ``commits``;
        ``cobalance.testing.ask_back`` ends it.

        Raises:
            UsageError: no event loop is running.
        """
        try:
            running_event_loop()
        except RuntimeError:
            raise UsageError(
                "Tenure.fake() is for async work, and no event loop runs here: call it in an async function, such as the one that the test "
                "gives to asyncio.run()"
            ) from None
        return cls(resource, token, committed, _Commits([] if commits is None else commits))

    @property
    def active(self) -> bool:
        """Whether new work may begin: the resource is neither asked back nor lost."""
        return not (self._draining.is_set() or self._ended.is_set() or self.lost or self._group.is_copy)

    @property
    def lost(self) -> bool:
        """Whether the resource had to be let go at once; any thread."""
        return self.aborted or self.scope.cancel_called

    async def wait_draining(self) -> None:
        """Returns when no new work may begin."""
        self._group.check_process()
        await self._draining.wait()

    async def wait_resumed(self) -> None:
        """Returns when it is not paused, or when no new work may begin anyway."""
        while self.paused and self.active:
            await self._unpaused.wait()

    @property
    def asking(self) -> anyio.Event:
        """Set when the resource is next asked back. It stays set if the resource may be kept after all; a new event
        then takes its place.
        """
        return self._draining

    async def wait_retold(self) -> None:
        """Returns the next time the resource may be kept after all, or has to be given back sooner."""
        await self._retold.wait()

    async def commit(self, offset: int) -> None:
        """Stores an offset durably; see :meth:`Group.commit`. Refused once this tenure is over, even if the resource
        has come back to this process, since that is another tenure.
        """
        check_integer("the offset to commit", offset, least=-1)  # -1 is before the first offset
        await self._group.commit_tenure(self, offset)

    @contextmanager
    def processing(self) -> Iterator[None]:
        """Marks a piece of work. Work that runs longer than ``max_processing_ms`` is considered hung, and loses the
        resource.
        """
        piece = object()
        try:
            self._busy.begin(piece)
            yield
        finally:
            try:
                self._busy.end(piece)
            except BaseException:  # a signal handler's
                self._busy.end(piece)
                raise

    @contextmanager
    def using(self) -> Iterator[anyio.CancelScope]:
        """Delays the release until the block ends, and cancels the block when the resource is asked back."""
        with anyio.CancelScope() as body:
            self._bodies.append(body)
            self.begin_use()
            if not self.active:
                body.cancel()
            try:
                yield body
            finally:
                self._bodies.remove(body)
                self.end_use()

    # For the group, on its event loop.

    def pause(self, *, on: bool) -> None:
        """Pauses or resumes new work."""
        self.paused = on
        if not on:
            self._wake_paused()
        self.on_pause()

    def _wake_paused(self) -> None:
        self._unpaused.set()
        self._unpaused = anyio.Event()

    def ask_back(self, abort_in_ms: int | None = None, *, for_good: bool = False) -> None:
        """Lets no new work begin. Running work will be aborted after this time. If it is for good, it is not kept after
        all.
        """
        self.ends = self.ends or for_good
        if abort_in_ms is not None:
            self.abort_at = monotonic_ms() + abort_in_ms
        self._draining.set()
        self._wake_paused()
        for body in self._bodies:
            body.cancel()

    def hasten(self, abort_in_ms: int) -> None:
        """Running work will be aborted after this time, which is sooner than was said."""
        self.abort_at = monotonic_ms() + abort_in_ms
        self._tell_again()

    def keep(self) -> None:
        """Cancels :meth:`ask_back`."""
        self._draining = anyio.Event()
        self._tell_again()

    def _tell_again(self) -> None:
        self._retold.set()
        self._retold = anyio.Event()

    def end(self) -> None:
        """Marks the tenure as over."""
        self.work.end()
        self._draining.set()
        self._ended.set()
        self._wake_paused()

    def stop_now(self) -> None:
        """Cancels everything that can be cancelled."""
        self._draining.set()
        self._wake_paused()
        self.scope.cancel()
        for body in self._bodies:
            body.cancel()

    def note_commit(self, offset: int) -> None:
        """This offset has been stored under its token."""
        self.committed = offset if self.committed is None else max(offset, self.committed)

    def begin_use(self) -> None:
        """Delays the release until :meth:`end_use`."""
        self._users += 1

    def end_use(self) -> None:
        """Ends :meth:`begin_use`."""
        self._users -= 1
        if not self._users:
            self._idle.set()
            self._idle = anyio.Event()

    @property
    def in_use(self) -> bool:
        """Whether something delays the release; any thread."""
        return self._users > 0

    async def wait_unused(self) -> None:
        """Returns when nothing delays the release."""
        while self.in_use:
            await self._idle.wait()

    async def wait_ended(self) -> None:
        """Returns when the tenure is over."""
        await self._ended.wait()

    @property
    def busy_since(self) -> int | None:
        """Since when (ms awake) something marked by :meth:`processing` has been running; any thread."""
        return self._busy.since

    def worked(self, ms: int) -> None:
        """Counts one run of a worker's handler, with its duration."""
        self._busy.add(ms)

    @property
    def effort(self) -> Effort:
        """How much has been worked so far."""
        return Effort(self._busy.finished, self._busy.total_ms)


@attrs.frozen
class _Commits:
    """The committer of a fake tenure."""

    offsets: list[int]
    is_copy = False

    def check_process(self) -> None: ...

    async def commit_tenure(self, tenure: Tenure, offset: int) -> None:
        """Appends the offset to the list."""
        last = self.offsets[-1] if self.offsets else tenure.committed
        if last is not None and offset < last:
            raise OffsetRegressed(
                f"{tenure.resource!r} has a higher committed offset than {offset}: offsets never fall"
            )
        self.offsets.append(offset)
        tenure.note_commit(offset)


class Busy:
    """Since when something has been running. Of several, the oldest that still runs counts."""

    def __init__(self, clock: Callable[[], int] = awake_ms) -> None:
        self._clock, self._lock = clock, threading.Lock()
        self._begun: OrderedDict[object, int] = OrderedDict()  # when each began, the oldest first
        self._counted_to = 0
        self.since: int | None = None
        self.finished = self.total_ms = 0
        """How many have finished, and for how long something ran in total."""

    def begin(self, piece: object) -> None:
        """Begins one."""
        with self._lock:
            now = self._clock()
            if not self._begun:
                self.since = self._counted_to = now
            self._begun[piece] = now

    def end(self, piece: object) -> None:
        """Ends one, also if its beginning, or its end before, was interrupted. Time in which several ran counts once."""
        with self._lock:
            if self._begun.pop(piece, None) is not None:
                now = self._clock()
                self.add(now - self._counted_to)
                self._counted_to = now
            self.since = next(iter(self._begun.values()), None)

    def add(self, ms: int) -> None:
        """Counts one that took this long. Not thread-safe."""
        self.finished += 1
        self.total_ms += ms
