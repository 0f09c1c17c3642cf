"""Looks after the groups of one Redis."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Literal, Self

from cobalance.admin.backlog import Backlog, read_backlogs
from cobalance.admin.offset_plan import Step, Target, plan
from cobalance.coordinator.client import Coordinator, Repaired
from cobalance.coordinator.keys import DEFAULT_PREFIX
from cobalance.coordinator.open import check_redis_url, check_transport, open_transport
from cobalance.coordinator.transport import Transport
from cobalance.description import GroupDescription
from cobalance.errors import CobalanceError, GroupActive, QueueMissing, UsageError
from cobalance.journal import Journal
from cobalance.limits import check_kind, check_names
from cobalance.names import validate_name
from cobalance.rabbitmq.streams.extent import streams_among
from cobalance.rabbitmq.streams.reading_mark import forget
from cobalance.rabbitmq.topics.options import check_options
from cobalance.settings import GroupSettings

if TYPE_CHECKING:
    from types import TracebackType

log = logging.getLogger("cobalance")

TRY_AGAIN_S = 0.2

Resumed = Literal["resumed", "not_halted", "unknown"]

_RESUMED: dict[str, Resumed] = {"OK": "resumed", "NOT_HALTED": "not_halted", "UNKNOWN": "unknown"}


class GroupAdmin:
    """Creates, describes, repairs and deletes groups; ``cobalance group`` does the same from a shell.

    Every method waits for its servers: in async programs call it in a thread, as with ``anyio.to_thread.run_sync``. Close it, or use it
    in a ``with``.

    Args:
        redis_url: as for :class:`cobalance.Group`.
        amqp_url: where the groups' queues are; only :meth:`lag`, :meth:`backlogs`, :meth:`plan_offsets` and :meth:`delete` ask there.
        management_url: where RabbitMQ's management API is, as for :class:`cobalance.ConsumerGroup`. It is asked for what is in flight where
            no member answers.
        key_prefix: that of the groups.
        transport: instead of ``redis_url``.

    Raises:
        ServerError: by every method, when Redis cannot be asked.
        UnknownGroup: by every method that takes a group which is not there, but for :meth:`create`.
    """

    def __init__(
        self,
        redis_url: str = "redis://127.0.0.1:6379/0",
        *,
        amqp_url: str = "amqp://guest:guest@127.0.0.1:5672/%2F",
        management_url: str | None = None,
        key_prefix: str = DEFAULT_PREFIX,
        transport: Transport | None = None,
    ) -> None:
        check_redis_url("redis_url", redis_url)
        check_options({"amqp_url": amqp_url, "management_url": management_url})
        check_transport("transport", transport)
        self._amqp_url, self._management_url = amqp_url, management_url
        self._prefix = validate_name("key prefix", key_prefix)
        self._is_ours = transport is None
        self._transport = transport or open_transport(redis_url)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Ends the connection, unless it was given."""
        if self._is_ours:
            self._transport.close()

    # -- to be or not to be --------------------------------------------------------------------------------------------

    def create(self, group: str, settings: GroupSettings | None = None) -> None:
        """Creates a group that is known to be new, so that its first members start at once. Never one that Redis has lost while its
        members work: they bring it back by themselves.

        Raises:
            GroupExists: it is there already.
            GroupActive: processes listen for it, so it is not new.
        """
        check_kind("settings", settings, GroupSettings, optional=True)
        self._of(group).create(settings or GroupSettings())

    def delete(self, group: str, *, force: bool = False, on_waiting: Callable[[], object] = lambda: None) -> None:
        """Has Redis forget a group: its settings, its committed offsets, its journal. Its queues stay. Sessions of members that have
        crashed are waited for. What RabbitMQ remembers of the streams that the group has read goes, too, if it can be reached there and
        ``force`` is not given; otherwise a group of that name begins at them as ``on_unknown_offset`` says.

        Args:
            force: whoever is a member. To members it is a loss of data: they go on with what they hold, join again at once and make
                the group anew from that, with the settings and offsets they know. Nobody is given what somebody else works. The
                offsets of what nobody held are lost. To be rid of the group, stop its members.
            on_waiting: called once, if sessions have to be waited for.

        Raises:
            GroupActive: somebody is a member, or may be.
        """
        coordinator = self._of(group)
        if force:
            coordinator.delete(force=True)
            return
        read = [row.name for row in coordinator.resources() if row.committed is not None]
        _when_left(coordinator, coordinator.delete, on_waiting)
        try:
            if read:
                forget(self._amqp_url, group, read)
        except CobalanceError as error:  # its resources may be no streams
            log.info("group %s is deleted, but RabbitMQ still knows what streams it has read: %s", group, error)

    def list(self) -> tuple[str, ...]:
        """The names of all groups, sorted."""
        return tuple(self._transport.list_groups(self._prefix))

    # -- looking -------------------------------------------------------------------------------------------------------

    def describe(self, group: str) -> GroupDescription:
        """A group as it is now: settings, members, resources, what members name, and what was let go of."""
        return GroupDescription.read(self._of(group))

    def lag(self, group: str) -> dict[str, int | None]:
        """How much of each resource is still to be done: a queue's messages that are not acknowledged, a stream's behind the committed
        offset. ``None`` is not known, as of what is no queue.

        Raises:
            CobalanceError: RabbitMQ cannot be asked.
        """
        return {name: backlog.lag for name, backlog in self.backlogs(self.describe(group)).items()}

    def backlogs(
        self, description: GroupDescription, *, on_unknown: Callable[[str], object] = lambda _: None
    ) -> dict[str, Backlog]:
        """What is still to be done of each resource, and what of it members are at. Members are asked, for half a second at most.

        Args:
            description: of the group.
            on_unknown: told in words why something is not known of some queues: no member answers for them, and the management API cannot
                be asked.

        Raises:
            CobalanceError: RabbitMQ cannot be asked.
        """
        coordinator = self._of(description.name)
        return read_backlogs(description, coordinator, self._amqp_url, self._management_url, on_unknown)

    def journal(self, group: str) -> Journal:
        """What happened in the group, and why."""
        self._of(group).state()  # an empty journal and a group that does not exist look the same
        return Journal(self._transport, group, key_prefix=self._prefix)

    # -- settings ------------------------------------------------------------------------------------------------------

    def settings(self, group: str) -> GroupSettings:
        """Those in force."""
        return self._of(group).settings()

    def configure(self, group: str, **changes: int | str) -> GroupSettings:
        """Changes settings for all members, at once; those in force. Names are those of :class:`GroupSettings`.

        Raises:
            InvalidSettings: a value is out of range, or contradicts another.
        """
        return self._of(group).configure(**changes)

    # -- putting right -------------------------------------------------------------------------------------------------

    def resume(self, group: str, *resources: str, every: bool = False) -> dict[str, Resumed]:
        """Has halted resources worked again, once what kept their member from getting on is removed.

        Args:
            group: its name.
            resources: by the names that :meth:`describe` shows, or ``orders:0,3`` for partitions of a topic.
            every: all that are halted.

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
        answers = coordinator.resume(*names) if names else {}
        return {name: _RESUMED[answer] for name, answer in answers.items()}

    def plan_offsets(self, group: str, target: Target, streams: Sequence[str] | None = None) -> Sequence[Step]:
        """What resetting offsets to there would do; changes nothing.

        Args:
            group: its name.
            target: where to go.
            streams: some of them; by default all that the group has, or those that the target names.

        Raises:
            QueueMissing: there is no such stream.
            UsageError: it is a queue, which keeps no offsets, or has no committed offset to go by; or the target is none.
        """
        committed = {row.name: row.committed for row in self._of(group).resources()}
        if streams is None and isinstance(target, Mapping):
            streams = tuple(target)
        if streams is None:
            streams = self._streams_of(committed)
        else:
            self._check_streams(streams)
        return plan(target, streams, committed, self._amqp_url)

    def reset_offsets(
        self,
        group: str,
        offsets: Mapping[str, int] | Iterable[Step],
        *,
        on_waiting: Callable[[], object] = lambda: None,
    ) -> None:
        """Sets committed offsets, lower ones than before included. Refused while the group has members, unless all that is to be moved
        is halted; sessions of members that have crashed are waited for. Journalled.

        Args:
            group: its name.
            offsets: what :meth:`plan_offsets` gives; or resource → the offset of the last message processed, -1 before the first.
            on_waiting: called once, if sessions have to be waited for.

        Raises:
            GroupActive: somebody is a member, or may be.
        """
        wanted = dict(offsets) if isinstance(offsets, Mapping) else _offsets_of(offsets)
        coordinator = self._of(group)
        _when_left(coordinator, lambda: coordinator.reset_offsets(wanted), on_waiting)

    def trust_offsets(self, group: str) -> None:
        """Says that no committed offset was lost with Redis's data, or that those lost were set again: a stream without one then begins
        at its start, and not as ``on_unknown_offset`` says.
        """
        self._of(group).trust_offsets()

    def repair(self, group: str) -> Repaired:
        """Makes the group's indices, totals and timers anew from its records. Everybody waits meanwhile: some seconds of a large
        group.
        """
        return self._of(group).repair()

    # -- helpers -------------------------------------------------------------------------------------------------------

    def _of(self, group: str) -> Coordinator:
        return Coordinator(self._transport, group, key_prefix=self._prefix)

    def _streams_of(self, names: Iterable[str]) -> Sequence[str]:
        kinds = streams_among(self._amqp_url, names)
        return [name for name in names if kinds.get(name)]

    def _check_streams(self, names: Sequence[str]) -> None:
        kinds = streams_among(self._amqp_url, names)
        for name in names:
            if name not in kinds:
                raise QueueMissing(f"There is no stream {name!r}.")
            if not kinds[name]:
                raise UsageError(f"{name!r} is a queue, which keeps no offsets: what was acknowledged is gone from it.")


def _offsets_of(steps: object) -> dict[str, int]:
    given = tuple(steps) if isinstance(steps, Iterable) else (steps,)
    found = [it for it in given if isinstance(it, Step)]
    if len(found) < len(given):
        raise UsageError(
            "the offsets are neither a dictionary nor steps: give what plan_offsets() returns, or resource → offset"
        )
    return {it.stream: it.committed for it in found}


def _spelt(text: str, known: Iterable[str]) -> Iterator[str]:
    """``orders:0,3`` is two partitions, unless something is called so."""
    found = None if text in known else re.fullmatch(r"(.+):(\d+(?:,\d+)*)", text)
    if found is None:
        yield text
    else:
        yield from (f"{found[1]}-{number}" for number in found[2].split(","))


def _when_left(coordinator: Coordinator, act: Callable[[], None], on_waiting: Callable[[], object]) -> None:
    """Members that crashed count until their sessions are over, which somebody has to ask about meanwhile."""
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
