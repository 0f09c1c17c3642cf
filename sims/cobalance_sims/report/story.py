"""The churn story of one run: who had which resource from when to when, as pieces that can be drawn."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal

import attrs

from cobalance.ownership import BEGINNINGS, CUT_SHORT, ENDINGS
from cobalance_sims.outcomes.event import Event
from cobalance_sims.outcomes.repairs import undone

State = Literal["held", "draining", "free"]

MOST_LANES = 24
IN_WINDOW = 80
"""The approximate maximum of handovers in the window that is shown."""

_OF_OWNER = ENDINGS | {"revoking", "cancelled"}
_CHANGES = BEGINNINGS | _OF_OWNER | {"removed"}

_ABOUT_MEMBERS = {"joined": "joins", "leaving": "leaves", "expired_member": "is given up", "graced": "is waited for"}


@attrs.frozen
class Segment:
    """A stretch of one resource's life."""

    resource: str
    owner: str
    """Empty while it is free."""
    state: State
    start_ms: int
    end_ms: int


@attrs.frozen
class Mark:
    """Something that happened at one moment: to a resource, or to a member (then without resource)."""

    at_ms: int
    kind: str
    resource: str
    member: str


@attrs.frozen
class Timeline:
    """A stretch of a run."""

    run: str
    start_ms: int
    end_ms: int
    pieces: tuple[Segment, ...]
    marks: tuple[Mark, ...]
    resources: tuple[str, ...]
    """One lane each, in order; perhaps not all there are."""
    total_resources: int
    owners: tuple[str, ...]

    @property
    def length_ms(self) -> int:
        """Length of what is shown."""
        return self.end_ms - self.start_ms

    def time_ms(self, state: State) -> int:
        """Time in a state, over all lanes together."""
        return sum(piece.end_ms - piece.start_ms for piece in self.pieces if piece.state == state)

    def count(self, *kinds: str) -> int:
        """Number of marks of these kinds."""
        return sum(mark.kind in kinds for mark in self.marks)


@attrs.define
class _Lane:
    owner: str = ""
    since_ms: int = 0
    revoking_ms: int | None = None
    is_known: bool = False


class _Teller:
    def __init__(self, begin_ms: int) -> None:
        self._begin_ms = begin_ms
        self._lanes: dict[str, _Lane] = {}
        self.pieces: list[Segment] = []
        self.marks: list[Mark] = []

    def take(self, event: Event) -> None:
        if event.kind in _ABOUT_MEMBERS:
            self.marks.append(Mark(event.at_ms, event.kind, "", event.member or ""))
        if event.resource and event.kind in _CHANGES:
            self._change(event, event.resource)

    def _change(self, event: Event, resource: str) -> None:
        lane = self._lanes.setdefault(resource, _Lane(since_ms=self._begin_ms))
        if not lane.is_known and event.kind in _OF_OWNER:
            lane.owner = event.member or ""  # the observation begins in the middle of a tenure
        lane.is_known = True
        self._close(resource, lane, event.at_ms)
        if event.kind in BEGINNINGS:
            lane.owner = event.member or ""
        elif event.kind == "revoking":
            lane.revoking_ms = event.at_ms
        else:
            self.marks.append(Mark(event.at_ms, event.kind, resource, event.member or ""))
        if event.kind in ENDINGS:
            lane.owner = ""
        if event.kind == "removed":
            del self._lanes[resource]

    def _close(self, resource: str, lane: _Lane, at_ms: int) -> None:
        state: State = "free" if not lane.owner else "draining" if lane.revoking_ms is not None else "held"
        is_before_all = state == "free" and lane.since_ms == self._begin_ms
        if at_ms > lane.since_ms and not is_before_all:
            self.pieces.append(Segment(resource, lane.owner, state, lane.since_ms, at_ms))
        lane.since_ms, lane.revoking_ms = at_ms, None

    def end(self, at_ms: int) -> None:
        for resource, lane in self._lanes.items():
            self._close(resource, lane, at_ms)


def tell(run: str, events: Sequence[Event]) -> Timeline | None:
    """Returns the most eventful stretch of a run; None if nothing was ever held."""
    if not events:
        return None
    teller, gone = _Teller(events[0].at_ms), undone(events)
    for event in events:
        if event.seq not in gone:
            teller.take(event)
    teller.end(events[-1].at_ms + 1)
    start_ms, end_ms = _window(teller.marks, events[0].at_ms, events[-1].at_ms)
    pieces = [_clipped(it, start_ms, end_ms) for it in teller.pieces if it.end_ms > start_ms and it.start_ms < end_ms]
    marks = [mark for mark in teller.marks if start_ms <= mark.at_ms <= end_ms]
    everything = sorted({piece.resource for piece in pieces}, key=_natural)
    shown = _busiest(everything, marks)
    kept = [piece for piece in pieces if piece.resource in shown]
    if not any(piece.owner for piece in kept):
        return None
    return Timeline(
        run=run,
        start_ms=start_ms,
        end_ms=end_ms,
        pieces=tuple(kept),
        marks=tuple(mark for mark in marks if not mark.resource or mark.resource in shown),
        resources=tuple(it for it in everything if it in shown),
        total_resources=len(everything),
        owners=tuple(_in_order_of_appearance(kept)),
    )


def _window(marks: list[Mark], first_ms: int, last_ms: int) -> tuple[int, int]:
    """The shortest stretch in which most went wrong, with as many handovers as can be distinguished."""
    ends = [mark for mark in marks if mark.kind in ENDINGS]
    if len(ends) <= IN_WINDOW:
        return first_ms, last_ms + 1
    troubles = [0]
    for mark in ends:
        troubles.append(troubles[-1] + (mark.kind in CUT_SHORT or mark.kind == "expired"))
    starts = range(len(ends) - IN_WINDOW)

    def worth(at: int) -> tuple[int, int]:
        within = troubles[at + IN_WINDOW] - troubles[at]
        return min(within, 6), ends[at].at_ms - ends[at + IN_WINDOW - 1].at_ms

    best = max(starts, key=worth)
    start_ms, end_ms = ends[best].at_ms, ends[best + IN_WINDOW - 1].at_ms
    margin_ms = max((end_ms - start_ms) // 12, 2_000)
    return max(first_ms, start_ms - margin_ms), min(last_ms, end_ms + margin_ms) + 1


def _clipped(piece: Segment, start_ms: int, end_ms: int) -> Segment:
    return attrs.evolve(piece, start_ms=max(piece.start_ms, start_ms), end_ms=min(piece.end_ms, end_ms))


def _busiest(resources: list[str], marks: Iterable[Mark]) -> set[str]:
    counts = dict.fromkeys(resources, 0)
    for mark in marks:
        if mark.resource in counts:
            counts[mark.resource] += 10 if mark.kind in CUT_SHORT else 1
    return set(sorted(resources, key=lambda it: -counts[it])[:MOST_LANES])


def _in_order_of_appearance(pieces: Iterable[Segment]) -> list[str]:
    ordered = sorted((piece for piece in pieces if piece.owner), key=lambda it: it.start_ms)
    return list(dict.fromkeys(piece.owner for piece in ordered))


def _natural(name: str) -> tuple[str, int, str]:
    """Sorts orders-9 before orders-10."""
    stem = name.rstrip("0123456789")
    return stem, int(name[len(stem) :] or -1) if len(name) - len(stem) < 18 else -1, name
