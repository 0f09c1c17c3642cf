"""Classifies members that came and went: deploys, replacements, crashes, and the rest, which is scaling.

A new process takes the place of one that went shortly before and was not replaced yet, gracefully or not (places.py).
Graceful ends in quick succession, of processes that were there when the first of them ended, are one burst. A burst in
which at least half of the group went, and nearly as many new processes came, is a deploy, unless as many single
departures would make such a burst by chance.
"""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import attrs

from cobalance.settings import HOUR_MS
from cobalance_sims.calibrate.places import APART_MS, Vacancy, fill, truly_replaced
from cobalance_sims.simulate.churn_faults import DeployShape

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cobalance_sims.calibrate.membership import ProcessStart, SessionEnd, SessionHistory

LEAST_SHARE = 0.5
"""The share of the group that makes a deploy, and the share of the burst that new processes must replace."""

AT_ONCE_MS = 1_000
"""Processes that begin to leave within this time of each other were all asked to at once."""

BY_CHANCE = 0.05
"""Bursts of which chance makes more than this many are no deploys."""


@attrs.frozen(kw_only=True)
class ObservedDeploy:
    run: str
    at_ms: int
    replaced: int
    shape: DeployShape
    pause_ms: float
    """Typical time from when a new process has joined until the next one is replaced."""
    downs_ms: list[int]
    """How long each new process took to start, as far as that shows: from when the old one was gone, or, where the
    successors join first, from the order for it.
    """
    is_static: bool


@attrs.frozen
class Scaling:
    """The group is meant to be larger or smaller from now on."""

    run: str
    at_ms: int
    by: int


@attrs.frozen(kw_only=True)
class Turnover:
    """The classified ends and starts."""

    deploys: list[ObservedDeploy]
    replaced_ms: list[int]
    """For each graceful end outside deploys whose place was taken: how long that took."""
    restarted_ms: list[int]
    """The same for crashes, counted from the death. That is when closed connections showed it, or else half a heartbeat
    interval, on average, after the member was last heard, which was a session timeout before its expiry.
    """
    crashes: int
    scaled_in: int
    scaled_out: int
    sizes: list[Scaling] = attrs.field(factory=list)
    """What changed the intended size of the group: scaling, and crashes that nobody made good."""


def sort_out(group: SessionHistory, session_timeout_ms: int, heartbeat_interval_ms: int) -> Turnover:
    """Crashes keep their successors, deploys get theirs, and what is left of both are single replacements and scaling."""
    crashed = [Vacancy(it, it.at_ms - (0 if it.was_seen else session_timeout_ms)) for it in group.ended("crashed")]
    left = [Vacancy(it, it.at_ms) for it in group.ended("left")]
    fill([*crashed, *left], group.starts, group.hours)
    restarted = [it for it in crashed if it.successor is not None]
    free = _without(group.starts, restarted)
    deploys, singles = [], []
    for burst, found in _deploys(left, free, group):
        if found is None:
            singles += burst
        else:
            deploys.append(found.deploy)
            free = [it for it in free if it not in found.taken]
            singles += [it for it in burst if it not in found.replaced]
    followed = [it for it in singles if it.successor in free]
    replaced = truly_replaced(followed, len(singles), len(free) - len(followed), group.hours)
    free = _without(free, replaced)
    scaled_in = [it.end for it in singles if it not in replaced]
    half_ms = heartbeat_interval_ms // 2
    gone = [it.end for it in crashed if it.successor is None]
    sizes = [Scaling(it.run, it.at_ms, -1) for it in [*scaled_in, *gone]] + [
        Scaling(it.run, it.at_ms, 1) for it in free
    ]
    return Turnover(
        deploys=deploys,
        replaced_ms=[it.down_ms for it in replaced],
        restarted_ms=[max(it.down_ms - (0 if it.end.was_seen else half_ms), 1) for it in restarted],
        crashes=len(crashed),
        scaled_in=len(scaled_in),
        scaled_out=len(free),
        sizes=sorted(sizes, key=lambda it: (it.run, it.at_ms)),
    )


def _without(starts: Sequence[ProcessStart], filled: Sequence[Vacancy]) -> list[ProcessStart]:
    taken = [it.successor for it in filled]
    return [it for it in starts if it not in taken]


def _bursts(left: list[Vacancy]) -> list[list[Vacancy]]:
    """A process that began after the first end of a burst is replaced by another burst, or not at all."""
    bursts: list[list[Vacancy]] = []
    for it in left:
        first, last = (bursts[-1][0].end, bursts[-1][-1].end) if bursts else (None, None)
        if (
            first
            and last
            and last.run == it.end.run
            and it.end.at_ms - last.at_ms <= APART_MS
            and (it.end.begun_at_ms or first.at_ms) <= first.at_ms
        ):
            bursts[-1].append(it)
        else:
            bursts.append([it])
    return bursts


@attrs.frozen
class _Found:
    """A deploy, with the ends that belong to it and the starts that it accounts for."""

    deploy: ObservedDeploy
    replaced: list[Vacancy]
    taken: list[ProcessStart]


def _deploys(
    left: list[Vacancy], free: list[ProcessStart], group: SessionHistory
) -> list[tuple[list[Vacancy], _Found | None]]:
    """Each burst, and the deploy that it was. Bursts that the other departures could have made by chance do not count."""
    bursts = [(burst, _deploy(burst, free, group.mean_members)) for burst in _bursts(left)]
    others = sum(found is None for _, found in bursts)
    return [(it, found if _by_chance(len(it), others, group.hours) <= BY_CHANCE else None) for it, found in bursts]


def _by_chance(size: int, others: int, hours: float) -> float:
    """The expected number of bursts at least this large among this many independent departures."""
    follows = -math.expm1(-others * APART_MS / (hours * HOUR_MS))
    return float(others * follows ** (size - 1))


def _deploy(burst: list[Vacancy], free: list[ProcessStart], mean_members: float) -> _Found | None:
    """What a burst was; ``None`` if it was no deploy."""
    coming = _starts_around([it.end for it in burst], free)
    if not _is_deploy(len(burst), len(coming), mean_members):
        return None
    shape = _shape([it.end for it in burst], coming)
    if shape == "surge":
        taken = coming[: len(burst)]
        return _Found(_surge(burst, taken), burst, taken)
    replaced = [it for it in burst if it.successor in coming]
    if not _is_deploy(len(replaced), len(replaced), mean_members):
        return None
    return _Found(_described(replaced, shape), replaced, [it.successor for it in replaced if it.successor])


def _is_deploy(went: int, came: int, mean_members: float) -> bool:
    return went >= max(2, LEAST_SHARE * mean_members) and came >= LEAST_SHARE * went


def _starts_around(burst: list[SessionEnd], starts: list[ProcessStart]) -> list[ProcessStart]:
    run, begun, over = burst[0].run, burst[0].at_ms - APART_MS, burst[-1].at_ms + APART_MS
    return [it for it in starts if it.run == run and begun <= it.at_ms <= over]


def _described(burst: list[Vacancy], shape: DeployShape) -> ObservedDeploy:
    ends = [it.end for it in burst]
    downs = [it.down_ms for it in burst]
    pause = 0.0
    if shape == "rolling":
        apart = median(later.at_ms - earlier.at_ms for earlier, later in pairwise(ends))
        pause = apart - median(end.leaving_ms for end in ends) - median(downs)
    return _observed(burst, shape, pause, downs)


def _surge(burst: list[Vacancy], coming: list[ProcessStart]) -> ObservedDeploy:
    """Each new process joins, then comes a pause, then its old one leaves, then comes a pause, then the next is ordered."""
    ends = [it.end for it in burst]
    pauses = [end.at_ms - end.leaving_ms - start.at_ms for end, start in zip(ends, coming, strict=False)]
    pause = max(0.0, median(pauses))
    downs = [start.at_ms - end.at_ms - int(pause) for end, start in zip(ends, coming[1:], strict=False)]
    return _observed(burst, "surge", pause, [it for it in downs if it > 0])


def _observed(burst: list[Vacancy], shape: DeployShape, pause_ms: float, downs: list[int]) -> ObservedDeploy:
    ends = [it.end for it in burst]
    return ObservedDeploy(
        run=ends[0].run,
        at_ms=ends[0].at_ms,
        replaced=len(burst),
        shape=shape,
        pause_ms=max(0.0, pause_ms),
        downs_ms=downs,
        is_static=sum(end.is_static for end in ends) * 2 > len(burst),
    )


def _shape(burst: list[SessionEnd], coming: list[ProcessStart]) -> DeployShape:
    """All at once: they begin to leave together, or most successors join after the last is gone. Surge: a new one joins
    before the first old one is gone, and none shortly after the last.
    """
    asked_ms = [it.at_ms - it.leaving_ms for it in burst]
    if all(it.leaving_ms for it in burst) and max(asked_ms) - min(asked_ms) <= AT_ONCE_MS:
        return "all_at_once"
    first, last = burst[0].at_ms, burst[-1].at_ms
    ahead = min((first - start.at_ms for start in coming if start.at_ms < first), default=2 * APART_MS)
    behind = min((start.at_ms - last for start in coming if start.at_ms >= last), default=2 * APART_MS)
    if ahead < behind:
        return "surge"
    before = sum(first <= start.at_ms < last for start in coming)
    return "all_at_once" if before * 4 < len(burst) else "rolling"
