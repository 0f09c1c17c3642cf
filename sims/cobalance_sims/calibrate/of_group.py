"""The parameters of a churn that are about members: how many, and how they come and go."""

from __future__ import annotations

from statistics import median
from typing import TYPE_CHECKING, Any

from cobalance.settings import HOUR_MS
from cobalance_sims.calibrate import durations
from cobalance_sims.calibrate.interval import short
from cobalance_sims.calibrate.parameter import Basis, Parameter, rate
from cobalance_sims.calibrate.sample import DurationSample
from cobalance_sims.simulate.churn import MOST_MEMBERS
from cobalance_sims.simulate.distributions import LogNormal

if TYPE_CHECKING:
    from cobalance_sims.calibrate.deploys import Turnover
    from cobalance_sims.calibrate.membership import SessionHistory
    from cobalance_sims.calibrate.tallies import Tallies
    from cobalance_sims.simulate.churn import Churn

SHORTEST_MS, LONGEST_MS = 120_000, 24 * HOUR_MS
"""Least and greatest length of the runs of a calibrated churn."""

HAPPENINGS = 20
"""Runs are long enough for about this many events in each."""


def size(tallies: Tallies, group: SessionHistory, turnover: Turnover, base: Churn) -> list[Parameter]:
    """How large the group is, and whether its members have instance ids."""
    members = max(1, round(group.mean_members))
    resources = max(1, round(sum(it.resources for it in tallies.windows) / len(tallies.windows)))
    told = [end for end in group.ends if end.how in ("left", "crashed")]
    static = sum(end.is_static for end in told)
    seen = len(tallies.lives)
    found = [
        Parameter(name="members", value=members, basis="measured", observations=seen),
        Parameter(name="resources", value=resources, basis="measured", observations=resources),
        Parameter(
            name="most_members",
            value=max(members, min(round(1.5 * members), MOST_MEMBERS)),
            basis="few",
            observations=seen,
            note="half as many again as on average",
        ),
        Parameter(
            name="least_members",
            value=max(1, members // 2),
            basis="few",
            observations=seen,
            note="half as many as on average",
        ),
    ]
    if told:
        is_surge = any(it.shape == "surge" for it in turnover.deploys)
        found.append(
            Parameter(
                name="instances",
                value=static * 2 > len(told) and not is_surge,
                basis="measured",
                observations=len(told),
                note=f"{static} of {len(told)} ends were kept for a return" if static else "",
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
    every_ms = min(max(int(group.hours * HOUR_MS / len(found)), 1_000), 30 * 24 * HOUR_MS)
    basis: Basis = "measured" if len(found) >= 3 else "few"
    few = "" if len(found) >= 3 else f"{len(found)} seen: 3 are needed"
    return [
        startup,
        Parameter(
            name="deploy", value=max(set(shapes), key=shapes.count), basis=basis, observations=len(found), note=few
        ),
        Parameter(name="deploy_every_ms", value=every_ms, basis=basis, observations=len(found), note=few),
        Parameter(
            name="deploy_pause_ms",
            value=min(int(median(it.pause_ms for it in found)), 3_600_000),
            basis=basis,
            observations=len(found),
            note=few,
        ),
    ]


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
        )
    text = LogNormal(float(max(median(seen_ms), 1)), spread).text
    return Parameter(
        name=name,
        value=text,
        basis="few",
        observations=len(seen_ms),
        note="the median is theirs, the spread is assumed",
    )


def rates(turnover: Turnover, group: SessionHistory, base: Churn) -> list[Parameter]:
    """Members that come and go outside deploys."""
    hours, whole = group.member_hours, group.hours
    return [
        rate("crashes_per_member_hour", turnover.crashes, hours, base.crashes_per_member_hour, "crashes"),
        _startup("restart_ms", turnover.restarted_ms, base.restart_ms),
        rate(
            "replacements_per_member_hour",
            len(turnover.replaced_ms),
            hours,
            base.replacements_per_member_hour,
            "replacements outside deploys",
        ),
        rate("joins_per_hour", turnover.scaled_out, whole, base.joins_per_hour, "joins that took nobody's place"),
        rate("leaves_per_hour", turnover.scaled_in, whole, base.leaves_per_hour, "departures whose place nobody took"),
        Parameter(
            name="cuts_per_member_hour",
            value=0.0,
            basis="measured",
            observations=0,
            note="counted among the pauses: a member cut off and one that stands still look the same",
        ),
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
