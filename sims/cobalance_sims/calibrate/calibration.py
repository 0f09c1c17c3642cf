"""The complete calibration: from the tallies to a churn, and for each of its parameters what it rests on."""

from __future__ import annotations

import attrs

from cobalance.errors import CobalanceError, counted
from cobalance_sims.calibrate import handling, of_group, of_work, pauses
from cobalance_sims.calibrate.deploys import Turnover, sort_out
from cobalance_sims.calibrate.durations import Durations
from cobalance_sims.calibrate.handling import HandlingTimes
from cobalance_sims.calibrate.membership import SessionHistory, membership
from cobalance_sims.calibrate.parameter import Basis, Parameter
from cobalance_sims.calibrate.pauses import Pauses
from cobalance_sims.calibrate.tallies import Tallies
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.simulate.distributions import LogNormal


class NothingToCalibrate(CobalanceError):
    """The events describe no group."""


@attrs.frozen(kw_only=True)
class Calibration:
    """What the events say, and the churn that follows."""

    name: str
    base: str
    """The churn that provides what the events do not."""
    events: int
    missing_events: int
    runs: list[str]
    source: str
    """Source of the events: journal or sim."""
    group: SessionHistory
    turnover: Turnover
    drains: Durations
    drains_of: dict[str, Durations]
    """Resources that drain otherwise than all others together."""
    handling: HandlingTimes
    pauses: Pauses
    parameters: list[Parameter]
    settings: dict[str, int | str]
    """Today's settings, as far as the events show them."""
    notes: list[str]

    def churn(self) -> Churn:
        """The churn for ``tune`` and ``sweep``."""
        values = {it.name: it.value for it in self.parameters}
        summary = f"calibrated from {self.events} events of {', '.join(self.runs[:3])}"
        return Churn.of({"base": self.base, **values, "name": self.name, "summary": summary})

    def basis(self, name: str) -> Basis:
        """What a parameter of the churn rests on."""
        return next((it.basis for it in self.parameters if it.name == name), "assumed")


def calibrate(
    tallies: Tallies,
    base: Churn,
    *,
    name: str,
    session_timeout_ms: int,
    heartbeat_interval_ms: int,
    prefetch: int | None = None,
) -> Calibration:
    """Fits everything. ``base`` provides what the events do not; the two settings are those that were in force, and the
    prefetch, which no event tells, that of the consumers.

    Raises:
        NothingToCalibrate: there is no event of a member.
    """
    group = membership(tallies.lives, tallies.windows)
    if not tallies.lives or group.hours <= 0:
        raise NothingToCalibrate(
            "No event tells of a member, so there is nothing to calibrate. Were these the right group and time?"
        )
    turnover = sort_out(group, session_timeout_ms, heartbeat_interval_ms)
    drains, own = of_work.apart(tallies.drains)
    handled = handling.describe(tallies.handlers.values())
    length = base.pause_ms if isinstance(base.pause_ms, LogNormal) else LogNormal(base.pause_ms.quantile(0.5), 1.0)
    late = pauses.with_returns(tallies.late, tallies.returns, session_timeout_ms, heartbeat_interval_ms)
    stops = pauses.describe(late, heartbeat_interval_ms, length)
    parameters = [
        *of_group.size(tallies, group, turnover, base),
        *of_group.deploys(turnover, group, base),
        *of_group.rates(turnover, group, base),
        *of_work.stops(stops, base),
        *of_work.drains(drains, own, base),
        *of_work.messages(handled, base),
        of_work.prefetch(prefetch, base),
        *of_group.unreported(base),
    ]
    return Calibration(
        name=name,
        base=base.name,
        events=sum(it.events for it in tallies.windows),
        missing_events=sum(it.missing for it in tallies.windows),
        runs=[it.run for it in tallies.windows],
        source=tallies.windows[0].source,
        group=group,
        turnover=turnover,
        drains=drains,
        drains_of=own,
        handling=handled,
        pauses=stops,
        parameters=[*parameters, of_group.length(parameters, base)],
        settings=tallies.settings,
        notes=_notes(tallies),
    )


def _notes(tallies: Tallies) -> list[str]:
    notes = []
    missing = sum(it.missing for it in tallies.windows)
    if missing:
        notes.append(
            f"{counted(missing, 'event')} missing, since the journal was trimmed: rates are too low by about their share."
        )
    if len(tallies.windows) > 1:
        notes.append(f"{len(tallies.windows)} groups or runs are taken together as one kind of group.")
    return notes
