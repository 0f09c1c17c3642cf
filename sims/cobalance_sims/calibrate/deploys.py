"""Classifies members that came and went: deploys, replacements, crashes, and the rest, which is scaling.

A new process takes the place of the one that went last and was not replaced yet, gracefully or not. Graceful ends in
quick succession, of processes that were there when the first of them ended, are one burst. A burst in which at least
half of the group went, and nearly as many new processes came, is a deploy.
"""

from __future__ import annotations

from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING

import attrs

from cobalance_sims.simulate.churn_faults import DeployShape

if TYPE_CHECKING:
    from cobalance_sims.calibrate.membership import ProcessStart, SessionEnd, SessionHistory

APART_MS = 120_000
"""Ends further apart than this belong to different bursts; a start later than this after an end is unrelated."""

LEAST_SHARE = 0.5
"""The share of the group that makes a deploy, and the share of the burst that new processes must replace."""


@attrs.frozen(kw_only=True)
class ObservedDeploy:
    run: str
    at_ms: int
    replaced: int
    shape: DeployShape
    pause_ms: float
    """Typical time from when a new process has joined until the next one is replaced."""
    downs_ms: list[int]
    """From each end until its successor joined; empty where the successors join first."""
    is_static: bool


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


def sort_out(group: SessionHistory, session_timeout_ms: int, heartbeat_interval_ms: int) -> Turnover:
    """Crashes keep their successors, deploys get theirs, and what is left of both are single replacements and scaling."""
    crashed = [_Vacancy(it, it.at_ms - (0 if it.was_seen else session_timeout_ms)) for it in group.ended("crashed")]
    left = [_Vacancy(it, it.at_ms) for it in group.ended("left")]
    _fill([*crashed, *left], group.starts)
    restarted = [it for it in crashed if it.successor is not None]
    free = [it for it in group.starts if it not in [crash.successor for crash in restarted]]
    deploys, singles = [], []
    for burst in _bursts(left):
        found = _deploy(burst, free, group.mean_members)
        if found is None:
            singles += burst
        else:
            deploys.append(found.deploy)
            free = [it for it in free if it not in found.taken]
            singles += [it for it in burst if it not in found.replaced]
    replaced = [it for it in singles if it.successor in free]
    free = [it for it in free if it not in [single.successor for single in replaced]]
    half_ms = heartbeat_interval_ms // 2
    return Turnover(
        deploys=deploys,
        replaced_ms=[it.down_ms for it in replaced],
        restarted_ms=[max(it.down_ms - (0 if it.end.was_seen else half_ms), 1) for it in restarted],
        crashes=len(crashed),
        scaled_in=len(singles) - len(replaced),
        scaled_out=len(free),
    )


@attrs.define(eq=False)
class _Vacancy:
    """The place of a process that is gone, or may be since then."""

    end: SessionEnd
    since_ms: int
    successor: ProcessStart | None = None

    @property
    def down_ms(self) -> int:
        return self.successor.at_ms - self.since_ms if self.successor else 0


def _fill(vacancies: list[_Vacancy], starts: list[ProcessStart]) -> None:
    """Gives each start the latest vacancy that is no older than ``APART_MS``. So a place that nobody takes, since the group
    was scaled in, does not shift all that follow.
    """
    waiting = sorted(vacancies, key=lambda it: (it.end.run, it.since_ms))
    for start in starts:
        able = [
            it for it in waiting if it.end.run == start.run and it.since_ms <= start.at_ms <= it.end.at_ms + APART_MS
        ]
        if able:
            able[-1].successor = start
            waiting.remove(able[-1])


def _bursts(left: list[_Vacancy]) -> list[list[_Vacancy]]:
    """A process that began after the first end of a burst is replaced by another burst, or not at all."""
    bursts: list[list[_Vacancy]] = []
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
    replaced: list[_Vacancy]
    taken: list[ProcessStart]


def _deploy(burst: list[_Vacancy], free: list[ProcessStart], mean_members: float) -> _Found | None:
    """What a burst was; ``None`` if it was no deploy."""
    coming = _starts_around([it.end for it in burst], free)
    if not _is_deploy(len(burst), len(coming), mean_members):
        return None
    shape = _shape([it.end for it in burst], coming)
    if shape == "surge":
        return _Found(_described(burst, shape), burst, coming[: len(burst)])
    replaced = [it for it in burst if it.successor in coming]
    if not _is_deploy(len(replaced), len(replaced), mean_members):
        return None
    return _Found(_described(replaced, shape), replaced, [it.successor for it in replaced if it.successor])


def _is_deploy(went: int, came: int, mean_members: float) -> bool:
    return went >= max(2, LEAST_SHARE * mean_members) and came >= LEAST_SHARE * went


def _starts_around(burst: list[SessionEnd], starts: list[ProcessStart]) -> list[ProcessStart]:
    run, begun, over = burst[0].run, burst[0].at_ms - APART_MS, burst[-1].at_ms + APART_MS
    return [it for it in starts if it.run == run and begun <= it.at_ms <= over]


def _described(burst: list[_Vacancy], shape: DeployShape) -> ObservedDeploy:
    ends = [it.end for it in burst]
    downs = [] if shape == "surge" else [it.down_ms for it in burst]
    apart = median(later.at_ms - earlier.at_ms for earlier, later in pairwise(ends))
    leaving = median(end.leaving_ms for end in ends)
    pause = {"rolling": apart - leaving - (median(downs) if downs else 0.0), "surge": apart - leaving}.get(shape, 0.0)
    return ObservedDeploy(
        run=ends[0].run,
        at_ms=ends[0].at_ms,
        replaced=len(burst),
        shape=shape,
        pause_ms=max(0.0, pause),
        downs_ms=downs,
        is_static=sum(end.is_static for end in ends) * 2 > len(burst),
    )


def _shape(burst: list[SessionEnd], coming: list[ProcessStart]) -> DeployShape:
    """Surge: a new one joins before the first old one is gone, and none shortly after the last. All at once: most join
    after the last is gone.
    """
    first, last = burst[0].at_ms, burst[-1].at_ms
    ahead = min((first - start.at_ms for start in coming if start.at_ms < first), default=2 * APART_MS)
    behind = min((start.at_ms - last for start in coming if start.at_ms >= last), default=2 * APART_MS)
    if ahead < behind:
        return "surge"
    before = sum(first <= start.at_ms < last for start in coming)
    return "all_at_once" if before * 4 < len(burst) else "rolling"
