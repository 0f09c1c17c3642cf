"""Which process took whose place, and which came by chance soon after another had gone."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

import attrs
import numpy as np

from cobalance.settings import HOUR_MS

if TYPE_CHECKING:
    from cobalance_sims.calibrate.membership import ProcessStart, SessionEnd

APART_MS = 120_000
"""Ends further apart than this belong to different bursts; a start later than this after an end is unrelated."""

ENOUGH = 5
"""From this many on, those whose place was taken are distinguished from those after whom another came by chance."""

SURELY = 6.0
"""A difference of the logarithms of likelihoods, from which on some were truly replaced."""

UNKNOWN = 1.0
"""How unlike a duration is to one that is not known, beside the logarithms of ratios to those that are."""

NARROWEST, WIDEST = 0.15, 1.0
"""The least and the greatest sigma of the time that it takes to start a successor, as far as it can be separated from chance."""


@attrs.define(eq=False)
class Vacancy:
    """The place of a process that is gone, or may be since then."""

    end: SessionEnd
    since_ms: int
    successor: ProcessStart | None = None

    @property
    def down_ms(self) -> int:
        return self.successor.at_ms - self.since_ms if self.successor else 0


def fill(vacancies: list[Vacancy], starts: list[ProcessStart], hours: float) -> None:
    """Gives each start a vacancy that is no older than ``APART_MS``: first the latest, or the oldest if that makes the times
    more alike, which tells how long it takes to fill one after a crash and after a graceful end; then the one whose age is
    most like that. So a place that nobody takes, since the group was scaled in, does not shift all that follow.
    """
    tries = []
    for latest in (True, False):
        _fill(vacancies, starts, {}, latest=latest)
        typical, spread = _typical(vacancies, starts, hours)
        tries.append((spread, not latest, typical))
    _, oldest, typical = min(tries, key=lambda it: it[:2])
    _fill(vacancies, starts, typical, latest=not (oldest and typical))


def _typical(vacancies: list[Vacancy], starts: list[ProcessStart], hours: float) -> tuple[dict[str, float], float]:
    """How long it takes to fill a place, by how its process went, and how much these times differ. After a graceful end
    that is known only if not all came by chance.
    """
    filled = {how: [it for it in vacancies if it.end.how == how and it.successor] for how in ("crashed", "left")}
    went = sum(it.end.how == "left" for it in vacancies)
    unrelated = len(starts) - sum(map(len, filled.values()))
    filled["left"] = truly_replaced(filled["left"], went, unrelated, hours)
    times = {how: np.array([it.down_ms + 1.0 for it in them]) for how, them in filled.items() if them}
    spread = [np.abs(np.log(it / np.median(it))) for it in times.values()]
    typical = {how: float(np.median(it)) for how, it in times.items()}
    return typical, float(np.mean(np.concatenate(spread))) if spread else math.inf


def _fill(
    vacancies: list[Vacancy], starts: list[ProcessStart], typical: dict[str, float], *, latest: bool = True
) -> None:
    waiting = sorted(vacancies, key=lambda it: (it.end.run, it.since_ms))
    for it in waiting:
        it.successor = None
    for start in starts:
        able = [
            it for it in waiting if it.end.run == start.run and it.since_ms <= start.at_ms <= it.end.at_ms + APART_MS
        ]
        if not able:
            continue
        ordered = able[::-1] if latest else able
        taken = min(ordered, key=lambda it: _unlike(start.at_ms - it.since_ms, typical.get(it.end.how)))
        taken.successor = start
        waiting.remove(taken)


def _unlike(age_ms: int, typical_ms: float | None) -> float:
    """How far apart two durations are; all are equally far from one that is not known."""
    return UNKNOWN if typical_ms is None else abs(math.log((age_ms + 1) / (typical_ms + 1)))


def truly_replaced(followed: Sequence[Vacancy], went: int, unrelated: int, hours: float) -> list[Vacancy]:
    """Those after whom a start came as late as replacements do, rather than at any time, as an autoscaler's do.

    Args:
        followed: graceful ends after which a process started.
        went: how many there were, those without included.
        unrelated: starts that followed nobody.
        hours: for how long all this was observed.
    """
    if len(followed) < ENOUGH:
        return list(followed)
    delays = np.array([max(it.down_ms, 1) for it in followed], dtype=float)
    alone = went - len(followed)
    chance = _Mixture(delays, alone, unrelated, hours * HOUR_MS)
    fits = [chance.fit(float(np.quantile(delays, share))) for share in (0.1, 0.3, 0.5)]
    likelihood, shares = max(fits, key=lambda it: it[0])
    if likelihood < chance.of_nobody() + SURELY:
        return []
    return [it for it, share in zip(followed, shares, strict=True) if share > 0.5]


@attrs.frozen(eq=False)
class _Mixture:
    """Delays of which some are lognormal, and the others until something that happens at any time."""

    delays: np.ndarray
    alone: int
    unrelated: int
    span_ms: float

    def of_nobody(self) -> float:
        """The logarithm of the likelihood that nobody was replaced."""
        rate = (self.unrelated + len(self.delays)) / self.span_ms
        return float(np.sum(math.log(rate) - rate * self.delays)) - self.alone * rate * APART_MS

    def fit(self, first_ms: float) -> tuple[float, np.ndarray]:
        """The logarithm of the likelihood, and of each delay the chance that it was a replacement's. By expectation and
        maximisation, from replacements that take so long.
        """
        logs, mu, sigma, share = np.log(self.delays), math.log(first_ms), 0.5, 0.5
        likelihood, ours = -math.inf, np.zeros(len(logs))
        for _ in range(200):
            rate = max(self.unrelated + float(np.sum(1 - ours)), 0.5) / self.span_ms
            replaced = (
                share * np.exp(-(((logs - mu) / sigma) ** 2) / 2) / (self.delays * sigma * math.sqrt(2 * math.pi))
            )
            chance = (1 - share) * rate * np.exp(-rate * self.delays)
            both = np.maximum(replaced + chance, 1e-300)
            ours = replaced / both
            likelihood = float(np.sum(np.log(both))) + self.alone * (math.log(1 - share) - rate * APART_MS)
            total = max(float(ours.sum()), 1e-9)
            mu = float(ours @ logs) / total
            sigma = min(max(math.sqrt(float(ours @ (logs - mu) ** 2) / total), NARROWEST), WIDEST)
            share = min(max(total / (len(logs) + self.alone), 1e-6), 1 - 1e-6)
        return likelihood, ours
