"""Membership for programs without async: the same group, with work and callbacks in threads.

An event loop of its own runs on a thread in the background; whoever blocks a thread holds up nothing but that thread.
"""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING, Generic, Self, TypeVar

import anyio
import anyio.from_thread
import attrs

from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.errors import UsageError
from cobalance.group import Group
from cobalance.limits import check_callables
from cobalance.membership import waits_for_itself
from cobalance.tenure import Tenure
from cobalance.worker_threads import WorkerThreads

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from types import TracebackType
    from typing import Any

    from anyio.from_thread import BlockingPortal

    from cobalance.coordinator.transport import Transport
    from cobalance.settings import GroupSettings, MemberSettings

    BlockingListener = Callable[[list["BlockingTenure"]], None]
    BlockingWork = Callable[["BlockingTenure"], None]

T = TypeVar("T")


@attrs.frozen
class BlockingTenure:
    """A hold on one resource, for use in threads; see :class:`cobalance.Tenure`."""

    resource: str
    token: int
    """The fencing token: higher than that of every earlier holder. Write it next to every side effect."""
    committed: int | None
    """The committed offset at the beginning; ``None`` when there never was one."""
    _inner: Tenure = attrs.field(repr=False, eq=False)
    _portal: BlockingPortal = attrs.field(repr=False, eq=False)

    @property
    def active(self) -> bool:
        """Whether new work may begin: nobody asks for the resource, and it is not lost. Look at it often."""
        return self._inner.active

    @property
    def paused(self) -> bool:
        """Whether new work is to wait for :meth:`BlockingGroup.resume`."""
        return self._inner.paused

    @property
    def lost(self) -> bool:
        """Whether the resource had to be let go at once: stop whatever you are doing with it."""
        return self._inner.scope.cancel_called

    def wait_draining(self, timeout: float | None = None) -> bool:
        """Waits until no new work may begin; False when the time (s) is up first."""
        return _call(self._portal, _wait_draining, self._inner, timeout)

    def commit(self, offset: int) -> None:
        """Stores an offset for good; see :meth:`cobalance.Group.commit`. Refused once this tenure is over."""
        _call(self._portal, self._inner.commit, offset)

    @contextmanager
    def processing(self) -> Iterator[None]:
        """Marks a piece of work. One that runs past ``max_processing_ms`` is hung, and costs the resource."""
        with self._inner.processing():
            yield


class BlockingGroup:
    """Membership in a group, for the length of a ``with``. Callbacks and exceptions are as with :class:`cobalance.Group`,
    but plain functions, each called in a thread; ``work(tenure)`` has one to itself for each tenure.

    A thread cannot be cancelled: ``work`` returns soon after ``tenure.active`` has become false. Nobody in this process
    begins to work a resource before the last one has returned, and one that never returns delays the end of the ``with``
    by no more than the drain timeout and the session timeout.

    An exception in ``work`` or a callback ends the membership gracefully: :meth:`wait_left` returns, and the end of the ``with`` raises
    it, ``sys.exit()`` too. Until then it is in :attr:`failed`, for a program that does something else meanwhile.
    """

    def __init__(
        self,
        name: str,
        resources: Iterable[str] | None = None,
        *,
        redis_url: str = "redis://127.0.0.1:6379/0",
        settings: GroupSettings | None = None,
        member: MemberSettings | None = None,
        work: BlockingWork | None = None,
        on_assigned: BlockingListener | None = None,
        on_revoked: BlockingListener | None = None,
        on_lost: BlockingListener | None = None,
        resources_version: int | None = None,
        transport: Transport | None = None,
        log_exceptions: bool = True,
        key_prefix: str = DEFAULT_PREFIX,
    ) -> None:
        check_callables(work=work, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        self._blocking_work = work
        self._group = _ThreadedGroup(
            name,
            resources,
            redis_url=redis_url,
            settings=settings,
            member=member,
            work=None if work is None else self._run_work,
            on_assigned=self._listener(on_assigned),
            on_revoked=self._listener(on_revoked),
            on_lost=self._listener(on_lost),
            resources_version=resources_version,
            transport=transport,
            log_exceptions=log_exceptions,
            key_prefix=key_prefix,
        )
        self._portal: BlockingPortal
        self._stack = ExitStack()
        self._entered = False

    def __enter__(self) -> Self:
        if self._entered:
            raise UsageError("a BlockingGroup can be entered once: make another one")
        self._entered = True
        with ExitStack() as stack:
            self._portal = stack.enter_context(anyio.from_thread.start_blocking_portal())
            stack.enter_context(self._portal.wrap_async_context_manager(self._group))
            self._stack = stack.pop_all()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        self._group.refuse_in_own_thread()
        try:
            return self._stack.__exit__(kind, error, trace)
        except _Exit as exit_:
            raise exit_.raised from None

    @property
    def name(self) -> str:
        """Of the group."""
        return self._group.name

    @property
    def member(self) -> str:
        """This process's member id; it changes when the member has to join again."""
        return self._group.member

    @property
    def failed(self) -> BaseException | None:
        """What has ended the membership, or is ending it; see :attr:`cobalance.Group.failed`."""
        failed = self._group.failed
        return failed.raised if isinstance(failed, _Exit) else failed

    @property
    def tenures(self) -> dict[str, BlockingTenure]:
        """What is held now, by resource."""
        return {name: self._wrap(tenure) for name, tenure in self._group.tenures.items()}

    def declare(self, resources: Iterable[str], version: int) -> None:
        """Declares the resource list; see :meth:`cobalance.Group.declare`."""
        self._group.declare(resources, version)

    def wait_held(self, *resources: str, timeout: float | None = None) -> list[BlockingTenure]:
        """Returns when this member holds all of these (or, without any, at least one), and which those are.

        Raises:
            TimeoutError: not within this time (s).
            GroupFailed: the group refuses this member; the message says why.
        """
        held = _call(self._portal, _within, timeout, self._group.wait_held, *resources)
        return [self._wrap(tenure) for tenure in held]

    def wait_left(self, timeout: float | None = None) -> None:
        """Returns when the membership is over, be it by an exception.

        Raises:
            TimeoutError: it was not within this time (s).
            GroupFailed: the group refuses this member; the message says why.
        """
        _call(self._portal, _within, timeout, self._group.wait_left)

    def commit(self, resource: str, offset: int) -> None:
        """Stores an offset that outlives the tenure; see :meth:`cobalance.Group.commit`."""
        _call(self._portal, self._group.commit, resource, offset)

    def pause(self, *resources: str) -> None:
        """No new work is to begin on these before :meth:`resume`; see :meth:`cobalance.Group.pause`."""
        self._portal.call(self._group.pause, *resources)

    def resume(self, *resources: str) -> None:
        """Undoes :meth:`pause`."""
        self._portal.call(self._group.resume, *resources)

    def leave(self, *, remain: bool | None = None) -> None:
        """Drains everything, hands it over and ends the membership; see :meth:`cobalance.Group.leave`."""
        self._group.refuse_in_own_thread()

        async def leave() -> None:
            await self._group.leave(remain=remain)

        _call(self._portal, leave)

    def describe(self) -> dict[str, str]:
        """The group's state by name; see ``cobalance group describe``."""
        return _call(self._portal, self._group.describe)

    @contextmanager
    def leadership(self, resource: str | None = None) -> Iterator[BlockingTenure]:
        """Waits for a role, and has it for the length of the block, which ends soon after ``tenure.active`` has become
        false. Leaving the block gives the role to another member, if there is one.
        """
        role = _Role(self._group, resource)
        try:
            yield self._wrap(_call(self._portal, role.take))
        finally:
            self._portal.call(role.give)

    def _wrap(self, tenure: Tenure) -> BlockingTenure:
        return BlockingTenure(tenure.resource, tenure.token, tenure.committed, tenure, self._portal)

    def _listener(self, listener: BlockingListener | None) -> Callable[[list[Tenure]], Awaitable[None]] | None:
        if listener is None:
            return None

        async def call(tenures: list[Tenure]) -> None:
            await self._group.in_thread(lambda: listener([self._wrap(tenure) for tenure in tenures]))

        return call

    async def _run_work(self, tenure: Tenure) -> None:
        if self._blocking_work is not None:
            work, wrapped = self._blocking_work, self._wrap(tenure)
            await self._group.in_thread(lambda: work(wrapped))


class _Exit(Exception):
    """``sys.exit()`` in a thread of the program's. Raised as it is, it would end the event loop before anything is given back."""

    def __init__(self, raised: SystemExit | KeyboardInterrupt) -> None:
        super().__init__(type(raised).__name__)
        self.raised = raised


class _ThreadedGroup(Group):
    """Waits for threads even where a tenure was cancelled, since they cannot be; but no longer than the membership."""

    _threads: WorkerThreads

    async def _prepare(self) -> None:
        self._threads = WorkerThreads()
        self._own_threads: set[int] = set()

    async def in_thread(self, do: Callable[[], None]) -> None:
        """Calls it in a thread of its own."""

        def run() -> None:
            self._own_threads.add(threading.get_ident())
            try:
                do()
            finally:
                self._own_threads.discard(threading.get_ident())

        with self._service_scope():
            try:
                await self._threads.run(run)
            except (SystemExit, KeyboardInterrupt) as error:
                raise _Exit(error) from error

    def refuse_in_own_thread(self) -> None:
        """As leaving is refused in the tasks of an async group."""
        if threading.get_ident() in self._own_threads:
            raise waits_for_itself(self.name)

    async def take_role(self, resource: str | None) -> Tenure:
        """Waits for a role; it is not released before it is given back."""
        tenure = await self._wait_active(resource)
        tenure.begin_use()
        return tenure

    async def give_role(self, tenure: Tenure) -> None:
        """Another member may have it."""
        tenure.end_use()
        if tenure.active:
            self._resign(tenure)


class _Role:
    """A role that a thread waits for, and gives back even if an exception came over it while it waited."""

    def __init__(self, group: _ThreadedGroup, resource: str | None) -> None:
        self._group, self._resource = group, resource
        self._tenure: Tenure | None = None

    async def take(self) -> Tenure:
        """Waits for it."""
        self._tenure = await self._group.take_role(self._resource)
        return self._tenure

    async def give(self) -> None:
        """Whether it was taken or not."""
        if self._tenure is not None:
            await self._group.give_role(self._tenure)


class _Call(Generic[T]):
    """A call on the event loop, which can be stopped even before it is known that it has begun."""

    def __init__(self, function: Callable[..., Awaitable[T]], *args: Any) -> None:
        self._function, self._args = function, args
        self._scope: anyio.CancelScope | None = None

    async def run(self) -> T:
        """Calls it."""
        with anyio.CancelScope() as self._scope:
            return await self._function(*self._args)
        raise InterruptedError  # which nobody hears

    async def stop(self) -> None:
        """Cancels it, unless it has ended."""
        if self._scope is not None:
            self._scope.cancel()


def _call(portal: BlockingPortal, function: Callable[..., Awaitable[T]], *args: Any) -> T:
    """What it returns. An exception that comes over the waiting thread, as from a signal handler, ends the call too."""
    call = _Call(function, *args)
    try:
        return portal.call(call.run)
    except BaseException:
        with suppress(RuntimeError):  # There is no event loop any more.
            portal.start_task_soon(call.stop)
        raise


async def _wait_draining(tenure: Tenure, seconds: float | None) -> bool:
    with anyio.move_on_after(seconds):
        await tenure.wait_draining()
        return True
    return False


async def _within(seconds: float | None, wait: Callable[..., Awaitable[T]], *args: str) -> T:
    with anyio.fail_after(seconds):
        return await wait(*args)
