"""Checks servers and groups, and says what to do. Reads only; each check is bounded."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

import attrs

from cobalance.coordinator.client import Coordinator
from cobalance.coordinator.keys import group_keys
from cobalance.coordinator.transport import Listing
from cobalance.errors import CobalanceError, UnknownGroup, Unreachable, counted
from cobalance.journal import Journal, JournalEntry
from cobalance.names import split_resource
from cobalance.operate.backlog import ENDS_BEFORE, WITHIN_MS, ends_before, go_on_at
from cobalance.operate.group_snapshot import read_snapshot
from cobalance.operate.verdict import WINDOW_MS
from cobalance.operate.wording import duration, of_group
from cobalance.rabbitmq.model.queues import Guard
from cobalance.rabbitmq.topics.admin import PublishersBlocked, creation
from cobalance.rabbitmq.topics.broker import queue_states
from cobalance.rabbitmq.topics.management import connection_names
from cobalance.rabbitmq.topics.permissions import SeenQueues, look_at_queues, missing_for_wills
from cobalance.rabbitmq.wire.address import is_memory

if TYPE_CHECKING:
    from cobalance.coordinator.transport import Transport
    from cobalance.description import GroupDescription
    from cobalance.operate.backlog import Broker

Level = Literal["ok", "warning", "error", "unknown"]

Facts = dict[str, str]

OLDEST_REDIS, OLDEST_RABBITMQ = (6, 2), (3, 10)
"""The oldest versions that are tested."""

CLOCKS_APART_S = 5
FULL_PERCENT = 90
STALE_DAYS = 30
QUEUES_LOOKED_AT = 20
"""Reading a declaration takes RabbitMQ some attempts for each queue, and those of a topic are alike."""

ENTRIES_LOOKED_AT = 5_000
TIMEOUT_MS = 3_000
DAY_MS = 86_400_000

LONGEST_ADVISED_MS = 30_000
"""A heartbeat that is so late that a session would have to be longer is no matter of load."""

AWAY = frozenset({"graced", "silent", "dead"})
"""States of members that work nothing."""

Check = Callable[[], "Iterator[Finding]"]


@attrs.frozen(kw_only=True)
class Finding:
    """The result of one check."""

    subject: str
    """Redis, RabbitMQ, or the name of a group."""
    check: str
    level: Level
    """error: something does not work, or is unsafe. unknown: it could not be found out."""
    message: str
    advice: str | None = None
    """What to do; None if nothing has to be done."""


@attrs.frozen
class Doctor:
    """Examines what :class:`GroupAdmin` has connections to."""

    transport: Transport
    broker: Broker | None
    """None if no group has queues."""
    key_prefix: str

    def examine(self, *groups: str) -> list[Finding]:
        """Checks both servers, and these groups, by default all."""
        found = [*self._try("Redis", "usable", self._redis)]
        wrong = {it.check for it in found if it.level == "error"}
        if "usable" not in wrong and not ("reachable" in wrong and self._is_away()):
            found += self._try("Redis", "groups", partial(self._groups, groups))
        if self.broker is not None and not is_memory(self.broker.amqp_url):
            found += self._try("RabbitMQ", "usable", partial(self._rabbitmq, self.broker))
        return found

    @staticmethod
    def _try(subject: str, check: str, look: Check) -> Iterator[Finding]:
        try:
            yield from look()
        except Unreachable as error:
            yield _finding(subject, "reachable", "error", str(error))
        except CobalanceError as error:
            yield _finding(subject, check, "error", str(error))

    # -- Redis ---------------------------------------------------------------------------------------------------------

    def _redis(self) -> Iterator[Finding]:
        transport: Any = self.transport
        if not hasattr(transport, "read_info"):
            yield _redis("reachable", "ok", "the groups are in this process")
            return
        key = group_keys("cobalance.doctor", self.key_prefix)[0]
        where, facts = transport.read_info(key)
        yield _redis("reachable", "ok", f"{where} answers")
        with suppress(UnknownGroup):  # what it lacks altogether is named best by a call
            Coordinator(self.transport, "cobalance.doctor", key_prefix=self.key_prefix).tick()
        yield from self._permissions(transport, key)
        if not facts:
            yield _redis("info", "unknown", "its user may not run INFO", "add +info to its ACL")
            return
        for look in (_redis_version, _policy, _memory, _persistence, _replicas):
            yield look(facts)
        yield self._clock(transport, key)

    @staticmethod
    def _permissions(transport: Any, key: str) -> Iterator[Finding]:
        missing = transport.read_missing_permissions(key)
        if missing is None:
            yield _redis(
                "permissions", "unknown", "this Redis is too old to tell; what is missing shows when it is used"
            )
        elif missing:
            advice = f"ACL SETUSER USER {' '.join(f'+{it}' for it in sorted(missing))}"
            yield _redis("permissions", "error", f"its user may not run {', '.join(sorted(missing))}", advice)
        else:
            yield _redis("permissions", "ok", "its user may run all that the scripts need")

    @staticmethod
    def _clock(transport: Any, key: str) -> Finding:
        before = time.time()
        theirs = transport.read_time(key)
        apart_s = theirs - (before + time.time()) / 2
        if abs(apart_s) < CLOCKS_APART_S:
            return _redis("clock", "ok", f"its clock is within {CLOCKS_APART_S} s of this machine's")
        message = f"its clock is {abs(apart_s):.0f} s {'ahead of' if apart_s > 0 else 'behind'} this machine's"
        advice = "run a time service on both: times in the journal are Redis's, those in logs the members'"
        return _redis("clock", "warning", message, advice)

    # -- RabbitMQ ------------------------------------------------------------------------------------------------------

    @staticmethod
    def _rabbitmq(broker: Broker) -> Iterator[Finding]:
        states = queue_states(broker.amqp_url, (), timeout_ms=TIMEOUT_MS)
        yield _rabbitmq("reachable", "ok", f"{states.place} answers")
        version = states.version or ""
        if version and _number(version) < OLDEST_RABBITMQ:
            advice = f"use {_dotted(OLDEST_RABBITMQ)} or newer"
            yield _rabbitmq("version", "warning", f"{version} is older than any that is tested", advice)
        else:
            yield _rabbitmq("version", "ok" if version else "unknown", version or "it does not tell its version")
        try:
            yield _wills(missing_for_wills(broker.amqp_url, timeout_ms=TIMEOUT_MS))
        except PublishersBlocked as error:
            advice = "rabbitmq-diagnostics alarms says which node, and of what; free some there, and publishers go on by themselves"
            yield _rabbitmq("alarm", "error", str(error), advice)
        try:
            connection_names(broker.amqp_url, broker.management_url, timeout_ms=TIMEOUT_MS)
        except CobalanceError as error:
            advice = "nothing, unless queues are found by binding or pattern, or frozen members are to be cut off"
            yield _rabbitmq("management", "warning", str(error), advice)
        else:
            yield _rabbitmq("management", "ok", "its management API answers")

    # -- groups --------------------------------------------------------------------------------------------------------

    def _groups(self, names: Sequence[str]) -> Iterator[Finding]:
        listing = Listing(names) if names else self._listing()
        for name in listing.names:
            yield from self._try(name, "readable", partial(self._group, name))
        listing.check_complete()

    def _listing(self) -> Listing:
        return Listing.of(partial(self.transport.list_groups, self.key_prefix))

    def _is_away(self) -> bool:
        """Whether all of Redis is, and not only a node of a cluster."""
        try:
            return not self._listing().names
        except CobalanceError:
            return True

    def _group(self, name: str) -> Iterator[Finding]:
        coordinator = Coordinator(self.transport, name, key_prefix=self.key_prefix)
        try:
            group = read_snapshot(coordinator, self.broker)
        except UnknownGroup as error:
            yield Finding(subject=name, check="there", level="error", message=str(error))
            return
        newest = self._newest(name)
        yield _stale(group, newest[-1] if newest else None)
        yield from _heartbeats(group, newest)
        yield _overrun(group, newest)
        yield from _partitions(group)
        yield from _work(group)
        yield from _streams(group)
        yield from self._missing_queues(group, newest)
        seen = self._look_at_queues(group)
        if not group.offsets_known and _may_have_offsets(group, seen):
            advice = f"check where its streams stand, then: {of_group(group, 'trust-offsets')}"
            yield _group(group, "offsets", "warning", "committed offsets may have been lost with Redis's data", advice)
        yield from _guards(group, seen)

    def _newest(self, name: str) -> Sequence[JournalEntry]:
        """The newest entries: the ids of a stream begin with its time, of which only the order counts."""
        entries: list[JournalEntry] = []
        for entry in Journal(self.transport, name, key_prefix=self.key_prefix).entries():
            entries.append(entry)
            if len(entries) > 2 * ENTRIES_LOOKED_AT:
                del entries[:ENTRIES_LOOKED_AT]
        return entries[-ENTRIES_LOOKED_AT:]

    def _missing_queues(self, group: GroupDescription, newest: Sequence[JournalEntry]) -> Iterator[Finding]:
        broker, unheard = self.broker, [it.name for it in group.resources if not it.backlog.is_at_rabbitmq]
        if broker is None or any(it.problem for it in group.servers) or not (unheard and _has_queues(group, newest)):
            return
        states = queue_states(broker.amqp_url, unheard, timeout_ms=TIMEOUT_MS, within_ms=WITHIN_MS)
        gone = [name for name, it in states.by_queue.items() if it is None]
        if gone:
            ways = {creation(topic) for name in gone if (topic := split_resource(name)[0])}
            advice = (
                f"create it again as it was{': ' if ways else ''}{', '.join(sorted(ways))}; or let no member name it. What is published to it "
                "meanwhile fails, or goes to the queues of other groups alone"
            )
            yield _group(group, "queues", "error", f"there is no queue {', '.join(gone)}", advice)

    def _look_at_queues(self, group: GroupDescription) -> SeenQueues:
        names = [it.name for it in group.resources if it.backlog.is_at_rabbitmq][:QUEUES_LOOKED_AT]
        return look_at_queues(self.broker.amqp_url, names) if self.broker is not None and names else SeenQueues([], {})


def _has_queues(group: GroupDescription, newest: Sequence[JournalEntry]) -> bool:
    """Whether resources of which RabbitMQ knows nothing are queues that are gone, and not folders, say."""
    has_some = any(it.backlog.is_at_rabbitmq for it in group.resources)
    is_consumed = any(it.handled is not None for it in group.members)
    return has_some or is_consumed or any(it.reason == "queue_missing" for it in newest)


def _may_have_offsets(group: GroupDescription, seen: SeenQueues) -> bool:
    """Whether something is known to be a stream. Work queues have no offsets."""
    return any(it.committed is not None for it in group.resources) or any(it.kind == "stream" for it in seen.readable)


def _guards(group: GroupDescription, seen: SeenQueues) -> Iterator[Finding]:
    if seen.missing:
        message = f"its user may not {', '.join(f'{what} {name}' for name, what in sorted(seen.missing.items()))}"
        advice = "rabbitmqctl set_permissions: members need configure and read on their queues, unless they log in as another user"
        yield _group(group, "permissions", "error", message, advice)
    queues = [it for it in seen.readable if it.kind != "stream"]
    unguarded = sorted(it.name for it in queues if it.guard is Guard.NONE)
    if unguarded:
        message = f"RabbitMQ serves two consumers at a time of {', '.join(unguarded)}"
        advice = "declare quorum queues with x-single-active-consumer, so that a frozen holder cannot overlap with the next one"
        yield _group(group, "guards", "warning", message, advice)
    elif queues:
        yield _group(group, "guards", "ok", f"RabbitMQ guards {counted(len(queues), 'queue')}, all that were looked at")


def _finding(subject: str, check: str, level: Level, message: str, advice: str | None = None) -> Finding:
    return Finding(subject=subject, check=check, level=level, message=message, advice=advice)


def _redis(check: str, level: Level, message: str, advice: str | None = None) -> Finding:
    return _finding("Redis", check, level, message, advice)


def _rabbitmq(check: str, level: Level, message: str, advice: str | None = None) -> Finding:
    return _finding("RabbitMQ", check, level, message, advice)


def _group(group: GroupDescription, check: str, level: Level, message: str, advice: str | None = None) -> Finding:
    return _finding(group.name, check, level, message, advice)


def _wills(missing: Sequence[str]) -> Finding:
    if not missing:
        return _rabbitmq("permissions", "ok", "its user may have last wills, by which crashes are noticed at once")
    advice = "grant them with rabbitmqctl set_permissions, unless members log in as another user"
    message = f"its user lacks {'; '.join(missing)}: crashes are noticed only when a session ends"
    return _rabbitmq("permissions", "warning", message, advice)


def _redis_version(facts: Facts) -> Finding:
    valkey = facts.get("valkey_version")
    version = facts.get("redis_version", "")  # Valkey tells the one that it is compatible with
    if _number(version) < OLDEST_REDIS:
        advice = f"use Redis {_dotted(OLDEST_REDIS)} or newer, or Valkey"
        return _redis("version", "error", f"{version} is older than any that works", advice)
    return _redis("version", "ok", f"Valkey {valkey}" if valkey else version)


def _policy(facts: Facts) -> Finding:
    policy, maxmemory = facts.get("maxmemory_policy", "noeviction"), facts.get("maxmemory", "0")
    if policy == "noeviction":
        return _redis("policy", "ok", "it never drops keys for lack of memory")
    level: Level = "warning" if maxmemory == "0" else "error"
    advice = "CONFIG SET maxmemory-policy noeviction"
    return _redis(
        "policy", level, f"with maxmemory-policy {policy} it drops parts of groups once maxmemory is reached", advice
    )


def _memory(facts: Facts) -> Finding:
    used, most = int(facts.get("used_memory", 0)), int(facts.get("maxmemory", 0))
    if not most:
        return _redis("memory", "ok", "maxmemory is not limited")
    percent = 100 * used // most
    if percent < FULL_PERCENT:
        return _redis("memory", "ok", f"{percent} % of maxmemory is used")
    advice = "raise maxmemory: when it is full, nothing moves any more, and nothing is committed"
    return _redis("memory", "warning", f"{percent} % of maxmemory is used", advice)


def _persistence(facts: Facts) -> Finding:
    if facts.get("aof_enabled") == "1":
        return _redis("persistence", "ok", "appendonly is on")
    advice = (
        "CONFIG SET appendonly yes: after a restart that takes longer than a session, only what is on disk is there"
    )
    return _redis("persistence", "warning", "appendonly is off, so a restart brings back old data or none", advice)


def _replicas(facts: Facts) -> Finding:
    """INFO counts the good replicas only if the master requires some."""
    if facts.get("role") == "slave":
        master = f"{facts.get('master_host', 'unknown')}:{facts.get('master_port', 'unknown')}"
        advice = "name the master in the URL; with Sentinel or a cluster, these name it"
        return _redis("replicas", "error", f"it is a replica of {master}, which members cannot write to", advice)
    if facts.get("connected_slaves", "0") == "0":
        return _redis("replicas", "ok", "it is a master without replicas, so nobody takes its place")
    if "min_slaves_good_slaves" in facts:
        return _redis("replicas", "ok", "min-replicas-to-write is set")
    advice = "set min-replicas-to-write 1, and min-replicas-max-lag at least three seconds below the time of a failover"
    message = "min-replicas-to-write is 0, so after a failover two masters may serve at once"
    return _redis("replicas", "warning", message, advice)


def _stale(group: GroupDescription, newest: JournalEntry | None) -> Finding:
    if group.state != "Empty":
        return _members(group)
    days = None if newest is None else (group.at_ms - newest.at_ms) // DAY_MS
    if days is None or days < STALE_DAYS or group.expires_at is not None:
        return _group(group, "members", "ok", "it has no members")
    advice = f"if nobody needs its offsets: {of_group(group, 'delete')}; or {of_group(group, 'configure', idle_expiry='TIME')}"
    return _group(group, "members", "warning", f"it has had no members for {days} days", advice)


def _members(group: GroupDescription) -> Finding:
    gone = [it for it in group.members if it.state in AWAY]
    there = f"{group.state}, {counted(len(group.members) - len(gone), 'member')}"
    if not gone:
        return _group(group, "members", "ok", there)
    advice = "start them again; without them, others get what they held when the rejoin grace is over"
    return _group(group, "members", "warning", f"{there}, and {len(gone)} gone", advice)


def _heartbeats(group: GroupDescription, entries: Sequence[JournalEntry]) -> Iterator[Finding]:
    """Holders report with each release how late their heartbeats were."""
    late_ms = max((it.late_ms for it in entries if it.late_ms is not None), default=None)
    session_ms, heartbeat_ms = group.settings.session_timeout_ms, group.settings.heartbeat_interval_ms
    if late_ms is None:
        if group.members:  # nobody can have reported anything in a group without any
            yield _group(group, "heartbeats", "unknown", "no member has reported how late its heartbeats are")
        return
    if heartbeat_ms + late_ms <= session_ms * 2 // 3:
        yield _group(group, "heartbeats", "ok", f"at most {late_ms} ms late, in sessions of {session_ms} ms")
        return
    advised_ms = 2 * (heartbeat_ms + late_ms)
    longer = {"session_timeout": f"{advised_ms}ms"}
    if advised_ms > group.settings.revocation_timeout_ms:  # which must not be shorter
        longer["revocation_timeout"] = longer["session_timeout"]
    advice = f"{of_group(group, 'configure', **longer)}, or less load"
    if advised_ms > max(LONGEST_ADVISED_MS, session_ms):
        advice = "find out what stopped that process: it was frozen, or its machine suspended. With a longer session, others would only wait longer"
    ends = "ends" if heartbeat_ms + late_ms >= session_ms else "nearly ends"
    yield _group(
        group,
        "heartbeats",
        "warning",
        f"they were up to {late_ms} ms late, which {ends} a session of {session_ms} ms",
        advice,
    )


def _overrun(group: GroupDescription, entries: Sequence[JournalEntry]) -> Finding:
    """Also those of a member that left within less: its drain timeout is no setting of the group."""
    overrun = sum(it.is_overrun for it in entries)
    if not overrun:
        return _group(group, "handovers", "ok", "all were finished in time")
    advice = (
        f"make handlers finish sooner, or {of_group(group, 'configure', revocation_timeout='TIME')}; "
        "members that leave have their drain_timeout_ms besides"
    )
    message = (
        f"{counted(overrun, 'was', 'were')} not finished in time (the revocation timeout is "
        f"{group.settings.revocation_timeout_ms} ms), so messages were handled twice"
    )
    return _group(group, "handovers", "warning", message, advice)


def _partitions(group: GroupDescription) -> Iterator[Finding]:
    halted = [it.name for it in group.resources if it.halted is not None]
    if halted:
        advice = f"once the cause is removed: {of_group(group, 'resume', all=True)}"
        yield _group(group, "partitions", "error", f"nobody works {', '.join(halted)}: halted or paused", advice)
    unnamed = [it.name for it in group.resources if it.owner is None and not it.is_named]
    if unnamed:
        yield _group(group, "partitions", "warning", f"no member names {', '.join(unnamed)}", "start one that does")
    if not halted and not unnamed:
        yield _group(group, "partitions", "ok", f"{counted(len(group.resources), 'partition')}, none halted")


def _work(group: GroupDescription) -> Iterator[Finding]:
    """What can be said without a history: `cobalance group describe --watch` has one."""
    stopped = [it.name for it in group.resources if it.verdict == "STOP" and it.halted is None]
    if stopped:
        message = f"STOP: there are messages in {', '.join(stopped)}, and nobody is there to work them"
        yield _group(group, "work", "error", message, "start a member that names them")
    kept = [it for it in group.resources if it.state == "graced" and it.backlog.is_at_rabbitmq and it.backlog.lag != 0]
    if kept:
        there_are = "there are" if all(it.backlog.lag for it in kept) else "there may be"
        message = f"{there_are} messages in {', '.join(it.name for it in kept)}, kept for members that are gone"
        advice = "start these members again; without them, others get that when the rejoin grace is over"
        yield _group(group, "work", "warning", message, advice)
    stuck = {it.name: it.backlog.oldest_ms for it in group.resources if (it.backlog.oldest_ms or 0) >= WINDOW_MS}
    if stuck:
        stuck_for = ", ".join(f"{name} for {duration(age_ms)}" for name, age_ms in stuck.items())
        advice = f"{of_group(group, 'explain', next(iter(stuck)))}; consume --max-processing ends handlers that hang"
        yield _group(group, "work", "warning", f"STALL: the same message has been in flight in {stuck_for}", advice)
    if not stopped and not kept and not stuck and any(it.backlog.is_at_rabbitmq for it in group.resources):
        yield _group(group, "work", "ok", "no message waits for a member, and none has been in flight for a minute")


def _streams(group: GroupDescription) -> Iterator[Finding]:
    for it in group.resources:
        if ends_before(it.committed, it.backlog.log_end_offset):
            yield _group(group, "streams", "error", f"stream {it.name} {ENDS_BEFORE}", go_on_at(group, it.name))


def _number(version: str) -> tuple[int, int]:
    found = re.match(r"(\d+)\.(\d+)", version)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def _dotted(version: tuple[int, int]) -> str:
    return ".".join(map(str, version))
