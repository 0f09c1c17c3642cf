"""True churns, drawn over the range of churn.py and beyond the families that a calibration fits."""

from __future__ import annotations

import math
from random import Random
from typing import Any

import attrs

from cobalance.settings import HOUR_MS
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.simulate.churn_faults import DeployShape
from cobalance_sims.simulate.distributions import Distribution, Empirical, LogNormal, Uniform

HAPPENINGS = (40, 160)
"""How much a production window shows: deaths, departures, arrivals and noticeable pauses together, about."""

SHORTEST_MS, LONGEST_MS = HOUR_MS, 24 * HOUR_MS
"""Least and greatest length of a window."""


@attrs.frozen
class Truth:
    """A churn, and the families that it was drawn from."""

    number: int
    churn: Churn
    window_ms: int
    families: tuple[str, ...]


def truth(number: int) -> Truth:
    """The truth of this number: always the same."""
    random = Random(f"truth {number}")
    pause, pauses = _pause(random)
    drain, drains = _drain(random)
    deploys = _deploys(random)
    instances = deploys["deploy"] != "surge" and random.random() < 0.25
    members = random.randint(2, 5)
    values: dict[str, Any] = {
        "name": f"truth-{number}",
        "members": members,
        "resources": members * random.randint(1, 3),
        "instances": instances,
        "crashes_per_member_hour": _between(random, 0.3, 4.0) if random.random() < 0.8 else 0.0,
        "restart_ms": LogNormal(_between(random, 1_500, 15_000), _between(random, 0.2, 0.8)),
        "replacements_per_member_hour": _between(random, 0.3, 3.0) if random.random() < 0.5 else 0.0,
        "startup_ms": LogNormal(_between(random, 1_000, 10_000), _between(random, 0.2, 0.6)),
        "pauses_per_member_hour": _between(random, 2.0, 20.0) if pauses != "no pauses" else 0.0,
        "pause_ms": pause,
        "drain_ms": drain,
        "messages_per_s": _between(random, 0.2, 10.0),
        "handle_ms": LogNormal(_between(random, 5, 40), _between(random, 0.3, 1.0)),
        **deploys,
        **_scaling(random, members, instances),
    }
    churn = Churn(**values)
    scaled = ("scaled",) if churn.joins_per_hour else ()
    window_ms = _between(random, *HAPPENINGS) / per_hour(churn) * HOUR_MS
    window_ms = int(min(max(window_ms, SHORTEST_MS), LONGEST_MS))
    return Truth(number, churn, window_ms, (pauses, drains, f"deploys: {churn.deploy}", *scaled))


def _between(random: Random, low: float, high: float) -> float:
    """Any order of magnitude is as likely."""
    return float(f"{math.exp(random.uniform(math.log(low), math.log(high))):.4g}")


def _pause(random: Random) -> tuple[Distribution, str]:
    family = random.choice(("no pauses", "lognormal pauses", "lognormal pauses", "uniform pauses"))
    if family == "uniform pauses":
        low = _between(random, 500, 4_000)
        return Uniform(low, low * _between(random, 1.5, 4.0)), family
    return LogNormal(_between(random, 300, 4_000), _between(random, 0.4, 1.2)), family


def _drain(random: Random) -> tuple[Distribution, str]:
    """Bimodal: most resources are idle and let go at once, others finish something first."""
    family = random.choice(("lognormal drains", "lognormal drains", "uniform drains", "bimodal drains"))
    if family == "uniform drains":
        return Uniform(0, _between(random, 500, 8_000)), family
    if family == "bimodal drains":
        slow = _between(random, 1_000, 8_000)
        idle, busy = [5.0 * step for step in range(6)], [slow * (1 + 0.2 * step) for step in range(5)]
        return Empirical((*idle, *busy)), family
    return LogNormal(_between(random, 50, 4_000), _between(random, 0.4, 1.3)), family


def _deploys(random: Random) -> dict[str, Any]:
    """``all_at_once`` is a burst of departures and arrivals."""
    shapes: tuple[DeployShape, ...] = ("none", "none", "rolling", "surge", "all_at_once")
    return {
        "deploy": random.choice(shapes),
        "deploy_every_ms": int(_between(random, 900_000, 3_600_000)),
        "deploy_pause_ms": int(_between(random, 1_000, 10_000)),
    }


def _scaling(random: Random, members: int, instances: bool) -> dict[str, Any]:
    if instances or random.random() < 0.7:
        return {}
    rate = _between(random, 1.0, 8.0)
    limits = {"least_members": max(1, members - 1), "most_members": members + 2}
    return {"joins_per_hour": rate, "leaves_per_hour": rate, **limits}


def per_hour(churn: Churn) -> float:
    """How many deaths, departures, arrivals and noticeable pauses an hour of it has, about."""
    each = churn.crashes_per_member_hour + churn.replacements_per_member_hour + churn.pauses_per_member_hour / 4
    found = churn.members * each + churn.joins_per_hour + churn.leaves_per_hour
    if churn.deploy != "none":
        found += churn.members * HOUR_MS / churn.deploy_every_ms
    return max(found, 0.1)
