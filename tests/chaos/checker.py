"""Judges a history. The anomalies have the names of Jepsen's Kafka tests, where those have one.

The rules are stricter than there: within a tenure, messages of a partition, or of a key, come one after the other,
without a gap; from one tenure to the next nothing is ever skipped; and a message is repeated only where something went
wrong before it was acknowledged: its holder was killed, frozen or cut off, or the tenure did not end as planned.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import Literal

import attrs
from tests.chaos.history import History

from cobalance.lab.diary import DiaryEntry, HandlerRun, repeats
from cobalance.lab.message import NumberedMessage

Name = Literal[
    "lost-write",
    "unseen",
    "unpublished",
    "duplicate",
    "int-nonmonotonic-poll",
    "nonmonotonic-poll",
    "int-poll-skip",
    "poll-skip",
    "side-by-side",
    "inconsistent-offsets",
    "overlap",
    "token-fell",
    "committed-fell",
    "died",
    "unsettled",
]

MEANINGS: dict[Name, str] = {
    "lost-write": "a confirmed message was never processed, and is in no queue any more",
    "unseen": "messages are still in their queues, although everybody had time to work them off",
    "unpublished": "a message was processed that nobody sent",
    "duplicate": "a message was processed again, although nothing had gone wrong since",
    "int-nonmonotonic-poll": "within a tenure, a message came after a later one",
    "nonmonotonic-poll": "a message came for the first time after a later one of its partition, in another tenure",
    "int-poll-skip": "within a tenure, a message was passed over, and it came later or never",
    "poll-skip": "between two tenures, a message was passed over",
    "side-by-side": "within a tenure, a message was begun before the one before it had ended",
    "inconsistent-offsets": "one offset of a stream showed two messages, or one message had two offsets",
    "overlap": "two processes worked one partition at the same time, neither of them frozen or killed",
    "token-fell": "a later tenure of a partition has no higher token, or one token had two holders",
    "committed-fell": "a commit was accepted below one, or from a lower token than one, that was accepted before it was sent",
    "died": "a process ended by itself",
    "unsettled": "the group did not become even again after a fault",
}

FAULTY_ENDS = frozenset({"forced", "expired", "abandoned", "inherited"})
PLANNED = frozenset({"deploy"})
"""Events that are no faults and so excuse nothing."""

LOSSES = frozenset(
    {"redis-empty", "redis-stale", "master-kill", "master-freeze", "split-brain", "slot-kill", "slot-freeze"}
)
"""Faults in which Redis loses data, or may: a promoted replica need not have the last writes."""

UNSOUND = frozenset({"freeze", "nap", "stopped-clock"})
"""After these faults, a process may find itself at work when another one has begun."""

SLACK_NS = 10_000_000_000
"""The after-effects of a fault (a connection found dead, a requeued message) may show this much later."""


@attrs.frozen(kw_only=True)
class Anomaly:
    """Something that must not happen."""

    name: Name
    text: str


@attrs.frozen(kw_only=True)
class Verdict:
    """The verdict on a run."""

    anomalies: tuple[Anomaly, ...]
    published: int
    processed: int
    duplicates_excused: int
    tenures: int
    journal: Counter[str]
    events: Counter[str]
    troubles: Counter[str]

    def count(self, name: Name) -> int:
        """The number of anomalies of this name."""
        return sum(it.name == name for it in self.anomalies)


def judge(history: History) -> Verdict:
    """Checks for every anomaly."""
    by_partition: dict[str, list[HandlerRun]] = defaultdict(list)
    for it in history.runs:
        by_partition[it.partition].append(it)
    excuses = _Excuses(history)
    anomalies = [*_writes(history), *_commits(history), *_tokens(by_partition)]
    excused = 0
    for runs in by_partition.values():
        for ordered in _by_key(runs):
            anomalies += _order(ordered)
            anomalies += _side_by_side(ordered)
        anomalies += _overlaps(runs, excuses)
        again = list(repeats(runs))
        guilty = [pair for pair in again if not excuses.repeat(*pair)]
        excused += len(again) - len(guilty)
        anomalies += [Anomaly(name="duplicate", text=f"{later} after {first}") for first, later in guilty]
        anomalies += _offsets(runs)
    anomalies += [Anomaly(name="died", text=words) for words in history.failed]
    return Verdict(
        anomalies=tuple(anomalies),
        published=len(history.confirmed),
        processed=len({it.message for it in history.runs if it.ended_ns is not None}),
        duplicates_excused=excused,
        tenures=len({(it.partition, it.token) for it in history.runs}),
        journal=Counter(entry.kind for entry in history.entries),
        events=Counter(event.kind for event in history.events),
        troubles=Counter(trouble.kind for trouble in history.troubles),
    )


# -- writes ------------------------------------------------------------------------------------------------------------


def _writes(history: History) -> Iterator[Anomaly]:
    processed = {it.message for it in history.runs if it.ended_ns is not None}
    missing = sorted(history.confirmed - processed)
    if history.left_in_queues:
        yield Anomaly(name="unseen", text=f"{history.left_in_queues} messages, {len(missing)} of them never processed")
    else:
        yield from (Anomaly(name="lost-write", text=str(message)) for message in missing)
    for message in sorted({it.message for it in history.runs} - history.attempted):
        yield Anomaly(name="unpublished", text=str(message))


# -- order -------------------------------------------------------------------------------------------------------------


def _by_key(runs: Sequence[HandlerRun]) -> Iterable[list[HandlerRun]]:
    """The runs that are to be in order: those of a partition, or of each of its keys."""
    by_key: dict[str, list[HandlerRun]] = defaultdict(list)
    for it in runs:
        by_key[it.message.key].append(it)
    return by_key.values()


def _side_by_side(runs: Sequence[HandlerRun]) -> Iterator[Anomaly]:
    for earlier, later in pairwise(runs):
        if earlier.token == later.token and _end(earlier) > later.begun_ns:
            yield Anomaly(name="side-by-side", text=f"{earlier} and {later}")


def _order(runs: Sequence[HandlerRun]) -> Iterator[Anomaly]:
    """The order within one partition, or key, by the beginnings of runs."""
    handed_out = sorted({it.message for it in runs})
    position = {message: number for number, message in enumerate(handed_out)}
    seen: set[NumberedMessage] = set()
    highest, token = -1, 0
    latest = -1
    for it in runs:
        at, same = position[it.message], it.token == token
        if same and at < latest and it.message not in seen:
            yield Anomaly(name="int-nonmonotonic-poll", text=f"{it}")
        elif at < highest and it.message not in seen:
            yield Anomaly(name="nonmonotonic-poll", text=f"{it}")
        skipped = [message for message in handed_out[highest + 1 : at] if message not in seen]
        if skipped:
            yield Anomaly(name="int-poll-skip" if same else "poll-skip", text=f"{skipped[0]} before {it}")
        seen.add(it.message)
        highest, latest, token = max(highest, at), at, it.token


def _offsets(runs: Sequence[HandlerRun]) -> Iterator[Anomaly]:
    messages: dict[int, NumberedMessage] = {}
    offsets: dict[NumberedMessage, int] = {}
    for it in runs:
        if it.offset is None:
            continue
        if messages.setdefault(it.offset, it.message) != it.message:
            yield Anomaly(name="inconsistent-offsets", text=f"{it.offset} is {messages[it.offset]} and {it.message}")
        if offsets.setdefault(it.message, it.offset) != it.offset:
            yield Anomaly(name="inconsistent-offsets", text=f"{it.message} is at {offsets[it.message]} and {it.offset}")


# -- who ---------------------------------------------------------------------------------------------------------------


def _overlaps(runs: Sequence[HandlerRun], excuses: _Excuses) -> Iterator[Anomaly]:
    """Compares every handling with the one of another process that ends last before it begins."""
    latest: HandlerRun | None = None
    for it in runs:
        is_between = latest is not None and latest.process != it.process and _end(latest) > it.begun_ns
        if latest is not None and is_between and not excuses.overlap(latest, it):
            yield Anomaly(name="overlap", text=f"{latest} and {it}")
        if latest is None or _end(it) > _end(latest):
            latest = it


def _end(run: HandlerRun) -> int:
    """A handling that never ended was cancelled or killed at an unknown time: it is given the benefit of the doubt."""
    return run.begun_ns if run.ended_ns is None else run.ended_ns


def _tokens(by_partition: dict[str, list[HandlerRun]]) -> Iterator[Anomaly]:
    for partition, runs in by_partition.items():
        holders: dict[int, str] = {}
        for it in runs:
            if holders.setdefault(it.token, it.process) != it.process:
                yield Anomaly(
                    name="token-fell", text=f"{partition}: {it.token} of {holders[it.token]} and {it.process}"
                )
        for earlier, later in pairwise(_first_of_each_token(runs)):
            if later.token < earlier.token and _end(earlier) < later.begun_ns:
                yield Anomaly(name="token-fell", text=f"{partition}: {later.token} after {earlier.token}")


def _first_of_each_token(runs: Sequence[HandlerRun]) -> list[HandlerRun]:
    firsts: dict[int, HandlerRun] = {}
    for it in runs:
        firsts.setdefault(it.token, it)
    return list(firsts.values())


def _commits(history: History) -> Iterator[Anomaly]:
    """Accepted commits of one partition, by the time of their answers.

    What Redis forgot and no member claimed is gone: after a loss of data, only a commit of a tenure that was claimed
    since counts.
    """
    claimed: dict[tuple[str | None, int | None], int] = {}
    for entry in history.entries:
        if entry.kind == "claimed":
            claimed[entry.resource, entry.token] = history.epoch_ns + entry.at_ms * 1_000_000
    losses = [it for it in history.troubles if it.kind in LOSSES]
    accepted: dict[str, DiaryEntry] = {}
    for event in sorted(history.events, key=lambda it: it.at_ns):
        if event.kind != "committed":
            continue
        before = accepted.get(event.partition)
        if before is not None and event.token >= before.token and event.position < before.position:
            between = [it.since_ns for it in losses if before.at_ns <= it.until_ns and it.since_ns <= event.at_ns]
            if not between or claimed.get((before.partition, before.token), -1) >= max(between):
                yield Anomaly(name="committed-fell", text=f"{event} after {before}")
        if before is None or event.token >= before.token:
            accepted[event.partition] = event


# -- excuses -----------------------------------------------------------------------------------------------------------


class _Excuses:
    """The faults, and what they excuse."""

    def __init__(self, history: History) -> None:
        self._troubles = tuple(it for it in history.troubles if it.kind not in PLANNED)
        self._faulty = {
            (entry.resource, entry.token) for entry in history.entries if entry.kind in FAULTY_ENDS and entry.token
        }
        self._lost = {(it.partition, it.token) for it in history.events if it.kind == "lost"}

    def repeat(self, first: HandlerRun, again: HandlerRun) -> bool:
        """Whether the first handling may have ended without an acknowledgement."""
        tenure = first.partition, first.token
        return (
            first.ended_ns is None
            or tenure in self._faulty
            or tenure in self._lost
            or self._trouble(first.process, first.begun_ns, again.begun_ns)
        )

    def overlap(self, old: HandlerRun, new: HandlerRun) -> bool:
        """Whether the old holder was frozen, or its clock stood still, when the new one began."""
        return any(
            it.kind in UNSOUND
            and it.process == old.process
            and it.since_ns <= new.begun_ns
            and it.until_ns >= old.begun_ns
            for it in self._troubles
        )

    def _trouble(self, process: str, since_ns: int, until_ns: int) -> bool:
        return any(
            it.process in ("", process) and it.since_ns <= until_ns and it.until_ns + SLACK_NS >= since_ns
            for it in self._troubles
        )


def reached(verdict: Verdict, kinds: Iterable[str]) -> Iterator[str]:
    """Returns what is missing of everything that must have happened; without it the run proves less than it claims."""
    yield from (f"no {kind} happened" for kind in kinds if not verdict.troubles[kind])
    for kind in ("forced", "cancelled", "expired"):
        if not verdict.journal[kind]:
            yield f"no entry {kind} was written"
    if not verdict.events["fenced"]:
        yield "no commit was fenced"
