"""The parameters of a churn that are about members: how many, and how they come and go."""

from __future__ import annotations

import math
from itertools import pairwise
from statistics import median
from typing import TYPE_CHECKING, Any

from cobalance.settings import HOUR_MS
from cobalance_sims.calibrate import durations, scaling
from cobalance_sims.calibrate.drawing import spread_of
from cobalance_sims.calibrate.interval import Z95, Interval, mean, poisson, short
from cobalance_sims.calibrate.of_work import open_length
from cobalance_sims.calibrate.parameter import Basis, Parameter, rate
from cobalance_sims.calibrate.sample import DurationSample
from cobalance_sims.calibrate.scaling import ScalingLimits, capacities
from cobalance_sims.simulate.churn import MOST_MEMBERS
from cobalance_sims.simulate.distributions import LogNormal

if TYPE_CHECKING:
    from cobalance_sims.calibrate.deploys import ObservedDeploy, Turnover
    from cobalance_sims.calibrate.membership import SessionHistory
    from cobalance_sims.calibrate.tallies import Tallies
    from cobalance_sims.simulate.churn import Churn

UNTOLD = {
    "cut_ms": "no journal tells cuts from pauses",
    "latency_ms": "no journal tells how long a call to Redis takes",
    "hint_lost": "no journal tells whether a wake-up came or the next heartbeat brought the news",
    "host_deaths_per_hour": "counted among the crashes, each process on its own",
    "members_per_host": "no journal tells which processes share a machine",
    "outages_per_hour": "an outage of Redis looks as if all processes stood still, and is counted among the pauses",
    "outage_ms": "no journal tells outages from pauses",
    "poison": "no journal tells whether what was given up can be worked",
}
"""Parameters of a churn that no journal shows, besides the prefetch (of_work.py), and why."""

NOT_TO_COLLECT = {*UNTOLD, "cuts_per_member_hour", "least_members", "most_members"}
"""No longer journal tells more of them, or would change a recommendation."""

SHORTEST_MS, LONGEST_MS = 120_000, 24 * HOUR_MS
"""Least and greatest length of the runs of a calibrated churn."""

MEDIANS = 1.2533
"""The standard error of a median, beside that of a mean."""

POLLED_MS = 250
"""How exactly it is known when a deployment went on: it looks now and then."""

HAPPENINGS = 20
"""Runs are long enough for about this many events in each."""


def size(tallies: Tallies, group: SessionHistory, turnover: Turnover, base: Churn) -> list[Parameter]:
    """How large the group is, and whether its members have instance ids."""
    members = max(1, round(group.mean_members))
    resources = max(1, round(sum(it.resources for it in tallies.windows) / len(tallies.windows)))
    counted_ends = [end for end in group.ends if end.how in ("left", "crashed")]
    static = sum(end.is_static for end in counted_ends)
    seen = len(tallies.lives)
    found = [
        Parameter(name="members", value=members, basis="measured", observations=seen),
        Parameter(name="resources", value=resources, basis="measured", observations=resources),
        Parameter(
            name="capacities",
            value=capacities(group.capacities, members),
            basis="measured",
            observations=seen,
        ),
        *_limits(scaling.limits(turnover, group), members, seen),
    ]
    if counted_ends:
        is_surge = any(it.shape == "surge" for it in turnover.deploys)
        found.append(
            Parameter(
                name="instances",
                value=static * 2 > len(counted_ends) and not is_surge,
                basis="measured",
                observations=len(counted_ends),
                note=f"{static} of {len(counted_ends)} ends were kept for a return" if static else "",
            )
        )
    else:
        found.append(
            Parameter(
                name="instances",
                value=base.instances,
                basis="assumed",
                observations=0,
                note="nobody has left or crashed: whether members have instance ids does not show",
            )
        )
    return found


def _limits(found: ScalingLimits, members: int, seen: int) -> list[Parameter]:
    """The sizes between which it is scaled. A limit that was never felt is a guess beyond what was seen."""
    most = min(max(found.most, round(1.5 * members)), MOST_MEMBERS)
    least = max(1, min(found.least, members // 2))
    guesses = {
        "most_members": ("half as many again as on average", most),
        "least_members": ("half as many as on average", least),
    }
    limits = {"most_members": (found.is_most, found.most), "least_members": (found.is_least, found.least)}
    return [
        Parameter(
            name=name,
            value=max(members, limit) if name == "most_members" else min(members, limit),
            basis="measured",
            observations=seen,
            interval=Interval(limit, limit, limit),
        )
        if is_limit
        else Parameter(
            name=name,
            value=guesses[name][1],
            basis="assumed",
            observations=seen,
            note=f"it was not seen to be kept from going beyond {limit}: {guesses[name][0]}",
        )
        for name, (is_limit, limit) in limits.items()
    ]


def deploys(turnover: Turnover, group: SessionHistory, base: Churn) -> list[Parameter]:
    """How it is deployed."""
    found = turnover.deploys
    downs = [ms for it in found for ms in it.downs_ms] + turnover.replaced_ms
    startup = _startup("startup_ms", downs, base.startup_ms)
    if not found:
        note = f"none was seen in {short(group.hours)} h: collect a time with one"
        if group.hours < 24:
            return [
                startup,
                *(
                    Parameter(name=it, value=_plain(base, it), basis="assumed", observations=0, note=note)
                    for it in ("deploy", "deploy_every_ms", "deploy_pause_ms")
                ),
            ]
        return [startup, Parameter(name="deploy", value="none", basis="few", observations=0, note=note)]
    shapes = [it.shape for it in found]
    every = _every(found, group)
    basis: Basis = "measured" if len(found) >= 3 else "few"
    few = "" if len(found) >= 3 else f"{len(found)} seen: 3 are needed"
    return [
        startup,
        Parameter(
            name="deploy", value=max(set(shapes), key=shapes.count), basis=basis, observations=len(found), note=few
        ),
        Parameter(
            name="deploy_every_ms",
            value=min(max(int(every.value), 1_000), 30 * 24 * HOUR_MS),
            basis=basis,
            observations=len(found),
            interval=every,
            note=few,
            open={"log": spread_of(every)},
        ),
        _deploy_pause(found, basis, few),
    ]


def _every(found: list[ObservedDeploy], group: SessionHistory) -> Interval:
    """From one to the next, where there are two in a run and none is missing between them; else how many there were."""
    gaps = [b.at_ms - a.at_ms for a, b in pairwise(found) if a.run == b.run]
    usual = [gap for gap in gaps if gap < 1.5 * median(gaps)]
    if len(usual) < 3:
        seen = poisson(len(found), group.hours * HOUR_MS)
        return Interval(1 / seen.value, 1 / seen.high, 1 / max(seen.low, 1e-12))
    return mean(float(sum(usual)), float(sum(gap * gap for gap in usual)), len(usual))


def _deploy_pause(found: list[ObservedDeploy], basis: Basis, note: str) -> Parameter:
    pauses = [it.pause_ms for it in found]
    value = min(int(median(pauses)), 3_600_000)
    seen = mean(sum(pauses), sum(it * it for it in pauses), len(pauses))
    spread = max(seen.high - seen.value, 0.0) + POLLED_MS
    return Parameter(
        name="deploy_pause_ms",
        value=value,
        basis=basis,
        observations=len(found),
        interval=Interval(value, max(value - spread, 0.0), value + spread) if len(pauses) > 1 else None,
        note=note,
    )


def _plain(base: Churn, name: str) -> Any:
    return base.table()[name]


def _startup(name: str, seen_ms: list[int], base: Any) -> Parameter:
    """A few values are enough for its median; its spread takes many."""
    if len(seen_ms) < 3:
        return Parameter(
            name=name,
            value=base.text,
            basis="assumed",
            observations=len(seen_ms),
            note=f"{len(seen_ms)} seen: 3 are needed",
        )
    spread = base.sigma if isinstance(base, LogNormal) else 0.5
    fitted = durations.describe(DurationSample.of(seen_ms))
    if fitted.distribution is not None:
        return Parameter(
            name=name,
            value=fitted.distribution.text,
            basis="measured",
            observations=len(seen_ms),
            interval=fitted.median_ms,
            open=open_length(fitted),
        )
    middle = float(max(median(seen_ms), 1))
    factor = math.exp(Z95 * MEDIANS * spread / math.sqrt(len(seen_ms)))
    return Parameter(
        name=name,
        value=LogNormal(middle, spread).text,
        basis="few",
        observations=len(seen_ms),
        interval=Interval(middle, middle / factor, middle * factor),
        note="the median is theirs, the spread is assumed",
        open={"log_median": math.log(factor) / Z95},
    )


def rates(turnover: Turnover, group: SessionHistory, base: Churn) -> list[Parameter]:
    """Members that come and go outside deploys."""
    hours, limits = group.member_hours, scaling.limits(turnover, group)
    return [
        _crash_detection(group, base),
        rate("crashes_per_member_hour", turnover.crashes, hours, base.crashes_per_member_hour, "crashes"),
        _startup("restart_ms", turnover.restarted_ms, base.restart_ms),
        rate(
            "replacements_per_member_hour",
            len(turnover.replaced_ms),
            hours,
            base.replacements_per_member_hour,
            "replacements outside deploys",
        ),
        rate(
            "joins_per_hour",
            turnover.scaled_out,
            limits.hours_to_join,
            base.joins_per_hour,
            "joins that took nobody's place",
        ),
        rate(
            "leaves_per_hour",
            turnover.scaled_in,
            limits.hours_to_leave,
            base.leaves_per_hour,
            "departures whose place nobody took",
        ),
        Parameter(
            name="cuts_per_member_hour",
            value=0.0,
            basis="assumed",
            observations=0,
            note="counted among the pauses, since a member cut off and one that stands still look the same",
        ),
    ]


def _crash_detection(group: SessionHistory, base: Churn) -> Parameter:
    """One crash that was seen at once shows that crashes are: those of whole machines are not, in any group."""
    crashed = group.ended("crashed")
    if not crashed:
        note = "nobody has crashed: whether crashes are seen at once does not show"
        return Parameter(name="crash_detection", value=base.crash_detection, basis="assumed", observations=0, note=note)
    return Parameter(
        name="crash_detection",
        value=any(it.was_seen for it in crashed),
        basis="measured",
        observations=len(crashed),
    )


def unreported(base: Churn) -> list[Parameter]:
    """What no journal shows: each is as in the base churn, and said to be."""
    return [
        Parameter(name=name, value=_plain(base, name), basis="assumed", observations=0, note=note)
        for name, note in UNTOLD.items()
    ]


def length(parameters: list[Parameter], base: Churn) -> Parameter:
    """A length with about ``HAPPENINGS`` events in a run, including a deploy."""
    churn = base.changed(**{it.name: it.value for it in parameters})
    per_hour = (
        churn.joins_per_hour
        + churn.leaves_per_hour
        + churn.members * (churn.crashes_per_member_hour + churn.replacements_per_member_hour)
    )
    if churn.deploy != "none":
        per_hour += churn.members * HOUR_MS / churn.deploy_every_ms
    wanted = HAPPENINGS / per_hour * HOUR_MS if per_hour else LONGEST_MS
    if churn.deploy != "none":
        wanted = max(wanted, churn.deploy_every_ms)
    value = int(min(max(wanted, SHORTEST_MS), LONGEST_MS))
    return Parameter(
        name="length_ms",
        value=value,
        basis="measured",
        observations=0,
        note="of a simulated run, chosen for enough to happen",
    )
