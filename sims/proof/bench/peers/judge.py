"""The judge: what one change of a group cost, from nothing but when which process began and ended which message.

It knows no product. Who owns a partition is who last began one of its messages.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import attrs

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence


@attrs.frozen
class Handled:
    """A message's handler at one process."""

    process: int
    partition: int
    number: int
    begun: float
    ended: float | None
    """None if it was killed, or failed, before its end."""


@attrs.frozen
class MembershipChange:
    """Something that happened to the group."""

    kind: str
    """`joins`, `leaves` or `killed`."""
    process: int
    at: float
    """When the joining process had imported all it needs, or was asked to leave, or was killed."""
    until: float
    """When the group had settled, or was no longer waited for."""
    members: tuple[int, ...]
    """The processes that share the work afterwards."""


@attrs.frozen
class ChangeOutcome:
    """What a change cost."""

    kind: str
    moves: int
    """How often a partition went to another process."""
    minimum: int
    """How often that was needed: what the process held that is gone, and what even shares call for."""
    gaps_ms: tuple[float, ...]
    """For each move: the last message ended at the old owner → the first one begun at the new one."""
    resumed_ms: tuple[float, ...]
    """For each move: from the change to the first message begun at the new owner."""
    pause_ms: float | None
    """The longest time between two messages of a partition that did not move; None if all moved."""
    even_s: float | None
    """From the change to the first message of the last partition that moved; None if the shares did not become even."""
    waited_s: float
    """How long the group was watched."""
    stalled: int
    """Partitions that nobody worked at the end."""
    shares: tuple[int, ...]
    """Partitions of each process afterwards."""
    duplicates: int
    """Messages begun again."""
    lost: int
    """Messages published since the last change whose handler never ended, anywhere."""
    reordered: int
    """Messages begun for the first time after a later one of their partition."""
    overlapping: int
    """Messages begun while another process's handler of the same partition still ran."""


@attrs.frozen
class Story:
    """All that was seen of one group."""

    partitions: int
    handled: tuple[Handled, ...]
    changes: tuple[MembershipChange, ...]
    published: dict[tuple[int, int], float]
    """(partition, number) → when."""

    def outcomes(self) -> list[ChangeOutcome]:
        """One for each change, in their order."""
        begun = sorted(self.handled, key=lambda it: it.begun)
        repeated, disordered = _out_of_turn(begun)
        overlapping = _overlapping(begun)
        ended = {(it.partition, it.number) for it in begun if it.ended is not None}
        lost = [at for message, at in self.published.items() if message not in ended]
        outcomes = []
        for number, change in enumerate(self.changes):
            # What happened between two changes belongs to the one before; all of the beginning and the end, to the first and last.
            since = float("-inf") if number == 0 else change.at
            before = float("inf") if number == len(self.changes) - 1 else self.changes[number + 1].at
            outcomes.append(
                attrs.evolve(
                    judge(self.partitions, begun, change),
                    duplicates=sum(since <= it < before for it in repeated),
                    reordered=sum(since <= it < before for it in disordered),
                    overlapping=sum(since <= it < before for it in overlapping),
                    lost=sum(_published_in(at, self.changes, number) for at in lost),
                )
            )
        return outcomes


def judge(partitions: int, handled: Sequence[Handled], change: MembershipChange) -> ChangeOutcome:
    """Judges one change by the messages of all partitions, which are in the order of their beginnings."""
    lines = [[it for it in handled if it.partition == number] for number in range(partitions)]
    owners = [_owner(line, change.at) for line in lines]
    moves = [move for line, owner in zip(lines, owners, strict=True) for move in _moves(line, owner, change)]
    after = Counter(owner for line in lines if (owner := _owner(line, change.until)) in change.members)
    shares = [after[process] for process in change.members]
    stalled = partitions - sum(shares)
    is_even = not stalled and max(shares) - min(shares) <= 1
    stayed = [
        pause
        for line, owner in zip(lines, owners, strict=True)
        if owner in change.members and not _moves(line, owner, change)
        for pause in _pauses(line, change)
    ]
    return ChangeOutcome(
        kind=change.kind,
        moves=len(moves),
        minimum=minimum_moves(partitions, owners, change.members),
        gaps_ms=tuple((new.begun - old) * 1000 for old, new in moves if old is not None),
        resumed_ms=tuple((new.begun - change.at) * 1000 for _, new in moves),
        pause_ms=max(stayed) * 1000 if stayed else None,
        even_s=max((new.begun - change.at for _, new in moves), default=0.0) if is_even else None,
        waited_s=change.until - change.at,
        stalled=stalled,
        shares=tuple(sorted(shares, reverse=True)),
        duplicates=0,
        lost=0,
        reordered=0,
        overlapping=0,
    )


def minimum_moves(partitions: int, owners: Iterable[int | None], members: Collection[int]) -> int:
    """Partitions without an owner among the members, and what each has above its even share; who has most keeps most."""
    held = Counter(owner for owner in owners if owner in members)
    least, more = divmod(partitions, len(members))
    counts = sorted((held[process] for process in members), reverse=True)
    surplus = sum(max(0, count - least - (place < more)) for place, count in enumerate(counts))
    return partitions - sum(counts) + surplus


def _owner(line: Sequence[Handled], at: float) -> int | None:
    return next((it.process for it in reversed(line) if it.begun <= at), None)


def _moves(line: Sequence[Handled], owner: int | None, change: MembershipChange) -> list[tuple[float | None, Handled]]:
    """When the old owner's last message ended, and the new owner's first one."""
    moves = []
    for it in line:
        if change.at < it.begun <= change.until and it.process != owner:
            ended = [o.ended for o in line if o.process == owner and o.ended is not None and o.begun < it.begun]
            moves.append((max(ended, default=None), it))
            owner = it.process
    return moves


def _pauses(line: Sequence[Handled], change: MembershipChange) -> list[float]:
    """Between messages, as far as it is after the change; the last one may still go on."""
    pauses, free_since = [], change.at
    for it in line:
        if it.begun <= change.at:
            free_since = it.ended or it.begun
        elif it.begun <= change.until:
            pauses.append(it.begun - free_since)
            free_since = it.ended or it.begun
    return [*pauses, change.until - free_since]


def _out_of_turn(handled: Sequence[Handled]) -> tuple[list[float], list[float]]:
    """When messages were begun again, and when ones were begun after a later one of their partition."""
    repeated, disordered = [], []
    seen: set[tuple[int, int]] = set()
    highest: dict[int, int] = {}
    for it in handled:
        if (it.partition, it.number) in seen:
            repeated.append(it.begun)
            continue
        seen.add((it.partition, it.number))
        if it.number < highest.get(it.partition, -1):
            disordered.append(it.begun)
        highest[it.partition] = max(it.number, highest.get(it.partition, -1))
    return repeated, disordered


def _overlapping(handled: Sequence[Handled]) -> list[float]:
    """When messages were begun at one process while another was at work on the partition."""
    ends: dict[int, dict[int, float]] = {}
    found = []
    for it in handled:
        line = ends.setdefault(it.partition, {})
        if any(end > it.begun for process, end in line.items() if process != it.process):
            found.append(it.begun)
        if it.ended is not None:
            line[it.process] = max(it.ended, line.get(it.process, it.ended))
    return found


def _published_in(at: float, changes: Sequence[MembershipChange], number: int) -> bool:
    """Between the end of the change before this one and its own: what a crash loses was published shortly before it."""
    since = changes[number - 1].until if number else float("-inf")
    until = changes[number].until if number < len(changes) - 1 else float("inf")
    return since < at <= until
