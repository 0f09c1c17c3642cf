"""Which members came, which went and how, and for how long they were there: from one row for each member."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

import attrs

from cobalance.settings import HOUR_MS
from cobalance_sims.outcomes.crashes import SEEN, UNSAID

if TYPE_CHECKING:
    from collections.abc import Iterable

    from cobalance_sims.calibrate.tallies import Life, Observation


SETTLING_MS = 10_000
"""A member that joins within this time of a group's very first event is one of its first members, not a newcomer."""

How = Literal["left", "crashed", "paused", "replaced"]
"""``paused``: its session ended, and the same process came back. ``replaced``: it joined again before that."""


@attrs.frozen
class SessionEnd:
    """A member's session is over."""

    run: str
    at_ms: int
    how: How
    is_static: bool
    """Whether it had an instance id, for which its resources were kept."""
    leaving_ms: int = 0
    """How long it took to leave, as far as that was seen."""
    begun_at_ms: int | None = None
    """When its process joined first; ``None`` if that was not seen."""
    was_seen: bool = False
    """Whether its closed connections showed its end at once, so that no session timeout lies before it."""


@attrs.frozen
class ProcessStart:
    """A process that was not there before joins."""

    run: str
    at_ms: int


@attrs.frozen
class RunSpan:
    """The observation of one run."""

    run: str
    from_ms: int
    to_ms: int
    members: int
    """At its beginning."""


@attrs.frozen(kw_only=True)
class SessionHistory:
    """All ends and starts, in the order of time."""

    hours: float
    """Length of the observation, summed over the runs."""
    member_hours: float
    starts: list[ProcessStart]
    ends: list[SessionEnd]
    spans: list[RunSpan] = attrs.field(factory=list)
    capacities: dict[int, float] = attrs.field(factory=dict)
    """Capacity → the hours that members with it were there."""

    @property
    def mean_members(self) -> float:
        """The average number of members."""
        return self.member_hours / self.hours if self.hours else 0.0

    def ended(self, how: How) -> list[SessionEnd]:
        """The sessions that ended in this way."""
        return [end for end in self.ends if end.how == how]


def membership(lives: Iterable[Life], windows: Iterable[Observation]) -> SessionHistory:
    """Members whose beginning or end lies outside the observation count as there from its start, or until its end."""
    lives, span = list(lives), {window.run: window for window in windows}
    back = {(life.run, life.previous): life.joined_at_ms for life in lives if life.previous}
    there_ms = sum(_there_ms(life, span[life.run]) for life in lives)
    settled = {run: window.from_ms + SETTLING_MS * window.is_whole for run, window in span.items()}
    starts = [
        ProcessStart(life.run, life.joined_at_ms)
        for life in lives
        if life.joined_at_ms is not None and not life.previous and life.joined_at_ms > settled[life.run]
    ]
    begun = _begun(lives)
    ends = [
        _end(life, back.get((life.run, life.member)), begun[life.run, life.member])
        for life in lives
        if life.gone_at_ms is not None
    ]
    return SessionHistory(
        hours=sum(window.hours for window in span.values()),
        member_hours=there_ms / HOUR_MS,
        starts=sorted(starts, key=_when),
        ends=sorted(ends, key=_when),
        spans=[
            RunSpan(run, it.from_ms, it.to_ms, sum(_is_founder(life, settled) for life in lives if life.run == run))
            for run, it in span.items()
        ],
        capacities=_capacities(lives, span),
    )


def _is_founder(life: Life, settled: dict[str, int]) -> bool:
    return not life.previous and (life.joined_at_ms is None or life.joined_at_ms <= settled[life.run])


def _capacities(lives: Iterable[Life], span: dict[str, Observation]) -> dict[int, float]:
    found: dict[int, float] = {}
    for life in lives:
        found[life.capacity] = found.get(life.capacity, 0.0) + _there_ms(life, span[life.run]) / HOUR_MS
    return found


def _when(it: ProcessStart | SessionEnd) -> tuple[str, int]:
    return it.run, it.at_ms


def _begun(lives: Iterable[Life]) -> dict[tuple[str, str], int | None]:
    """When the process of each member joined first. A member that came back goes on with the process it was before."""
    found: dict[tuple[str, str], int | None] = {}
    for life in sorted(lives, key=lambda it: it.joined_at_ms or 0):
        before = (life.run, life.previous)
        found[life.run, life.member] = found.get(before) if life.previous else life.joined_at_ms
    return found


def _there_ms(life: Life, window: Observation) -> int:
    begun = window.from_ms if life.joined_at_ms is None else life.joined_at_ms
    return (window.to_ms if life.gone_at_ms is None else life.gone_at_ms) - begun


def _end(life: Life, back_at_ms: int | None, begun_at_ms: int | None) -> SessionEnd:
    at_ms = life.gone_at_ms or 0
    how: How = "left"
    if life.reason == "replaced":
        how = "replaced"
    elif life.reason in UNSAID:
        how = "crashed" if back_at_ms is None else "paused"
    leaving_ms = 0 if life.leaving_at_ms is None else at_ms - life.leaving_at_ms
    return SessionEnd(life.run, at_ms, how, life.gone == "graced", leaving_ms, begun_at_ms, life.reason == SEEN)
