"""The past of a group as its journal has it: who worked each resource from when to when, and why that changed.

:class:`~cobalance.ownership.Ownership` replays the journal; what is kept here is how its answer changed. Nothing is
kept that Redis does not have, so every dashboard shows the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain
from threading import Lock
from typing import TYPE_CHECKING, Literal

import attrs

from cobalance.errors import counted
from cobalance.journal import Gap, JournalFollower, with_gaps
from cobalance.operate.member_past import MemberPast
from cobalance.operate.moves import CAUSES, Account, Moves, is_same_list
from cobalance.operate.timings import Timings
from cobalance.operate.wording import Wording, halted, ordered, resumed
from cobalance.ownership import BEGINNINGS, CUT_SHORT, ENDINGS, Ownership, Standing

if TYPE_CHECKING:
    from cobalance.journal import Journal, JournalEntry

State = Literal["held", "draining", "graced", "free", "halted"]
"""draining: held, and to be handed over. graced: kept for its holder's return. free: worked by nobody."""

PLACES = frozenset({"graced", "repaired"})
"""Entries about a member by which what it holds comes to be kept for its return, or is no longer."""

MOST_KEPT = 200_000
"""Spans and happenings. Of a longer journal, only the newer half is kept."""


@attrs.define(kw_only=True)
class Span:
    """One resource in one state, for a time."""

    seq: int
    """Of the journal's entry that began or ended it last."""
    state: State
    owner: str | None
    token: int | None
    from_ms: int
    to_ms: int | None = None
    """None while it lasts."""
    why: str
    """Why it began, in words."""
    end: str | None = None
    """The kind of entry that ended it."""


@attrs.define(kw_only=True)
class Happening:
    """A change of the group, and what followed from it. Or entries that are missing."""

    id: int
    """The sequence number of its entry."""
    seq: int
    """Of the newest entry that followed from it."""
    at_ms: int
    kind: str
    what: str
    moves: int = 0
    """Tenures that began because of it."""
    cut_short: int = 0
    """Tenures that were ended by force, or given up."""
    longest_drain_ms: int = 0


class Handovers:
    """Reads one group's journal on and on. Any number of threads may ask."""

    def __init__(self, journal: Journal, *, most_kept: int = MOST_KEPT) -> None:
        self._follower, self._most = JournalFollower(journal), most_kept
        self._ownership, self._spans, self._met = Ownership(), 0, 0
        self._at_ms = 0
        self._wording = Wording(self.who)
        self._moves: dict[str, Moves] = {}
        self._account = Account()
        self._instances: dict[str, str] = {}
        self._causes: dict[int, Happening] = {}
        self.numbers: dict[str, int] = {}
        """Member → how many the journal named before it, by which it has its colour."""
        self.members: dict[str, MemberPast] = {}
        """Member → what became of it, also of those that are gone, as far back as the rest reaches."""
        self.timings = Timings()
        self.lock = Lock()
        """Held while the journal is read on, and by whoever looks at the rest."""
        self.seq = 0
        """Of the newest entry."""
        self.first_ms: int | None = None
        """How far this reaches back."""
        self.tracks: dict[str, list[Span]] = {}
        """Resource → its spans, in order, without gaps but for what is not known."""
        self.happenings: list[Happening] = []

    def read(self) -> None:
        """Takes in what is new. Call it with the lock.

        Raises:
            ServerError: the journal could not be read.
        """
        for entry in with_gaps(self._follower.entries(), last_seq=self.seq):
            if isinstance(entry, Gap):
                self._skip(entry)
            else:
                self._take(entry)
        if self._spans + len(self.happenings) > self._most:
            self._forget_older_half()

    def account(self, resource: str | None = None) -> Account:
        """What explanations are made from."""
        moves = self._moves.get(resource or "", Moves())
        return attrs.evolve(self._account, resource=resource, moves=moves)

    def who(self, member: str | None) -> str:
        """How people know a member, also one that is gone."""
        if member is None:
            return "nobody"
        label, instance = self._account.labels.get(member), self._instances.get(member)
        return f"{instance} on {label}" if instance and label else label or member

    def label(self, member: str) -> str | None:
        """Host and process id of a member, as it joined with."""
        return self._account.labels.get(member)

    def instance_id(self, member: str) -> str | None:
        """The instance id that a member joined with."""
        return self._instances.get(member)

    def _take(self, entry: JournalEntry) -> None:
        self.seq, self._at_ms = entry.seq, entry.at_ms
        if self.first_ms is None:
            self.first_ms = entry.at_ms
        if entry.member is not None:
            self._take_member(entry, entry.member)
        elif entry.kind == "incarnation" and entry.reason != "seen":  # those who are still there join again
            for past in self.members.values():
                past.ended = past.ended or entry
        self.timings.take(entry)
        entry = self._account.completed(entry)
        self._note(entry)
        self._account.take(entry)
        self._ownership.apply(entry, entry.at_ms)
        if entry.resource is not None:
            moves = self._moves.setdefault(entry.resource, Moves())
            moves.take(entry, self._account.last_change)
            self._count_move(entry, moves)
        for name in self._touched(entry):
            self._follow(name, entry)

    def _take_member(self, entry: JournalEntry, member: str) -> None:
        if member not in self.numbers:
            self.numbers[member], self._met = self._met, self._met + 1
        if entry.instance_id is not None:
            self._instances[member] = entry.instance_id
        self.members.setdefault(member, MemberPast()).take(entry)

    def _skip(self, gap: Gap) -> None:
        """What was going on before entries that are missing is not known to have gone on."""
        self._account.missing += gap.missing
        if self.seq == 0:  # only the beginning is gone
            return
        at_ms = self._at_ms
        words = f"{counted(gap.missing, 'entry of the journal is', 'entries of the journal are')} missing"
        self.happenings.append(Happening(id=gap.before_seq, seq=gap.before_seq, at_ms=at_ms, kind="gap", what=words))
        for track in self.tracks.values():
            if track and track[-1].to_ms is None:
                track[-1].to_ms, track[-1].seq = at_ms, gap.before_seq
        self._ownership = Ownership()

    def _note(self, entry: JournalEntry) -> None:
        """Remembers a change of the group, or counts a move to the change that it follows from."""
        if entry.kind in CAUSES:
            last = self._account.last_change
            if last is not None and last.seq in self._causes and is_same_list(entry, last):
                self._causes[entry.seq] = self._causes[last.seq]
            else:
                what = self._sentence(entry)
                found = Happening(id=entry.seq, seq=entry.seq, at_ms=entry.at_ms, kind=entry.kind, what=what)
                self.happenings.append(found)
                self._causes[entry.seq] = found
        elif entry.kind == "halted":
            self._note_other(entry, f"{entry.resource} {halted(entry)}")
        elif entry.by is not None:  # settings, or offsets, however many
            self._note_other(entry, _capital(ordered(entry)))

    def _note_other(self, entry: JournalEntry, what: str) -> None:
        """What nothing is assigned again after."""
        last = self.happenings[-1] if self.happenings else None
        if last is not None and (last.kind, last.what) == (entry.kind, what) and entry.kind == "reset":
            last.seq = entry.seq
        else:
            self.happenings.append(
                Happening(id=entry.seq, seq=entry.seq, at_ms=entry.at_ms, kind=entry.kind, what=what)
            )

    def _count_move(self, entry: JournalEntry, moves: Moves) -> None:
        is_asked = moves.revoked is not None and moves.revoked.handover_id == entry.handover_id
        cause = moves.revoked_after if is_asked else self._account.last_change
        found = self._causes.get(cause.seq) if cause is not None else None
        if found is None:
            return
        found.seq = entry.seq
        found.moves += entry.kind in BEGINNINGS
        found.cut_short += entry.kind in CUT_SHORT
        if entry.kind in ENDINGS:
            found.longest_drain_ms = max(found.longest_drain_ms, entry.drain_ms or 0)

    def _sentence(self, entry: JournalEntry) -> str:
        if entry.label is not None and entry.member is not None:  # it has just told who it is
            self._account.labels[entry.member] = entry.label
        return _capital(self._wording.cause(entry))

    def _touched(self, entry: JournalEntry) -> Iterable[str]:
        if entry.resource is not None:
            return (entry.resource,)
        if entry.kind == "incarnation":
            return [*self.tracks]
        if entry.kind not in PLACES:
            return ()
        return [name for name, it in self._ownership.resources.items() if it.owner == entry.member]

    def _follow(self, name: str, entry: JournalEntry) -> None:
        """Begins another span if what the replay says of the resource has changed."""
        track = self.tracks.setdefault(name, [])
        standing = self._ownership.resources.get(name)
        state = None if standing is None else self._state(standing)
        owner = standing.owner or None if standing is not None else None
        token = standing.token or None if standing is not None else None
        last = track[-1] if track and track[-1].to_ms is None else None
        if last is not None:
            if (state, owner, token) == (last.state, last.owner, last.token):
                return
            last.to_ms, last.seq, last.end = entry.at_ms, entry.seq, entry.kind
        if state is not None:
            why = self._why(name, state, entry)
            track.append(Span(seq=entry.seq, state=state, owner=owner, token=token, from_ms=entry.at_ms, why=why))
            self._spans += 1

    def _state(self, standing: Standing) -> State:
        if standing.halted:
            return "halted"
        if not standing.owner:
            return "free"
        if self._ownership.members.get(standing.owner) == "graced":
            return "graced"
        return "held" if standing.pending_since is None else "draining"

    def _why(self, name: str, state: State, entry: JournalEntry) -> str:
        moves = self._moves.get(name, Moves())
        if entry.kind == "repaired":
            return "Its record was repaired after a script had died"
        if entry.kind in BEGINNINGS:
            return self._wording.begun(moves)
        if entry.kind in ENDINGS:
            return _capital(self._wording.ended(moves, entry))
        if state == "draining":
            return f"It is asked back, {self._wording.asked_back(moves)}"
        told = {
            "cancelled": "It stays where it is after all",
            "halted": f"It {halted(entry)}",
            "resumed": f"It {resumed(entry)}",
            "added": "It came onto the list",
        }
        return told.get(entry.kind) or (_capital(self._wording.cause(entry)) if entry.kind in CAUSES else entry.kind)

    def _forget_older_half(self) -> None:
        ends = [span.to_ms for track in self.tracks.values() for span in track if span.to_ms is not None]
        known = sorted(chain(ends, (it.at_ms for it in self.happenings)))
        limit_ms = known[len(known) // 2]
        for name in [*self.tracks]:
            kept = [span for span in self.tracks[name] if span.to_ms is None or span.to_ms > limit_ms]
            self.tracks[name] = kept
            if not kept:
                del self.tracks[name]
        self.happenings = [it for it in self.happenings if it.at_ms > limit_ms]
        self._causes = {seq: it for seq, it in self._causes.items() if it.at_ms > limit_ms}
        there = self.tracks.keys() | self._ownership.resources.keys()
        self._moves = {name: it for name, it in self._moves.items() if name in there}
        self._spans, self.first_ms = sum(map(len, self.tracks.values())), limit_ms
        self._forget_members(limit_ms)

    def _forget_members(self, limit_ms: int) -> None:
        """Those that were gone by then, and that nothing names any more. An end may be among entries that are missing."""
        named = {span.owner for track in self.tracks.values() for span in track}
        for member, past in [*self.members.items()]:
            is_gone = past.ended is not None or member not in self._ownership.members
            if is_gone and past.seen_ms <= limit_ms and member not in named:
                for of_members in (self.members, self.numbers, self._instances, self._account.labels):
                    of_members.pop(member, None)


def overlapping(track: list[Span], from_ms: int, to_ms: int) -> Iterator[Span]:
    """The spans of a track in a window of time, newest first; such as took no time at all are left out."""
    for span in reversed(track):
        if span.to_ms is not None and span.to_ms < from_ms:
            return
        if span.from_ms <= to_ms and span.to_ms != span.from_ms:
            yield span


def _capital(words: str) -> str:
    """The first letter of a sentence; but a name stays as it is."""
    return words[:1].upper() + words[1:] if words.startswith(("it ", "resources ", "the ")) else words
