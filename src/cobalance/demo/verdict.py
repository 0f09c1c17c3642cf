"""The verdict on every message and every move. Pure: the same evidence gives the same verdict."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

import attrs

from cobalance.demo.evidence import Evidence, ObservedChange
from cobalance.demo.tenures import ObservedTenure, Tenures
from cobalance.errors import counted
from cobalance.journal import JournalEntry
from cobalance.lab.diary import HandlerRun, repeats
from cobalance.lab.message import NumberedMessage
from cobalance.ownership import BEGINNINGS, CUT_SHORT, ENDINGS

INTERRUPTIONS = ENDINGS | {"revoking"}
"""After one of these a resource is no longer worked as before."""

TRANSITIONS = INTERRUPTIONS | BEGINNINGS | {"cancelled"}


@attrs.frozen
class ChangeVerdict:
    name: str
    kind: str
    members_before: int
    members_after: int
    moves: int
    """Resources that got a new tenure, at any holder."""
    minimum: int
    """The fewest possible moves."""
    interrupted: tuple[str, ...]
    """Partitions that were asked back or taken."""
    converged_ms: int
    """From the join or leave as received by the group, or from the kill itself, to the last transition."""
    even: bool
    """Whether the group was even and quiet afterwards."""


@attrs.frozen
class Gaps:
    """Handover gaps: from the end of the old owner's last message to the start of the new owner's first one."""

    milliseconds: tuple[float, ...] = ()

    def percentile(self, share: float) -> float | None:
        """By nearest rank; None if there are no gaps."""
        if not self.milliseconds:
            return None
        ordered = sorted(self.milliseconds)
        return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


@attrs.frozen(kw_only=True)
class DemoVerdict:
    published: int
    processed: int
    """Distinct messages."""
    lost: int
    unexpected: int
    """Processed, but never published."""
    left_in_queues: int
    """Still in RabbitMQ after all members have left."""
    reordered_planned: int
    reordered_total: int
    duplicates_from_crash: int
    duplicates_otherwise: int
    overlaps: int
    """Messages begun by a new owner before the old one had ended its last."""
    key_overlaps: int
    """Messages begun while another one of their key was handled."""
    changes: tuple[ChangeVerdict, ...]
    partitions: int
    never_interrupted: int
    gaps_planned: Gaps
    gaps_crash: Gaps
    forced: int
    """Tenures that ended neither by a drain nor by the crash."""
    failures: tuple[str, ...] = ()
    """The broken promises, if any."""

    @property
    def moves(self) -> int:
        return sum(change.moves for change in self.changes)

    @property
    def minimum(self) -> int:
        return sum(change.minimum for change in self.changes)


def judge(evidence: Evidence) -> DemoVerdict:
    replayed = Tenures()
    changes = tuple(_judge_changes(evidence, replayed))
    history = _History(replayed.tenures, evidence)
    ordered = sorted(evidence.runs, key=lambda run: run.begun_ns)
    processed, expected = {run.message for run in ordered}, evidence.published
    reordered = [history.follows_crash(run) for run in _out_of_order(ordered)]
    repeated = [history.is_crash_duplicate(first, again) for first, again in repeats(ordered)]
    touched = {name for change in changes for name in change.interrupted}
    verdict = DemoVerdict(
        published=len(expected),
        processed=len(processed & expected),
        lost=len(expected - processed),
        left_in_queues=evidence.left_in_queues,
        reordered_planned=reordered.count(False),
        reordered_total=len(reordered),
        duplicates_from_crash=repeated.count(True),
        duplicates_otherwise=repeated.count(False),
        unexpected=len(processed - expected),
        overlaps=history.overlaps(),
        key_overlaps=sum(1 for _ in _beside_their_key(ordered)),
        changes=changes,
        partitions=len(evidence.partitions),
        never_interrupted=len(set(evidence.partitions) - touched),
        gaps_planned=history.gaps(planned=True),
        gaps_crash=history.gaps(planned=False),
        forced=sum(tenure.ended_by in CUT_SHORT for tenure in replayed.tenures),
    )
    return attrs.evolve(verdict, failures=tuple(_failures(evidence, verdict)))


def _failures(evidence: Evidence, verdict: DemoVerdict) -> Iterator[str]:
    """The demo's promises that were broken, with what was found instead."""
    counts = {
        "messages were lost": verdict.lost,
        "messages were reordered without a crash to blame": verdict.reordered_planned,
        "duplicates do not come from the kill": verdict.duplicates_otherwise,
        "messages were processed that nobody published": verdict.unexpected,
        "processed messages were not acknowledged and would come again": verdict.left_in_queues,
        "messages were begun before the former owner had ended": verdict.overlaps,
        "messages were begun before the one before them with their key had ended": verdict.key_overlaps,
    }
    for words, count in counts.items():
        if count:
            yield f"{count} {words}"
    for change in verdict.changes:
        if not change.even:
            yield f"{change.name}: the group did not become even and quiet"
        if evidence.mode == "cooperative":
            yield from _excesses(change)


def _excesses(change: ChangeVerdict) -> Iterator[str]:
    """Needless moves, and partitions that were paused and then kept."""
    if change.moves != change.minimum:
        yield f"{change.name}: {counted(change.moves, 'move')} where {counted(change.minimum, 'suffices', 'suffice')}"
    elif len(change.interrupted) > change.minimum:
        yield f"{change.name}: {counted(len(change.interrupted), 'partition was', 'partitions were')} paused where {change.minimum} had to move"


# -- changes -----------------------------------------------------------------------------------------------------------


def _judge_changes(evidence: Evidence, tenures: Tenures) -> Iterator[ChangeVerdict]:
    """Replays the whole journal, judging each change on the way."""
    entries = list(evidence.entries)
    for change in evidence.changes:
        _replay(entries, tenures, change.since_seq)
        owners, members = tenures.owners, len(tenures.members)
        during = _replay(entries, tenures, change.until_seq)
        yield ChangeVerdict(
            name=change.name,
            kind=change.kind,
            members_before=members,
            members_after=len(tenures.members),
            moves=sum(tenure.began_seq > change.since_seq for tenure in tenures.tenures),
            minimum=minimum_moves(owners, tenures.members),
            interrupted=tuple(sorted({entry.resource or "" for entry in during if entry.kind in INTERRUPTIONS})),
            converged_ms=_converged_ms(change, during),
            even=tenures.is_settled(len(evidence.partitions), len(tenures.members)),
        )
    _replay(entries, tenures, entries[-1].seq if entries else 0)


def _replay(entries: list[JournalEntry], tenures: Tenures, until_seq: int) -> list[JournalEntry]:
    """Applies and removes the entries up to a sequence number, and returns them."""
    count = sum(entry.seq <= until_seq for entry in entries)
    applied = entries[:count]
    del entries[:count]
    for entry in applied:
        tenures.apply(entry)
    return applied


def _converged_ms(change: ObservedChange, during: Sequence[JournalEntry]) -> int:
    heard = [entry.at_ms for entry in during if entry.kind in {"joined", "leaving"}]
    began = heard[0] if heard and change.kind != "crash" else change.at_ms
    return max((entry.at_ms for entry in during if entry.kind in TRANSITIONS), default=began) - began


def minimum_moves(owners: Mapping[str, str], members: Iterable[str]) -> int:
    """How many resources must change owners at least, so that these members hold them evenly within one.

    With n resources and m members, n mod m members hold one more than the others. A member can keep what it has up to
    its share, so the larger shares belong to members that hold the most. Whatever cannot be kept has to move.
    """
    present = sorted(set(members))
    if not present:
        return 0
    floor, larger_shares = divmod(len(owners), len(present))
    held = Counter(owner for owner in owners.values() if owner in present)
    kept = sum(min(held[member], floor) for member in present)
    kept += min(larger_shares, sum(held[member] > floor for member in present))
    return len(owners) - kept


# -- messages ----------------------------------------------------------------------------------------------------------


def _out_of_order(ordered: Sequence[HandlerRun]) -> Iterator[HandlerRun]:
    """Messages first processed after a later one of their key. Repeated ones count as duplicates instead."""
    latest: Counter[str] = Counter()
    seen: set[NumberedMessage] = set()
    for run in ordered:
        key, number = run.message.key, run.message.number
        if run.message not in seen and number < latest[key]:
            yield run
        seen.add(run.message)
        latest[key] = max(latest[key], number)


def _beside_their_key(ordered: Sequence[HandlerRun]) -> Iterator[HandlerRun]:
    """Runs that began before the last one of their key had ended, in one tenure; others are overlaps."""
    ended_ns: Counter[tuple[str, int, str]] = Counter()
    for run in ordered:
        key = (run.partition, run.token, run.message.key)
        if run.begun_ns < ended_ns[key]:
            yield run
        ended_ns[key] = max(ended_ns[key], run.ended_ns or run.begun_ns)


class _History:
    """The tenures, and what was processed in each."""

    def __init__(self, tenures: Sequence[ObservedTenure], evidence: Evidence) -> None:
        self._killed = evidence.killed
        self._since = evidence.changes[0].since_seq if evidence.changes else 0
        self._successions: list[tuple[ObservedTenure, ObservedTenure]] = []
        self._before: dict[tuple[str, int], ObservedTenure] = {}
        self._tenures = {(tenure.resource, tenure.token): tenure for tenure in tenures}
        self._worked: defaultdict[tuple[str, int], list[HandlerRun]] = defaultdict(list)
        for run in evidence.runs:
            self._worked[run.partition, run.token].append(run)
        last: dict[str, ObservedTenure] = {}
        for tenure in tenures:
            if tenure.resource in last:
                self._before[tenure.resource, tenure.token] = last[tenure.resource]
                self._successions.append((last[tenure.resource], tenure))
            last[tenure.resource] = tenure

    def follows_crash(self, run: HandlerRun) -> bool:
        """Whether the previous tenure was not handed over but taken."""
        before = self._before.get((run.partition, run.token))
        return before is not None and not before.planned_end

    def is_crash_duplicate(self, first: HandlerRun, again: HandlerRun) -> bool:
        """Whether the crash explains the duplicate: the killed member had processed the message in the very tenure that
        its crash ended, and RabbitMQ, which got no acknowledgement, redelivered it to a later owner.
        """
        tenure = self._tenures.get((first.partition, first.token))
        return (
            tenure is not None
            and self._killed is not None
            and first.member == tenure.member == self._killed
            and tenure.ended_by == "expired"
            and again.redelivered
            and again.token > first.token
        )

    def gaps(self, *, planned: bool) -> Gaps:
        """Gaps of the handovers since the first change in which both sides processed something."""
        return Gaps(
            tuple(
                (self._begun_ns(new) - self._ended_ns(old)) / 1e6
                for old, new in self._successions
                if new.began_seq > self._since and old.planned_end is planned and self._runs(old) and self._runs(new)
            )
        )

    def overlaps(self) -> int:
        """Messages that a new owner began before the old one had ended its last."""
        return sum(
            run.begun_ns < self._ended_ns(old)
            for old, new in self._successions
            if self._runs(old)
            for run in self._runs(new)
        )

    def _runs(self, tenure: ObservedTenure) -> list[HandlerRun]:
        return self._worked.get((tenure.resource, tenure.token), [])

    def _begun_ns(self, tenure: ObservedTenure) -> int:
        return min(run.begun_ns for run in self._runs(tenure))

    def _ended_ns(self, tenure: ObservedTenure) -> int:
        return max(run.ended_ns or 0 for run in self._runs(tenure))
