"""Membership in a group of processes that share resources: the public class, for asyncio and trio."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Self, TypedDict

import anyio
import attrs

from cobalance.coordinator.advice import command
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.open import DEFAULT_REDIS_URL, check_redis_url, check_transport
from cobalance.coordinator.requests import GROUPS_OWN, LOOKED_FOR
from cobalance.description import GroupDescription
from cobalance.errors import (
    NotHeld,
    UsageError,
)
from cobalance.faces import hides
from cobalance.group.connector import Connector
from cobalance.group.health import Health, health_of
from cobalance.group.membership import Hooks, Membership
from cobalance.group.patience import CANNOT_SERVE, Patience
from cobalance.group.stay import ONCE, Stay, ended_early, not_entered
from cobalance.group.worker import AsyncWork, FunctionWorker
from cobalance.limits import (
    check_callables,
    check_integer,
    check_kind,
    check_names,
    check_number,
    check_resources,
)
from cobalance.member.declaration import digest
from cobalance.member.events import ResourcesDeclared
from cobalance.names import validate_name
from cobalance.settings import GroupSettings, MemberSettings, differences
from cobalance.threads import log_lines
from cobalance.threads.forks import end_fork
from cobalance.threads.worker_threads import in_thread

log = logging.getLogger("cobalance")

DAY_S = 86_400

INSTANCE_ID = "COBALANCE_INSTANCE_ID"
"""Environment variable with an instance id that survives restarts, such as the name of a StatefulSet's pod."""

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Iterable
    from types import TracebackType

    from cobalance.coordinator.transport import Transport
    from cobalance.group.callbacks import Listener
    from cobalance.group.membership import Work
    from cobalance.group.tenure import Tenure


class PlainOptions(TypedDict, total=False):
    """Options of every kind of member; see :class:`Group`."""

    redis_url: str
    settings: GroupSettings | None
    member: MemberSettings | None
    resources_version: int | None
    transport: Transport | None
    log_exceptions: bool
    key_prefix: str
    connect_timeout_s: float


class GroupOptions(PlainOptions, total=False):
    on_assigned: Listener | None
    on_revoked: Listener | None
    on_lost: Listener | None


@hides("membership")
class Group:
    """Membership in a group, for the duration of an ``async with`` block, or from :meth:`start` to :meth:`stop`.

    Every resource is worked by exactly one member. Pass ``work`` (a function that runs for each tenure), or callbacks,
    or both. If a tenure is asked back and then kept after all, ``work`` is called again with the same tenure, to go on
    from ``tenure.committed``; but not if it had returned before it was asked.

    - ``on_assigned(tenures)``: these were *added*; no work on them begins before it returns. It counts as work on each
      of them, so ``max_processing_ms`` limits it.
    - ``on_revoked(tenures)``: work on these has stopped and they are about to be released; it may still commit. It has
      until the deadline of the revocation, or, where nobody asked for them, ``max_processing_ms``.
    - ``on_lost(tenures)``: these are gone already; commits are refused.

    An exception in ``work`` or a callback ends the ``async with``: the member leaves gracefully, one line is logged at
    ERROR, and the exception propagates; it is also in ``failed``. A group can be entered once.

    Args:
        name: the group's name.
        resources: what this member can work; it is assigned nothing else. Members may name different resources at the
            same time, for instance during a rolling update: every resource that a present member names is worked by one
            that names it. ``None`` if another member declares the list.
        redis_url: ``redis://``, ``rediss://``, ``unix://``, ``redis+sentinel://``, ``redis+cluster://``, or
            ``memory://NAME`` within one process.
        settings: stored by the first member of a new group. Later members adopt the stored settings, with a warning if
            these differ. ``group.settings`` has those in force.
        member: this process's own settings. If they have no instance id, the environment variable
            ``COBALANCE_INSTANCE_ID`` is used.
        resources_version: for generated lists: all members with a version use the list with the highest one, whatever
            they named themselves. Raise it with every change of the list; :meth:`declare` changes it later.
        transport: used instead of ``redis_url``.
        log_exceptions: whether to log message and traceback of the program's exceptions, or only their type.
        key_prefix: prefix of the group's keys and channels in Redis. Groups with different prefixes are unrelated even
            if they share a name; use this for several environments on one Redis.
        connect_timeout_s: how long entering waits for servers that cannot be reached yet, for instance when everything
            starts at once, or for a Redis that is full. By default it does not wait.

    Raises:
        CobalanceError: on entering, if a server cannot be used; the message says what to do.
    """

    def __init__(
        self,
        name: str,
        resources: Iterable[str] | None = None,
        *,
        redis_url: str = DEFAULT_REDIS_URL,
        settings: GroupSettings | None = None,
        member: MemberSettings | None = None,
        work: Work | None = None,
        on_assigned: Listener | None = None,
        on_revoked: Listener | None = None,
        on_lost: Listener | None = None,
        resources_version: int | None = None,
        transport: Transport | None = None,
        log_exceptions: bool = True,
        key_prefix: str = DEFAULT_PREFIX,
        connect_timeout_s: float = 0,
    ) -> None:
        check_callables(work=work, on_assigned=on_assigned, on_revoked=on_revoked, on_lost=on_lost)
        check_redis_url("redis_url", redis_url)
        check_transport("transport", transport)
        check_kind("settings", settings, GroupSettings, optional=True)
        check_kind("member", member, MemberSettings, optional=True)
        check_kind("log_exceptions", log_exceptions, bool)
        check_number("connect_timeout_s", connect_timeout_s, least=0, most=DAY_S)
        self._connect_timeout_s = connect_timeout_s
        self.name = validate_name("group", name)
        self._key_prefix = validate_name("key prefix", key_prefix)
        self.settings = settings or GroupSettings()
        """Before entering, the settings given by the code; afterwards those in force."""
        self._wanted, self._known, self._warned_of = settings, False, dict[str, tuple[int | str, int | str]]()
        own = _with_instance_id(member or MemberSettings())
        if own.instance_id is not None:
            validate_name("instance id", own.instance_id)
        self._resources = None if resources is None else check_names("resource", resources)
        check_resources(self._resources or ())
        if resources_version is not None:
            check_integer("resources_version", resources_version, least=1)
        self._subscription = _subscription(self._resources, resources_version)
        self._version = resources_version
        self._connector = Connector(
            self.name,
            key_prefix,
            redis_url=redis_url,
            transport=transport,
            instance_id=own.instance_id,
            settings_read=self._settings_read,
        )
        self._stay: Stay | None = None
        checked = None if work is None else AsyncWork(work)
        self.membership = Membership(
            self.name,
            own,
            Hooks(
                make_worker=lambda tenure: FunctionWorker(tenure, checked),
                settings_read=self._settings_read,
                joined=[self._connector.joined],
            ),
            on_assigned=on_assigned,
            on_revoked=on_revoked,
            on_lost=on_lost,
            log_exceptions=log_exceptions,
        )

    # -- the user's side ---------------------------------------------------------------------------------------------

    async def __aenter__(self) -> Self:
        if self.membership.is_entered:
            raise UsageError(ONCE)
        self.membership.enter()
        try:
            await self._enter()
        except BaseException as error:
            self.membership.tasks.note_refusal(error)
            raise
        return self

    async def _enter(self) -> None:
        self._patience = Patience(self.name, self._connect_timeout_s)
        connector = self._connector
        coordinator = await self._patience.call(
            lambda: in_thread(lambda: connector.connect(self.settings), connector.disconnect)
        )
        self.membership.open(coordinator, self.settings, connector.former, partial(connector.time_calls, coordinator))
        try:
            await self._prepare()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await in_thread(self.membership.engine.discard)
                await self._release_servers()
                await in_thread(self._close)
                self.membership.end()
            raise
        await self.membership.tasks.open()
        try:
            await self._enter_group()
        except BaseException:
            await self.__aexit__(*sys.exc_info())
            raise

    async def _enter_group(self) -> None:
        member = self.membership
        member.join(self._subscription, self._resources, self._version)
        while not member.settled.is_set():
            with anyio.move_on_after(self.settings.session_timeout_ms / 1000):
                await member.settled.wait()
                break
            self._check_redis()
        if member.failure is not None:  # it is raised in the task group, which cancels this task
            await anyio.sleep_forever()
        if member.over.is_set():
            raise ended_early(self.name)

    def _check_redis(self) -> None:
        """Joining took long. If that is because Redis cannot be reached, or is full, it is not waited for any longer than
        when connecting.
        """
        failing = self.membership.engine.failing
        if failing is not None and (self._patience.over or not isinstance(failing, CANNOT_SERVE)):
            raise failing

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self.membership.is_copy:
            end_fork(error)
            return None
        self.membership.tasks.own_code.refuse_leaving()
        try:
            with anyio.CancelScope(shield=True):
                await self._wind_up()
        except BaseException as interruption:  # noqa: BLE001 -- an event loop may cancel even this; raised at the end
            kind, error, trace = type(interruption), interruption, interruption.__traceback__
        swallowed, raised = await self.membership.tasks.join(kind, error, trace)
        with anyio.CancelScope(shield=True):
            await in_thread(self._close)
        if raised is not None:
            raise raised
        return swallowed

    async def _wind_up(self) -> None:
        try:
            await self.leave(remain=self.membership.remain)
        except BaseException:  # cancelled by asyncio itself: what ends from here on must not be released as finished
            if not self.membership.over.is_set():
                log.warning(
                    "group %s: its leave was cancelled, by a second cancellation or the end of its event loop: it stays a member, and may "
                    "keep what it held, until its session has expired (session_timeout_ms)",
                    self.name,
                )
            self.membership.abandon()
            raise
        finally:
            self.membership.tasks.end_services()
            await self._release_servers()

    @property
    def member(self) -> str:
        """This process's member id. It changes when the member has to rejoin."""
        self._require_entered()
        return self.membership.engine.session.member

    def declare(self, resources: Iterable[str], version: int) -> None:
        """Declares a new list, for members with a ``resources_version`` or without ``resources``. A version lower than
        the group's is ignored; an equal one must name the same list.

        Raises:
            UsageError: this member was given a list without a version, which cannot be changed.
        """
        self.membership.check_process()
        if self._subscription != GROUPS_OWN:
            raise UsageError(
                "this member's resources are what it was made with: give resources_version to change them later"
            )
        names = check_names("resource", resources)
        check_resources(names)
        check_integer("the resource list's version", version, least=1)
        self._require_entered()
        self.membership.engine.post(ResourcesDeclared(version, names))

    async def wait_joined(self) -> None:
        """Returns when the coordinator has accepted this member.

        Raises:
            GroupFailed: it was refused; the message says why.
            MembershipError: it was left before that.
        """
        self._require_own()
        await self.membership.accepted.wait()
        self.membership.raise_failure()
        if not self.membership.was_member:
            raise ended_early(self.name)

    @property
    def given_up(self) -> tuple[str, ...]:
        """Resources that were still being worked when a leave ran out of time: after the drain timeout or, if that
        passed first, the group's revocation timeout. Empty after a clean leave.
        """
        return tuple(self.membership.given_up)

    @property
    def revoked_unfinished(self) -> tuple[str, ...]:
        """The part of ``given_up`` whose revocation timeout passed first."""
        return tuple(self.membership.revoked)

    @property
    def failed(self) -> BaseException | None:
        """The exception that ended, or is ending, the membership, or kept it from being entered: the program's own, a
        :class:`GroupFailed`, or what has failed in the group's own code. None while all is well, and after a normal
        leave. Any thread.
        """
        return self.membership.tasks.failed

    @property
    def health(self) -> Health:
        """Whether this member is alive and ready, and why not. Any thread, at any time."""
        return health_of(self.membership, self.settings.session_timeout_ms)

    async def wait_left(self) -> None:
        """Returns when the membership is over.

        Raises:
            GroupFailed: the group refuses this member; the message says why.
        """
        self._require_own()
        await self.membership.over.wait()
        self.membership.raise_failure()

    async def wait_held(self, *resources: str) -> list[Tenure]:
        """Waits until this member holds all of these resources (without any: at least one), and returns their tenures.

        Raises:
            NotHeld: the membership is over, so it will never hold them.
            GroupFailed: the group refuses this member; the message says why.
            UsageError: this member's list is fixed and lacks one of them.
        """
        self._refuse_unnamed(resources)
        self._require_own()
        while True:
            self.membership.raise_failure()
            if self.membership.over.is_set():
                raise NotHeld(f"this membership of group {self.name} is over: it holds nothing any more")
            held = self.tenures
            if resources and all(name in held for name in resources):
                return [held[name] for name in resources]
            if held and not resources:
                return list(held.values())
            await self.membership.changed.wait()

    def _require_own(self) -> None:
        self.membership.check_process()
        self._require_entered()

    def _require_entered(self) -> None:
        if not self.membership.is_open:
            raise UsageError(not_entered(self.name))

    def _refuse_unnamed(self, resources: Iterable[str]) -> None:
        """A list may grow if others declare it, if a version orders it, or if it is looked for."""
        if self._resources is None or self._subscription.startswith((GROUPS_OWN, LOOKED_FOR)):
            return
        unnamed = sorted(set(resources).difference(self._resources))
        if unnamed:
            raise UsageError(
                f"this member of group {self.name} was not given {', '.join(map(repr, unnamed))}, so it will never hold that: it was given "
                f"{', '.join(map(repr, sorted(self._resources)[:5]))}{', …' if len(self._resources) > 5 else ''}"
            )

    @property
    def tenures(self) -> dict[str, Tenure]:
        """The tenures held now, by resource."""
        return self.membership.roster.tenures

    def pause(self, *resources: str) -> None:
        """Lets no new work begin on these resources until :meth:`resume`; running work is finished. They stay held,
        also through rebalances that leave them here. A resource that is handed over or lost is not paused when it
        comes back.

        A consumer group pauses by itself; a ``work`` function has to check ``tenure.paused``.

        Raises:
            NotHeld: this member does not hold one of them; nothing was changed.
            UsageError: nothing is named.
        """
        if not resources:
            raise UsageError("name what to pause, such as pause(*group.tenures) for all that is held")
        for tenure in self._held(resources):
            tenure.pause(on=True)

    def resume(self, *resources: str) -> None:
        """Undoes :meth:`pause`, without names for all that is held.

        Raises:
            NotHeld: this member does not hold one of them; nothing was changed.
        """
        for tenure in self._held(resources):
            tenure.pause(on=False)

    @property
    def paused(self) -> frozenset[str]:
        """The resources that are held and paused."""
        return frozenset(name for name, tenure in self.tenures.items() if tenure.paused)

    def _held(self, resources: tuple[str, ...]) -> list[Tenure]:
        self.membership.check_process()
        held = self.tenures
        missing = [name for name in resources if name not in held]
        if missing:
            raise NotHeld(f"this member does not hold {', '.join(map(repr, missing))}: pause only what you hold")
        return [held[name] for name in resources or held]

    async def commit(self, resource: str, offset: int) -> None:
        """Stores an offset that outlives the tenure.

        Raises:
            NotHeld: this member does not hold the resource; nothing was stored.
            Fenced: this member has lost the resource meanwhile; nothing was stored.
            OffsetRegressed: a higher offset is stored; nothing was changed.
            CommitOutcomeUnknown: the session ended before the commit was answered.
            UsageError: the offset is not between 0 and 2**53.
        """
        held = self.membership.roster.current(resource)
        if held is None or held.tenure is None:
            raise NotHeld(f"this member does not hold {resource!r}: commit only what you hold")
        await held.tenure.commit(offset)

    @asynccontextmanager
    async def leadership(self, resource: str | None = None) -> AsyncIterator[Tenure]:
        """Waits for a role, and holds it for the duration of the block, which is cancelled when the role is asked back
        or lost. Leaving the block passes the role to another member, if there is one. A block that takes its time to end
        is waited for, as ``work`` is, before the role is passed on. Of several blocks for a role, in one process or in
        many, one leads at a time, so a block inside of another one for the same role waits for ever.

        Every member is a candidate, also while no block of its own waits: a role that is passed to such a member stays
        there, and blocks of others wait, until it begins a block or leaves the group. So begin the next block at once,
        or leave the group.

        Args:
            resource: the role; may be omitted if the group has a single resource.
        """
        tenure = await self.membership.wait_role(lambda: self.wait_held(*([resource] if resource else [])))
        try:
            with tenure.using():
                yield tenure
        finally:
            self.membership.resign(tenure)

    async def leave(self, *, remain: bool | None = None) -> None:
        """Drains everything, hands it over and ends the membership. Leaving the ``async with`` calls it too.

        Args:
            remain: with an instance id, keep what is held for the rejoin grace period (the default); ``False`` gives it
                up at once, for scaling in, also while a leave that was to keep it is under way.

        Raises:
            UsageError: awaited by work or a callback, for which it would wait.
        """
        self.membership.check_process()
        if self._stay is not None and not self.membership.is_open:  # start() is still connecting
            await self.stop()
            return
        self._require_entered()
        self.membership.tasks.own_code.refuse_leaving()
        self.membership.ask_leave(remain=remain)
        await self.membership.over.wait()

    async def start(self) -> None:
        """Enters the group, for programs that leave it in another task or function with :meth:`stop`, such as fixtures
        and lifespans. What ends the membership before that is logged, stored in ``failed``, and raised by :meth:`stop`;
        it cancels no task of the program.

        Raises:
            UsageError: it was entered before.
            MembershipError: :meth:`stop` or :meth:`leave` was called meanwhile.
            CobalanceError: a server cannot be used; the message says what to do.
        """
        if self.membership.is_entered or self._stay is not None:
            raise UsageError(ONCE)
        self._stay = Stay(self.name, self)
        await self._stay.begin()

    async def stop(self) -> None:
        """Drains everything, hands it over, and ends what :meth:`start` began, or is beginning. May be called in any
        task but the group's own. Does nothing if there is nothing to end.

        Raises:
            UsageError: the group was entered by ``async with``; :meth:`start` was awaited in another event loop; or
                work or a callback calls this, for which it would wait.
            Exception: the membership was ended by this exception of the program's own code, or by a
                :class:`GroupFailed`.
        """
        self.membership.check_process()
        if self._stay is not None:
            self.membership.tasks.own_code.refuse_leaving()
            await self._stay.end()
        elif self.membership.is_entered:
            raise UsageError("stop() ends what start() has begun: leave the `async with`, or call leave()")

    async def describe(self) -> GroupDescription:
        """A snapshot of the group: settings, members, resources."""
        self._require_own()
        if self.membership.over.is_set():
            raise UsageError(f"this member has left group {self.name}: `GroupAdmin.describe` needs no member")
        return await in_thread(lambda: GroupDescription.read(self.membership.coordinator))

    def _settings_read(self, settings: GroupSettings) -> None:
        """Called by the engine: the settings in force."""
        changed = differences(self.settings, settings) if self._known else {}
        other = differences(self._wanted, settings) if self._wanted is not None else {}
        is_news = other.items() - self._warned_of.items()
        self.settings, self._known, self._warned_of = settings, True, other
        if is_news:
            log.warning("group %s: %s", self.name, _otherwise(self.name, self._key_prefix, other))
        elif changed:
            in_words = ", ".join(f"{name} is {now} now, and was {was}" for name, (was, now) in changed.items())
            log.info("group %s: its settings were changed: %s", self.name, in_words)

    async def _prepare(self) -> None:
        """Hook for groups that need more than Redis; runs before joining."""

    async def _release_servers(self) -> None:
        """Undoes :meth:`_prepare`, even if it was incomplete, when nothing is held any more."""

    def _close(self) -> None:
        has_left = self.membership.engine.wait_left(5)
        self._connector.disconnect(self.membership.coordinator, has_left=has_left)
        log_lines.flush()


def _otherwise(group: str, key_prefix: str, other: dict[str, tuple[int | str, int | str]]) -> str:
    in_words = ", ".join(
        f"{name} is {there} in the group and {here} in this program" for name, (here, there) in other.items()
    )
    wanted = {name: here for name, (here, _) in other.items()}
    configure = command("group configure", group, key_prefix=key_prefix, **wanted)
    return (
        f"{in_words}. What counts is what the group has. To change that, for all members at once: {configure}; "
        "or let the program say the same, or nothing"
    )


def _subscription(resources: Collection[str] | None, version: int | None) -> str:
    """A digest of the list, so equal lists share a subscription, unless a version orders the group's lists."""
    return GROUPS_OWN if resources is None or version is not None else digest(tuple(sorted(set(resources))))


def _with_instance_id(own: MemberSettings) -> MemberSettings:
    found = own.instance_id or os.environ.get(INSTANCE_ID) or None
    return own if found == own.instance_id else attrs.evolve(own, instance_id=found)
