"""Reads a group's journal: every transition of every resource and member, in order.

The coordinator's scripts write each entry in the same step as the transition it records. Reading changes nothing:
unlike the other verbs, it does not even settle what is due.
"""

from __future__ import annotations

from collections import deque
from itertools import chain
from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.entries import read_entries
from cobalance.coordinator.keys import DEFAULT_PREFIX, journal_key
from cobalance.errors import ProtocolMismatch
from cobalance.names import validate_name

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from cobalance.coordinator.transport import Transport

BEGINNING = "0"
"""The position before the first entry."""

PAGE = 500
"""Entries per read."""


@attrs.frozen(kw_only=True)
class JournalEntry:
    """One transition. Fields that do not apply to its kind are ``None``, and an absent reason is ""."""

    id: str
    """Position in the stream; pass it as ``after`` to read on."""
    seq: int
    """Sequence number, contiguous within a group, so that gaps are detectable."""
    kind: str
    """The kind of transition.

    About a member or the group: joined, leaving, left, expired_member, graced, coordinator, incarnation, recovered,
    configured, barrier.

    About a resource: added, granted, revoking, cancelled, released, abandoned, halted, resumed, forced, expired,
    inherited, withdrawn, claimed, reset, removing, removed, refused.

    repaired follows a script that died between its writes: one entry for each member and resource it touched, with the
    recorded status (or gone) as ``reason``, and a last one that says why everything was repaired (torn, or requested by
    an administrator) and after which ``seq`` that script's own entries begin.
    """
    at_ms: int
    """Group time in milliseconds since 1970: Redis's clock, kept from running backwards."""
    resource: str | None = None
    member: str | None = None
    token: int | None = None
    handover_id: int | None = None
    """The token of the tenure that ends; the same from ``revoking`` to the ``granted`` of its successor."""
    deadline_ms: int | None = None
    """When a revocation or barrier is forced, in group time."""
    drain_ms: int | None = None
    """How long the revocation was pending when it ended."""
    committed: int | None = None
    """The committed offset at the end of the tenure: -1 before the first, -2 before it was found out where to start."""
    reason: str = ""
    handled: int | None = None
    """How often the handler ran in a released or abandoned tenure, if its holder reported it."""
    busy_ms: int | None = None
    """The handler's total running time."""
    late_ms: int | None = None
    """The longest silence of the holder beyond a heartbeat interval since its last report."""
    label: str | None = None
    """Host and process id of a member that joined. This and the next two fields are ``None`` in the journals of older
    versions.
    """
    instance_id: str | None = None
    """The instance id it joined with."""
    capacity: int | None = None
    """The capacity it joined with."""
    by: str | None = None
    """Who configured, resumed or reset it, if somebody said so; see :meth:`cobalance.GroupAdmin.on_behalf_of`."""

    @property
    def is_overrun(self) -> bool:
        """Whether it ends a tenure whose holder had not finished by its deadline: it was moved by force, or, as whoever can stop
        its handler does, given up just before that.
        """
        return self.kind == "forced" or (self.kind == "abandoned" and self.reason == "deadline")

    @property
    def is_failure(self) -> bool:
        """Whether it ends a tenure since a handler had failed."""
        return self.kind == "abandoned" and self.reason.partition(":")[0] in {"failed", "halted"}

    @classmethod
    def read(cls, id_: str, fields: Mapping[str, str]) -> JournalEntry:
        """Parses an entry of the stream.

        Raises:
            ProtocolMismatch: the entry has an unknown format.
        """
        try:
            return cls._read(id_, fields)
        except (KeyError, ValueError):
            raise ProtocolMismatch(
                f"Entry {id_} of the journal is not of the form that this version reads: was it written by another version of "
                "Cobalance, or by another program?"
            ) from None

    @classmethod
    def _read(cls, id_: str, fields: Mapping[str, str]) -> JournalEntry:
        def number(name: str) -> int | None:
            return int(fields[name]) if fields.get(name) else None

        effort = _effort(fields.get("effort", ""))
        return cls(
            id=id_,
            seq=int(fields["seq"]),
            kind=fields["kind"],
            at_ms=int(fields["at_ms"]),
            resource=fields.get("resource"),
            member=fields.get("member"),
            token=number("token"),
            handover_id=number("handover_id"),
            deadline_ms=number("deadline") or None,
            drain_ms=number("drain_ms"),
            committed=number("committed"),
            reason=fields.get("reason", ""),
            handled=effort[0],
            busy_ms=effort[1],
            late_ms=effort[2],
            label=_given(fields.get("label")),
            instance_id=_given(fields.get("instance")),
            capacity=number("capacity"),
            by=_given(fields.get("by")),
        )


def _given(word: str | None) -> str | None:
    return None if word == "-" else word


def _effort(text: str) -> list[int | None]:
    """Parses ``handled/busy_ms/late_ms``, each possibly empty; all are None for any other format."""
    words = text.split("/")
    if len(words) != 3 or not all(word.isdecimal() or not word for word in words):
        return [None] * 3
    return [int(word) if word else None for word in words]


@attrs.frozen
class Gap:
    """Missing entries: the stream was trimmed, or Redis lost part of its data."""

    after_seq: int
    before_seq: int

    @property
    def missing(self) -> int:
        """The number of missing entries."""
        return self.before_seq - self.after_seq - 1


class Journal:
    """Reads the journal of one group."""

    def __init__(self, transport: Transport, group: str, *, key_prefix: str = DEFAULT_PREFIX) -> None:
        self._transport = transport
        self._key = journal_key(validate_name("group", group), validate_name("key prefix", key_prefix))

    def entries(self, after: str = BEGINNING) -> Iterator[JournalEntry]:
        """Yields the entries currently in the journal after an entry's ``id``, oldest first.

        Raises:
            ServerError: the journal could not be read.
            ProtocolMismatch: an entry has an unknown format.
        """
        while True:
            page = self._transport.read_stream(self._key, after, PAGE)
            for id_, fields in page:
                after = id_
                yield JournalEntry.read(id_, fields)
            if len(page) < PAGE:
                return

    def oldest_id(self) -> str:
        """The position of the oldest entry; that before the first if there is none.

        Raises:
            ServerError: the journal could not be read.
        """
        oldest = self._transport.read_stream(self._key, BEGINNING, 1)
        return oldest[0][0] if oldest else BEGINNING

    def newest_id(self) -> str:
        """The position of the newest entry, to read on from; that before the first if there is none.

        Raises:
            ServerError: the journal could not be read.
        """
        read_newest = getattr(self._transport, "read_newest", None)
        if read_newest is not None:
            newest = read_entries(read_newest(self._key))
            return newest[0][0] if newest else BEGINNING
        after = BEGINNING
        for entry in self.entries():  # in this process
            after = entry.id
        return after

    def follow(self, after: str, stop: threading.Event, *, poll_ms: int = 200) -> Iterator[JournalEntry]:
        """Yields the same entries, then new ones as they arrive, until ``stop`` is set."""
        follower = JournalFollower(self, after)
        while True:
            yield from follower.entries()
            if stop.wait(poll_ms / 1000):
                return


REMEMBERED = 1_000
"""So many of the newest entries may be lost at a failover, and what follows is read whatever Redis's clock says. If more are lost,
only entries with a later time than those are new.
"""

SAMPLED = 100
"""Of the older ids, one in so many is remembered: by these a snapshot is told from a group that was created again."""


class JournalFollower:
    """Reads a journal on and on, each entry once. The ids of entries, by which one reads on, begin with Redis's time: they are lower
    than what was read before where the group was created again, or lost its newest entries, on a server whose clock is behind.
    """

    def __init__(self, journal: Journal, after: str = BEGINNING) -> None:
        self._journal, self._after = journal, after
        self._read: deque[str] = deque()
        self._samples: deque[str] = deque(maxlen=REMEMBERED)
        self._count = 0

    @classmethod
    def from_newest(cls, journal: Journal) -> JournalFollower:
        """One that reads what comes after the present entries.

        Raises:
            ServerError: the journal could not be read.
        """
        found = cls(journal)
        found._pass_by(journal.newest_id())
        return found

    def entries(self) -> Iterator[JournalEntry]:
        """Yields the entries that are new.

        Raises:
            ServerError: the journal could not be read.
            ProtocolMismatch: an entry has an unknown format.
        """
        for entry in self._new():
            self._after = entry.id
            self._remember(entry.id)
            yield entry

    def _remember(self, id_: str) -> None:
        self._read.append(id_)
        if len(self._read) > REMEMBERED:
            oldest, self._count = self._read.popleft(), self._count + 1
            if self._count % SAMPLED == 1:
                self._samples.append(oldest)

    def _pass_by(self, newest: str) -> None:
        """Takes the present entries for read."""
        self._after = newest
        if newest != BEGINNING:
            self._samples.append(self._journal.oldest_id())
            self._read.append(newest)

    def _new(self) -> Iterator[JournalEntry]:
        if not self._read:
            return self._first()
        found = self._journal.entries(_before(self._after))
        last = next(found, None)
        if last is not None and last.id == self._after:
            return found
        self._step_back()
        return self._journal.entries(self._after)

    def _first(self) -> Iterator[JournalEntry]:
        """The first entries. Whatever comes later is new, also on a server whose clock is behind the time to begin at."""
        newest = BEGINNING if self._after == BEGINNING else self._journal.newest_id()
        found = self._journal.entries(self._after)
        first = next(found, None)
        if first is None:
            self._pass_by(newest)
            return found
        self._samples.append(self._journal.oldest_id())
        return chain([first], found)

    def _step_back(self) -> None:
        """To the newest of the read entries that is still there. If only older ones than are remembered are, what has a later time is
        new, and else everything.
        """
        oldest = self._read[0]
        there = {it.id for it in self._journal.entries(_before(oldest))}
        while self._read and self._read[-1] not in there:
            self._read.pop()
        if self._read:
            self._after = self._read[-1]
        else:
            self._after = oldest if any(it.id in self._samples for it in self._journal.entries()) else BEGINNING


def _before(id_: str) -> str:
    """The greatest id below this one."""
    at_ms, _, number = id_.partition("-")
    return f"{at_ms}-{int(number) - 1}" if int(number) else f"{int(at_ms) - 1}-{2**64 - 1}"


def with_gaps(entries: Iterator[JournalEntry], *, last_seq: int = 0) -> Iterator[JournalEntry | Gap]:
    """Yields the entries after ``last_seq``, with a :class:`Gap` wherever some are missing.

    One jump in the sequence is not a gap: a group whose data was lost continues above whatever its members have seen.
    """
    for entry in entries:
        if entry.seq > last_seq + 1 and entry.kind != "incarnation":
            yield Gap(last_seq, entry.seq)
        last_seq = entry.seq
        yield entry
