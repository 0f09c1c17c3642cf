"""Classifies members that came and went: deploys, replacements, crashes, and the rest, which is scaling.

Graceful ends in quick succession are one burst. A burst in which at least half of the group went, and nearly as many
new processes came, is a deploy. Outside deploys, a new process that comes soon after another one went takes its place.
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
    """The same for crashes, counted from the death, as far as the session timeout shows when that was."""
    crashes: int
    scaled_in: int
    scaled_out: int


def sort_out(group: SessionHistory, session_timeout_ms: int) -> Turnover:
    """Finds deploys first; then each end takes the first start after it that no other has taken."""
    free = list(group.starts)
    deploys, singles = [], []
    for burst in _bursts(group.ended("left")):
        coming = _starts_around(burst, free)
        is_deploy = len(burst) >= max(2, LEAST_SHARE * group.mean_members) and len(coming) >= LEAST_SHARE * len(burst)
        if is_deploy:
            shape = _shape(burst, coming)
            taken = [it for it in coming if shape == "surge" or it.at_ms >= burst[0].at_ms][: len(burst)]
            deploys.append(_deploy(burst, taken, shape))
            free = [it for it in free if it not in taken]
        else:
            singles += burst
    restarted = [_take(end, end.at_ms - session_timeout_ms, free) for end in group.ended("crashed")]
    replaced = [_take(end, end.at_ms, free) for end in singles]
    return Turnover(
        deploys=deploys,
        replaced_ms=[it for it in replaced if it is not None],
        restarted_ms=[it for it in restarted if it is not None],
        crashes=len(restarted),
        scaled_in=replaced.count(None),
        scaled_out=len(free),
    )


def _take(end: SessionEnd, died_at_ms: int, free: list[ProcessStart]) -> int | None:
    """Takes the first start after an end out of the list; returns how long after the end it came."""
    for start in free:
        if start.run == end.run and died_at_ms <= start.at_ms <= end.at_ms + APART_MS:
            free.remove(start)
            return start.at_ms - died_at_ms
    return None


def _bursts(ends: list[SessionEnd]) -> list[list[SessionEnd]]:
    bursts: list[list[SessionEnd]] = []
    for end in ends:
        last = bursts[-1][-1] if bursts else None
        if last and last.run == end.run and end.at_ms - last.at_ms <= APART_MS:
            bursts[-1].append(end)
        else:
            bursts.append([end])
    return bursts


def _starts_around(burst: list[SessionEnd], starts: list[ProcessStart]) -> list[ProcessStart]:
    run, begun, over = burst[0].run, burst[0].at_ms - APART_MS, burst[-1].at_ms + APART_MS
    return [it for it in starts if it.run == run and begun <= it.at_ms <= over]


def _deploy(burst: list[SessionEnd], coming: list[ProcessStart], shape: DeployShape) -> ObservedDeploy:
    free = list(coming)
    downs = [] if shape == "surge" else [ms for end in burst if (ms := _take(end, end.at_ms, free)) is not None]
    apart = median(later.at_ms - earlier.at_ms for earlier, later in pairwise(burst))
    leaving = median(end.leaving_ms for end in burst)
    pause = {"rolling": apart - leaving - (median(downs) if downs else 0.0), "surge": apart - leaving}.get(shape, 0.0)
    return ObservedDeploy(
        run=burst[0].run,
        at_ms=burst[0].at_ms,
        replaced=len(burst),
        shape=shape,
        pause_ms=max(0.0, pause),
        downs_ms=downs,
        is_static=sum(end.is_static for end in burst) * 2 > len(burst),
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
