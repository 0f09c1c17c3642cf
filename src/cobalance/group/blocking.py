"""The base of memberships without async: tenures and calls for threads, and the group on a background event loop."""

from __future__ import annotations

import threading
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any, Self, TypeVar

import anyio
import attrs

from cobalance.errors import UsageError
from cobalance.group.group import Group
from cobalance.group.own_code import ContainedExit, as_raised, exits_contained
from cobalance.group.stay import ONCE, not_entered
from cobalance.group.tenure import Tenure
from cobalance.threads.portal import EventLoopThread, Visit, now, within

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from types import TracebackType

    from cobalance.description import GroupDescription
    from cobalance.group.health import Health
    from cobalance.settings import GroupSettings

    BlockingListener = Callable[[list["BlockingTenure"]], None]

T = TypeVar("T")


@attrs.frozen
class BlockingTenure:
    """A hold on one resource, for use in threads; see :class:`cobalance.Tenure`."""

    resource: str
    token: int
    """The fencing token, higher than every earlier holder's. Store it with every side effect."""
    _inner: Tenure = attrs.field(repr=False, eq=False)
    _group: Group = attrs.field(repr=False, eq=False)
    _event_loop: EventLoopThread = attrs.field(repr=False, eq=False)

    @property
    def committed(self) -> int | None:
        """The committed offset, which follows the commits of this tenure; ``None`` if there never was one."""
        return self._inner.committed

    @property
    def active(self) -> bool:
        """Whether new work may begin: the resource is neither asked back nor lost. Check it often."""
        return self._inner.active

    @property
    def paused(self) -> bool:
        """Whether new work has to wait for :meth:`BlockingGroup.resume`."""
        return self._inner.paused

    @property
    def lost(self) -> bool:
        """Whether the resource had to be let go at once: stop whatever you are doing with it."""
        return self._inner.lost

    def wait_draining(self, timeout: float | None = None) -> bool:
        """Waits until no new work may begin. Returns False on timeout (seconds)."""
        self._group.membership.check_process()
        return self._event_loop.call(_wait_draining, self._inner, timeout)

    def commit(self, offset: int) -> None:
        """Stores an offset durably; see :meth:`cobalance.Group.commit`. Refused after the end of this tenure."""
        self._group.membership.check_process()
        self._event_loop.call(self._inner.commit, offset)

    @contextmanager
    def processing(self) -> Iterator[None]:
        """Marks a piece of work. Work that runs longer than ``max_processing_ms`` is considered hung, and loses the
        resource.
        """
        with self._inner.processing():
            yield


class BlockingMembership:
    """Base of memberships for threads: runs the group on a background event loop.

    Threads cannot be cancelled, so it waits for them even if their tenure was cancelled, but no longer than the
    membership lasts.
    """

    def __init__(self, group: Group) -> None:
        self._group = group
        group.membership.tasks.contain = exits_contained
        self._event_loop = EventLoopThread()
        self._opening = threading.RLock()  # a signal handler may call stop() in the thread that starts
        self._stay: Visit
        self._entered = self._starting = self._started = self._unwanted = False

    def start(self) -> None:
        """Enters the group, from any thread. For programs that leave it elsewhere, with :meth:`stop`; one that exits
        without calling it counts as crashed.

        Raises:
            UsageError: it was entered before.
            MembershipError: :meth:`stop` or :meth:`leave` was called meanwhile.
            CobalanceError: a server cannot be used; the message says what to do.
        """
        with exits_as_raised(), ExitStack() as stack:
            with self._opening:
                self._starting = True
                self._open(stack)
                entering = self._event_loop.begin(self._group.start)
                self._started = True
            if self._unwanted:
                self._event_loop.begin(self._group.stop)
            entering.result()
            stack.pop_all()

    def stop(self) -> None:
        """Drains everything, hands it over, and ends what :meth:`start` began, or is beginning. Any thread; of several,
        each waits for the end, but not a signal handler that interrupts :meth:`start` early: that ends then. Does
        nothing if there is nothing to end.

        Raises:
            UsageError: called by work or a callback, for which it would wait; or in a fork of the process that called
                :meth:`start`.
            Exception: the membership was ended by this exception of the program's own code, or by a
                :class:`GroupFailed`.
        """
        if self._started:
            self._group.membership.check_process()
        self._group.membership.tasks.own_code.refuse_leaving_in_thread()
        with self._opening:
            started = self._started
            self._unwanted = self._starting and not started  # in a signal handler, or no thread comes in here meanwhile
        if started:
            with exits_as_raised(), self._event_loop.ending(cancel=False):
                self._event_loop.call(self._group.stop)

    def __enter__(self) -> Self:
        with exits_as_raised(), ExitStack() as stack:
            with self._opening:
                self._open(stack)
            self._stay = Visit(self._event_loop, self._group)
            self._stay.__enter__()
            stack.pop_all()
        return self

    def _open(self, stack: ExitStack) -> None:
        if self._entered:
            raise UsageError(ONCE)
        stack.push(self._event_loop)  # first: a signal handler may raise as soon as it has begun
        self._event_loop.__enter__()
        self._entered = True

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        try:
            if self._group.membership.is_copy:
                return None
            self._group.membership.tasks.own_code.refuse_leaving_in_thread()
            with exits_as_raised(), self._event_loop.ending(cancel=kind is not None):
                return self._stay.__exit__(kind, error, trace)
        except UsageError:
            raise
        except BaseException:  # a signal handler's, perhaps before the event loop heard of it
            self._stay.ask_to_end()
            self._event_loop.ask_to_end()
            raise

    def _call(self, function: Callable[..., Awaitable[T]], *args: Any) -> T:
        """Calls it in the group's event loop."""
        self._group.membership.check_process()
        if not self._entered:
            raise UsageError(not_entered(self.name))
        return self._event_loop.call(function, *args)

    @property
    def name(self) -> str:
        """The group's name."""
        return self._group.name

    @property
    def settings(self) -> GroupSettings:
        """The group's settings in force, once it is entered; see :class:`cobalance.Group`."""
        return self._group.settings

    @property
    def member(self) -> str:
        """This process's member id. It changes when the member has to rejoin."""
        return self._group.member

    @property
    def failed(self) -> BaseException | None:
        """The exception that ended, or is ending, the membership; see :attr:`cobalance.Group.failed`."""
        failed = self._group.failed
        return None if failed is None else as_raised(failed)

    @property
    def health(self) -> Health:
        """Whether this member is alive and ready, and why not; see :attr:`cobalance.Group.health`."""
        return self._group.health

    @property
    def tenures(self) -> dict[str, BlockingTenure]:
        """The tenures held now, by resource."""
        return {name: self._wrap(tenure) for name, tenure in self._group.tenures.items()}

    def wait_held(self, *resources: str, timeout: float | None = None) -> list[BlockingTenure]:
        """Waits until this member holds all of these resources (without any: at least one), and returns their tenures.

        Raises:
            TimeoutError: it does not hold them in time (seconds).
            GroupFailed: the group refuses this member; the message says why.
        """
        held = self._call(within, timeout, self._group.wait_held, *resources)
        return [self._wrap(tenure) for tenure in held]

    def wait_left(self, timeout: float | None = None) -> None:
        """Returns when the membership is over, even if an exception ended it.

        A signal handler may end the wait by raising, within half a second. An ``Event`` that it sets is no substitute: a
        signal that arrives just before ``Event.wait`` waits does not interrupt it.

        Raises:
            TimeoutError: it is not over in time (seconds).
            GroupFailed: the group refuses this member; the message says why.
        """
        self._call(within, timeout, self._group.wait_left)

    def commit(self, resource: str, offset: int) -> None:
        """Stores an offset that outlives the tenure; see :meth:`cobalance.Group.commit`."""
        self._call(self._group.commit, resource, offset)

    def pause(self, *resources: str) -> None:
        """Lets no new work begin on these resources until :meth:`resume`; see :meth:`cobalance.Group.pause`."""
        self._call(now, self._group.pause, *resources)

    def resume(self, *resources: str) -> None:
        """Undoes :meth:`pause`."""
        self._call(now, self._group.resume, *resources)

    def leave(self, *, remain: bool | None = None) -> None:
        """Drains everything, hands it over and ends the membership; see :meth:`cobalance.Group.leave`."""
        self._group.membership.check_process()
        self._group.membership.tasks.own_code.refuse_leaving_in_thread()

        self._call(partial(self._group.leave, remain=remain))

    def describe(self) -> GroupDescription:
        """A snapshot of the group: settings, members, resources."""
        return self._call(self._group.describe)

    @contextmanager
    def leadership(self, resource: str | None = None) -> Iterator[BlockingTenure]:
        """Waits for a role, and holds it for the duration of the block, which should end soon after ``tenure.active``
        becomes false. Leaving the block passes the role to another member, if there is one. Of several blocks for a
        role, one leads at a time; see :meth:`cobalance.Group.leadership`.
        """
        role = _Role(self._group, resource)
        try:
            yield self._wrap(self._call(role.take))
        finally:
            try:
                if not self._group.membership.is_copy:
                    self._call(role.give)
            except BaseException:  # a signal handler's, perhaps before the event loop heard of it
                self._event_loop.begin(role.give)
                raise

    def _wrap(self, tenure: Tenure) -> BlockingTenure:
        return BlockingTenure(tenure.resource, tenure.token, tenure, self._group, self._event_loop)

    def _listener(self, listener: BlockingListener | None) -> Callable[[list[Tenure]], None] | None:
        if listener is None:
            return None

        def call(tenures: list[Tenure]) -> None:
            listener([self._wrap(tenure) for tenure in tenures])

        return call


@contextmanager
def exits_as_raised() -> Iterator[None]:
    """Undoes :func:`exits_contained`, in the thread that the program enters or leaves the group in."""
    try:
        yield
    except ContainedExit as exit_:
        raise exit_.raised from None


class _Role:
    """A role that a thread waits for, and returns even if an exception interrupted the wait."""

    def __init__(self, group: Group, resource: str | None) -> None:
        self._group, self._resource = group, resource
        self._tenure: Tenure | None = None
        self._is_over = False

    async def take(self) -> Tenure:
        names = [self._resource] if self._resource else []
        tenure = await self._group.membership.wait_role(lambda: self._group.wait_held(*names))
        if not self._is_over:  # a wait that ended in the turn of the loop in which it was cancelled goes on
            self._tenure = tenure
            tenure.begin_use()
        return tenure

    async def give(self) -> None:
        """Returns it, or lets nobody take it any more. Does nothing the second time."""
        tenure, self._tenure, self._is_over = self._tenure, None, True
        if tenure is not None:
            tenure.end_use()
            self._group.membership.resign(tenure)


async def _wait_draining(tenure: Tenure, seconds: float | None) -> bool:
    with anyio.move_on_after(seconds):
        await tenure.wait_draining()
        return True
    return False
