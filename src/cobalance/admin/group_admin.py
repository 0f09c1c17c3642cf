"""Administration of the groups in one Redis. Methods that ask RabbitMQ, too, import that half of the library on use."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import TYPE_CHECKING, Literal, Self, TypeVar

from cobalance.coordinator.advice import command
from cobalance.coordinator.client import Coordinator, Repaired
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.open import DEFAULT_REDIS_URL, check_redis_url, check_transport, open_transport
from cobalance.coordinator.requests import NOBODY
from cobalance.coordinator.transport import Listing, PartlyListed, Transport
from cobalance.description import GroupDescription
from cobalance.errors import CobalanceError, GroupActive, QueueMissing, UsageError
from cobalance.journal import Journal, with_gaps
from cobalance.lazy import importing
from cobalance.limits import check_integer, check_kind, check_names
from cobalance.names import validate_name
from cobalance.rabbitmq.wire.address import DEFAULT_AMQP_URL, check_amqp_url, check_management_url
from cobalance.settings import GroupSettings

if TYPE_CHECKING:
    from types import TracebackType

    from cobalance.admin.offset_plan import StreamReset, Target
    from cobalance.description import Backlog
    from cobalance.operate.backlog import Broker
    from cobalance.operate.doctor import Finding
    from cobalance.operate.group_metrics import GroupMetrics
    from cobalance.operate.tuned import Tuned, UnreadableTuned
    from cobalance.operate.watch import Watch

log = logging.getLogger("cobalance")

TRY_AGAIN_S = 0.2

T = TypeVar("T")

Resumed = Literal["resumed", "not_halted", "unknown"]

_RESUMED: dict[str, Resumed] = {"OK": "resumed", "NOT_HALTED": "not_halted", "UNKNOWN": "unknown"}


class GroupAdmin:
    """Creates, describes, repairs and deletes groups; ``cobalance group`` does the same from a shell.

    Every method blocks: in async programs call it in a thread, for instance with ``anyio.to_thread.run_sync``. Close
    it, or use it in a ``with``. In a fork of the process it goes on with a connection of its own.

    Args:
        redis_url: as for :class:`cobalance.Group`.
        amqp_url: where the groups' queues are; used by :meth:`lag`, :meth:`backlogs`, :meth:`plan_offsets`,
            :meth:`delete`, and for streams by :meth:`reset_offsets` and :meth:`resume`. None if no group has queues:
            what is left to do is unknown then, and :meth:`examine` leaves RabbitMQ out.
        management_url: RabbitMQ's management API, as for :class:`cobalance.ConsumerGroup`. It is asked for messages in
            flight if no member answers.
        key_prefix: the groups' key prefix.
        transport: used instead of ``redis_url``.

    Raises:
        ServerError: by every method, if Redis cannot be queried.
        UnknownGroup: by every method but :meth:`create`, if there is no such group.
    """

    def __init__(
        self,
        redis_url: str = DEFAULT_REDIS_URL,
        *,
        amqp_url: str | None = DEFAULT_AMQP_URL,
        management_url: str | None = None,
        key_prefix: str = DEFAULT_PREFIX,
        transport: Transport | None = None,
    ) -> None:
        check_redis_url("redis_url", redis_url)
        check_amqp_url("amqp_url", DEFAULT_AMQP_URL if amqp_url is None else amqp_url)
        check_management_url("management_url", management_url)
        check_transport("transport", transport)
        self._amqp_url, self._management_url = amqp_url, management_url
        self._prefix = validate_name("key prefix", key_prefix)
        self._is_ours = transport is None
        self._transport = transport or open_transport(redis_url)
        self._by = NOBODY

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Closes the connection, unless it was passed in."""
        if self._is_ours:
            self._transport.close()

    def on_behalf_of(self, user: str) -> GroupAdmin:
        """The same, for changes that a user asks for: the journal says so where settings are changed, resources resumed
        and offsets reset. Valid until this admin is closed.

        Args:
            user: a name without blanks, such as ``alice`` or ``deploy@ci``.
        """
        found = copy(self)
        found._by, found._is_ours = validate_name("user", user), False  # noqa: SLF001 -- it is one of this class
        return found

    # -- creating and deleting -----------------------------------------------------------------------------------------

    def create(self, group: str, settings: GroupSettings | None = None) -> None:
        """Creates a group that is known to be new, so that its first members start at once. Never use it for a group
        that Redis lost while its members work: they restore it by themselves.

        Raises:
            GroupExists: it exists already.
            GroupActive: processes listen for it, so it is not new.
        """
        check_kind("settings", settings, GroupSettings, optional=True)
        self._of(group).create(settings or GroupSettings())

    def delete(self, group: str, *, force: bool = False, on_waiting: Callable[[], object] = lambda: None) -> None:
        """Deletes a group from Redis: its settings, its committed offsets, its journal. Its queues remain. Waits for
        the sessions of crashed members. Without ``force``, what RabbitMQ remembers of the streams that the group has
        read is deleted too, if RabbitMQ can be reached; otherwise a new group of that name starts reading them as
        ``on_unknown_offset`` says.

        Args:
            force: delete it even if it has members. To them it is a loss of data: they keep working what they hold,
                rejoin at once and recreate the group from that, with the settings and offsets they know. No resource is
                worked twice, but those held by nobody lose their offsets. To get rid of the group, stop its members.
            on_waiting: called once, if sessions have to be awaited.

        Raises:
            GroupActive: the group has members, or may have.
        """
        with importing:
            from cobalance.rabbitmq.streams.reading_mark import forget

        coordinator = self._of(group)
        if force:
            coordinator.delete(force=True)
            return
        read = list[str]()

        def delete() -> None:
            nonlocal read
            read = [row.name for row in coordinator.resources() if row.committed is not None]
            read += [it.name for it in coordinator.kept_offsets()]
            coordinator.delete()

        _when_left(coordinator, delete, on_waiting)
        try:
            if read:
                forget(self._rabbitmq(), coordinator.scope, read)
        except CobalanceError as error:  # its resources may not be streams
            log.info("group %s is deleted, but RabbitMQ still knows what streams it has read: %s", group, error)

    def list(self) -> tuple[str, ...]:
        """The names of all groups, sorted.

        Raises:
            Unreachable: a node of a cluster is silent. The names of the groups on the others are in its ``names`` then.
        """
        return tuple(self._transport.list_groups(self._prefix))

    def _list_of(self, wanted: Collection[str]) -> Sequence[str]:
        """Those of these groups that there are."""
        listing = Listing.of(self.list)
        found = [it for it in listing.names if it in wanted]
        if listing.problem is not None and len(found) < len(wanted):
            raise PartlyListed(str(listing.problem), found)
        return found

    # -- reading -------------------------------------------------------------------------------------------------------

    def describe(self, group: str) -> GroupDescription:
        """A snapshot of a group: settings, members, resources, declared lists, and resources that have left it."""
        return GroupDescription.read(self._of(group))

    def snapshot(self, group: str, *, on_unknown: Callable[[str], object] = lambda _: None) -> GroupDescription:
        """The same with what is left to do, according to RabbitMQ and the members, which have half a second to tell. A
        verdict is given where none needs a history; see :meth:`watch`.

        Args:
            group: its name.
            on_unknown: called with an explanation of what could not be found out. RabbitMQ being unreachable is such a
                thing, and no error; ``servers`` of the result has it, too.
        """
        with importing:
            from cobalance.operate.group_snapshot import read_snapshot

        return read_snapshot(self._of(group), self._broker(), on_unknown=on_unknown)

    def watch(self, group: str, *, on_unknown: Callable[[str], object] = lambda _: None) -> Watch:
        """For looking at a group repeatedly: gives snapshots with verdicts, and to any number of threads at the price of
        one. Valid until this admin is closed.
        """
        with importing:
            from cobalance.operate.watch import Watch

        return Watch(self._of(group), self._broker(), on_unknown=on_unknown)

    def metrics(self, *groups: str, partitions: bool = False) -> GroupMetrics:
        """A Prometheus collector of these groups, or of all: ``registry.register(admin.metrics())``. Needs the extra
        ``metrics``. Valid until this admin is closed.

        Args:
            groups: their names; by default all that there are at each scrape.
            partitions: also show the lag of each partition, which may be many series.
        """
        with importing:
            from cobalance.operate.group_metrics import GroupMetrics
            from cobalance.operate.tally import Tally

        return GroupMetrics(
            partial(self._list_of, frozenset(groups)) if groups else self.list,
            self.watch,
            lambda group: Tally(Journal(self._transport, group, key_prefix=self._prefix)),
            partitions=partitions,
        )

    def lag(self, group: str) -> dict[str, int | None]:
        """The remaining work of each resource: a queue's unacknowledged messages, a stream's messages after the
        committed offset. ``None`` if unknown, for instance if it is not a queue.

        Raises:
            CobalanceError: RabbitMQ cannot be queried.
        """
        return {name: backlog.lag for name, backlog in self._backlogs(group).items()}

    def backlogs(
        self, description: GroupDescription, *, on_unknown: Callable[[str], object] = lambda _: None
    ) -> dict[str, Backlog]:
        """The remaining work of each resource of a description, as it is now; :meth:`snapshot` has both in one.

        Args:
            description: of the group.
            on_unknown: called with an explanation if something is unknown for some queues: no member answers for them,
                and the management API cannot be queried.

        Raises:
            CobalanceError: RabbitMQ cannot be queried.
        """
        found = self._backlogs(description.name, on_unknown)
        return {row.name: found[row.name] for row in description.resources if row.name in found}

    def _backlogs(self, group: str, on_unknown: Callable[[str], object] = lambda _: None) -> Mapping[str, Backlog]:
        reports, broker = self._of(group).ask_in_flight(), self._broker()
        if broker is None:
            return {it.name: it.backlog for it in self.describe(group).resources}  # all unknown
        return broker.read_backlogs(self.describe(group), reports, on_unknown).by_resource

    def explain(
        self, group: str, resource: str | None = None, *, on_unknown: Callable[[str], object] = lambda _: None
    ) -> Sequence[str]:
        """Why a resource, or by default the group, is as it is, in sentences: where it is, why it moved there, what it
        waits for.

        Raises:
            UsageError: there is no such resource.
        """
        with importing:
            from cobalance.operate.explanation import Explanation
            from cobalance.operate.moves import Account

        found = self.snapshot(group, on_unknown=on_unknown)
        entries = (entry for entry in self.journal(group).entries() if entry.at_ms <= found.at_ms)
        return Explanation(found, Account.read(with_gaps(entries), resource)).sentences()

    def examine(self, *groups: str) -> Sequence[Finding]:
        """Checks both servers and these groups, by default all, and says what to do; ``cobalance doctor`` shows it.
        Changes nothing. What cannot be reached is a finding, and no error.
        """
        with importing:
            from cobalance.operate.doctor import Doctor

        return Doctor(self._transport, self._broker(), self._prefix).examine(*groups)

    def journal(self, group: str) -> Journal:
        """What happened in the group, and why."""
        self._of(group).state()  # an empty journal looks the same as a missing group
        return Journal(self._transport, group, key_prefix=self._prefix)

    def tuned(self, group: str) -> Tuned | UnreadableTuned | None:
        """What ``cobalance sims tune --store`` decided for the group the last time; None if nothing is stored."""
        with importing:
            from cobalance.operate.tuned import read

        coordinator = self._of(group)
        coordinator.state()  # what is not there looks the same as a missing group
        return read(coordinator)

    # -- settings ------------------------------------------------------------------------------------------------------

    def settings(self, group: str) -> GroupSettings:
        """The settings in force."""
        return self._of(group).settings()

    def configure(self, group: str, **changes: int | str) -> GroupSettings:
        """Changes settings for all members at once, and returns those in force. Names are those of
        :class:`GroupSettings`.

        Raises:
            InvalidSettings: a value is out of range or contradicts another one.
        """
        return self._of(group).configure(**changes)

    # -- repairing -----------------------------------------------------------------------------------------------------

    def resume(self, group: str, *resources: str, every: bool = False) -> dict[str, Resumed]:
        """Resumes halted resources, once the cause of the failures is fixed. For a stream with an offset that RabbitMQ did
        not know of, this says that the offset is meant: RabbitMQ is told.

        Args:
            group: its name.
            resources: names as shown by :meth:`describe`, or ``orders:0,3`` for partitions of a topic.
            every: resume all halted resources.

        Raises:
            UsageError: neither is given, or both.
        """
        if every == bool(resources):
            raise UsageError("Name the partitions to resume, or say that it is all of them (--all).")
        coordinator = self._of(group)
        if every:
            names: Iterable[str] = [row.name for row in coordinator.resources() if row.halted]
        else:
            known = {row.name for row in coordinator.resources()}
            names = dict.fromkeys(name for text in check_names("resource", resources) for name in _spelt(text, known))
        self._remember_halted(group, names)
        answers = coordinator.resume(*names) if names else {}
        return {name: _RESUMED[answer] for name, answer in answers.items()}

    def plan_offsets(self, group: str, target: Target, streams: Sequence[str] | None = None) -> Sequence[StreamReset]:
        """Returns what resetting offsets to this target would do, without changing anything.

        Args:
            group: its name.
            target: where to go.
            streams: the streams to reset; by default all of the group's, or those that the target names.

        Raises:
            QueueMissing: there is no such stream.
            UsageError: it is a queue, which keeps no offsets; it has no committed offset to shift; or the target is invalid.
        """
        with importing:
            from cobalance.admin.offset_plan import plan

        committed = {row.name: row.committed for row in self.describe(group).resources}
        if streams is None and isinstance(target, Mapping):
            streams = tuple(target)
        if streams is None:
            streams = self._streams_of(committed)
        else:
            self._check_streams(streams)
        return plan(target, streams, committed, self._rabbitmq(), self._of(group).scope)

    def reset_offsets(
        self,
        group: str,
        offsets: Mapping[str, int] | Iterable[StreamReset],
        *,
        on_waiting: Callable[[], object] = lambda: None,
    ) -> Sequence[str]:
        """Sets committed offsets, even to lower values, and resumes what of it is halted, which it returns. Refused while
        the group has members, unless everything to be reset is halted; waits for the sessions of crashed members.
        Journalled. Streams among them count as read by the group from then on, if RabbitMQ can be reached; but one that
        was created again since a plan that was made for the stream it has read does not: its next member halts it.

        Args:
            group: its name.
            offsets: the result of :meth:`plan_offsets`; or resource → the offset of the last processed message, -1
                before the first.
            on_waiting: called once, if sessions have to be awaited.

        Raises:
            GroupActive: the group has members, or may have.
        """
        steps = () if isinstance(offsets, Mapping) else _steps_of(offsets)
        wanted = dict(offsets) if isinstance(offsets, Mapping) else {it.stream: it.committed for it in steps}
        unread = [*wanted.keys() - {it.stream for it in steps if it.is_read}]
        for offset in wanted.values():
            check_integer("the offset to commit", offset, least=-1)
        coordinator = self._of(group)
        all_halted = {row.name for row in coordinator.resources() if row.halted}.issuperset(wanted)
        self._remember_halted(group, unread)
        if all_halted:  # for whatever reason: a member may look at once, and this is not refused
            self._try_to_remember(group, unread)
        done = _when_left(coordinator, lambda: coordinator.reset_offsets(wanted), on_waiting)
        if not all_halted:  # only now: what is refused must not hide that a stream was created again
            self._try_to_remember(group, unread)
        return done

    def trust_offsets(self, group: str) -> None:
        """Declares that no committed offset was lost with Redis's data, or that lost ones were set again: a stream
        without one is then read from its start, and not as ``on_unknown_offset`` says.
        """
        self._of(group).trust_offsets()

    def repair(self, group: str) -> Repaired:
        """Rebuilds the group's indices, totals and timers from its records. The whole group waits meanwhile: some
        seconds if it is large.
        """
        return self._of(group).repair()

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _of(self, group: str) -> Coordinator:
        return Coordinator(self._transport, group, key_prefix=self._prefix, by=self._by)

    def _broker(self) -> Broker | None:
        with importing:
            from cobalance.operate.backlog import Broker

        url = self._amqp_url
        return None if url is None else Broker(amqp_url=url, management_url=self._management_url)

    def _rabbitmq(self) -> str:
        if self._amqp_url is None:
            raise UsageError("its groups have no RabbitMQ (amqp_url is None), so there are no streams")
        return self._amqp_url

    def _remember_halted(self, group: str, names: Iterable[str]) -> None:
        """Before they are resumed, since a member may look at once; nobody looks while they are halted."""
        wanted = set(names)
        rows = [row for row in self._of(group).resources() if row.name in wanted and row.halted == "OffsetUnknown"]
        streams = [row.name for row in rows if row.committed is not None]
        try:
            self._remember(group, streams)
        except CobalanceError as error:
            log.warning(
                "group %s: RabbitMQ is not told that the offsets of %s are meant, so those created again are halted again. Resume "
                "them then with --amqp-url, which is its address: %s (%s)",
                *(group, ", ".join(streams), command("group resume", group, *streams, key_prefix=self._prefix), error),
            )

    def _try_to_remember(self, group: str, names: Iterable[str]) -> None:
        try:
            self._remember(group, self._streams_of(names))
        except CobalanceError as error:  # they may not be streams
            log.info("group %s: RabbitMQ is not told of its new offsets: %s", group, error)

    def _remember(self, group: str, streams: Sequence[str]) -> None:
        with importing:
            from cobalance.rabbitmq.streams.reading_mark import remember

        refused = remember(self._rabbitmq(), self._of(group).scope, streams) if streams else ()
        if refused:
            log.warning(
                "group %s: this user of RabbitMQ may not declare exchanges named cobalance.read.*, which tell what groups have read: if its "
                "members may, %s is halted, and has to be resumed by a user who may, too",
                *(group, ", ".join(refused)),
            )

    def _streams_of(self, names: Iterable[str]) -> Sequence[str]:
        kinds = self._streams_among(names)
        return [name for name in names if kinds.get(name)]

    def _check_streams(self, names: Sequence[str]) -> None:
        kinds = self._streams_among(names)
        for name in names:
            if name not in kinds:
                raise QueueMissing(f"There is no stream {name!r}: create its topic first, or correct the name.")
            if not kinds[name]:
                raise UsageError(f"{name!r} is a queue, which keeps no offsets: what was acknowledged is gone from it.")

    def _streams_among(self, names: Iterable[str]) -> Mapping[str, bool]:
        with importing:
            from cobalance.rabbitmq.streams.extent import streams_among

        return streams_among(self._rabbitmq(), names)


def _steps_of(steps: object) -> Sequence[StreamReset]:
    with importing:
        from cobalance.admin.offset_plan import StreamReset

    given = tuple(steps) if isinstance(steps, Iterable) else (steps,)
    found = [it for it in given if isinstance(it, StreamReset)]
    if len(found) < len(given):
        raise UsageError(
            "the offsets are neither a dictionary nor steps: give what plan_offsets() returns, or resource → offset"
        )
    return found


def _spelt(text: str, known: Iterable[str]) -> Iterator[str]:
    """Expands ``orders:0,3`` to two partitions, unless a resource has that name."""
    found = None if text in known else re.fullmatch(r"(.+):(\d+(?:,\d+)*)", text)
    if found is None:
        yield text
    else:
        yield from (f"{found[1]}-{number}" for number in found[2].split(","))


def _when_left(coordinator: Coordinator, act: Callable[[], T], on_waiting: Callable[[], object]) -> T:
    """Repeats the call until the sessions of crashed members are over. They end only while the group is queried."""
    settings = coordinator.settings()
    give_up_at = time.monotonic() + (2 * settings.session_timeout_ms + settings.heartbeat_interval_ms) / 1000
    is_waiting = False
    while True:
        try:
            return act()
        except GroupActive:
            if GroupDescription.read(coordinator).state != "Empty" or time.monotonic() > give_up_at:
                raise
        if not is_waiting:
            on_waiting()
        is_waiting = True
        time.sleep(TRY_AGAIN_S)
