"""The group's journal, read: every transition of every resource and member, in the order in which they happened.

The coordinator's scripts write it, each transition in the very step that makes it. Reading it changes nothing: it does not
even settle what is due, as every verb does.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.keys import DEFAULT_PREFIX, journal_key
from cobalance.errors import ProtocolMismatch
from cobalance.names import validate_name

if TYPE_CHECKING:
    import threading
    from collections.abc import Iterator, Mapping

    from cobalance.coordinator.transport import Transport

BEGINNING = "0"
"""Before the first entry."""

PAGE = 500
"""How many entries are read at a time."""


@attrs.frozen(kw_only=True)
class JournalEntry:
    """One transition. What a kind of transition has nothing to say about is ``None``, or "" for the reason."""

    id: str
    """Its place in the stream: read on after this one."""
    seq: int
    """Contiguous within a group, so that a gap shows."""
    kind: str
    """joined, leaving, left, expired_member, graced, coordinator, incarnation, recovered, configured and barrier are about members or
    the group; added, granted, revoking, cancelled, released, abandoned, halted, resumed, forced, expired, inherited, withdrawn, claimed,
    reset, removing, removed and refused about a resource. Of repaired there is one about each member and resource of which a script spoke
    that died between its writes: ``reason`` is its status on record, or gone. A last one says why all was repaired (torn, or asked by an
    administrator), and after which ``seq`` that script's own entries begin."""
    at_ms: int
    """On the group's clock: Redis's time since 1970, kept from running backwards."""
    resource: str | None = None
    member: str | None = None
    token: int | None = None
    handover_id: int | None = None
    """The token of the tenure that ends: the same from ``revoking`` to the ``granted`` of its successor."""
    deadline_ms: int | None = None
    """When a revocation was, or a barrier is, to be forced; on the group's clock."""
    drain_ms: int | None = None
    """How long it was pending when it ended."""
    committed: int | None = None
    """The committed offset at the end of the tenure."""
    reason: str = ""
    handled: int | None = None
    """How often the handler ran in the tenure that was released or abandoned, where its holder could tell."""
    busy_ms: int | None = None
    """How long it ran in all."""
    late_ms: int | None = None
    """How much longer than a heartbeat interval nothing was heard of the holder, at most since its last report."""
    label: str | None = None
    """Host and process id of a member that joined; ``None`` in a journal of an older version, as are the next two."""
    instance_id: str | None = None
    """The one it joined with."""
    capacity: int | None = None
    """The one it joined with."""

    @classmethod
    def read(cls, id_: str, fields: Mapping[str, str]) -> JournalEntry:
        """From an entry of the stream.

        Raises:
            ProtocolMismatch: it is not of our form.
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
        )


def _given(word: str | None) -> str | None:
    return None if word == "-" else word


def _effort(text: str) -> list[int | None]:
    """Three numbers with slashes between them, each possibly empty; of any other form, nothing is known."""
    words = text.split("/")
    if len(words) != 3 or not all(word.isdecimal() or not word for word in words):
        return [None] * 3
    return [int(word) if word else None for word in words]


@attrs.frozen
class Gap:
    """Entries that should be there and are not: the stream was trimmed, or part of Redis's data was lost."""

    after_seq: int
    before_seq: int

    @property
    def missing(self) -> int:
        """How many."""
        return self.before_seq - self.after_seq - 1


class Journal:
    """Reads one group's journal."""

    def __init__(self, transport: Transport, group: str, *, key_prefix: str = DEFAULT_PREFIX) -> None:
        self._transport = transport
        self._key = journal_key(validate_name("group", group), validate_name("key prefix", key_prefix))

    def entries(self, after: str = BEGINNING) -> Iterator[JournalEntry]:
        """What is there now, after an entry's ``id``, oldest first.

        Raises:
            ServerError: it could not be read.
            ProtocolMismatch: an entry is not of our form.
        """
        while True:
            page = self._transport.read_stream(self._key, after, PAGE)
            for id_, fields in page:
                after = id_
                yield JournalEntry.read(id_, fields)
            if len(page) < PAGE:
                return

    def follow(self, after: str, stop: threading.Event, *, poll_ms: int = 200) -> Iterator[JournalEntry]:
        """The same, and then whatever comes, until the event is set."""
        while True:
            for entry in self.entries(after):
                after = entry.id
                yield entry
            if stop.wait(poll_ms / 1000):
                return


def with_gaps(entries: Iterator[JournalEntry], *, last_seq: int = 0) -> Iterator[JournalEntry | Gap]:
    """The entries, and a :class:`Gap` wherever some are missing after ``last_seq``.

    The seq jumps of its own accord in one place: a group whose data was lost goes on above whatever its members have seen.
    """
    for entry in entries:
        if entry.seq > last_seq + 1 and entry.kind != "incarnation":
            yield Gap(last_seq, entry.seq)
        last_seq = entry.seq
        yield entry
