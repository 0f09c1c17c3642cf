"""One parameter of a churn, and what it rests on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import attrs

from cobalance_sims.calibrate.interval import Interval, poisson, short

Basis = Literal["measured", "few", "assumed"]
"""``few``: measured, but on too little to be sure. ``assumed``: not in the data, so as in the base churn."""

ENOUGH_EVENTS = 5
"""From this many events on there is a rate; its interval is then no wider than from a third to 2.3 times it."""


HALF = 0.5
"""An event, or half of one, that nobody saw: what is added to few."""

MOST_AN_HOUR = 100_000
"""The highest rate that a churn accepts; a very short journal may seem to have a higher one."""


@attrs.frozen(kw_only=True)
class Parameter:
    """One parameter, by its name in churn.Churn."""

    name: str
    value: Any
    basis: Basis
    observations: int
    interval: Interval | None = None
    """The interval of what it was computed from; in the unit of the parameter, or of a distribution's median."""
    note: str = ""
    """What is odd about it, or what to collect."""
    open: Mapping[str, float] = attrs.field(factory=dict)
    """What its data leave open; see drawing.py."""


def rate(name: str, count: int, hours: float, base: float, what: str) -> Parameter:
    """How often something happens in an hour of exposure. Below ``ENOUGH_EVENTS``, half an event is added to what was
    seen, and the base is taken if even the bound that follows from so few does not contradict it.
    """
    if hours <= 0:
        return Parameter(name=name, value=base, basis="assumed", observations=0, note="nobody was there")
    interval = poisson(count, hours)
    left_open = open_rate(count, hours, base)
    most = float(MOST_AN_HOUR)
    if count >= ENOUGH_EVENTS:
        return Parameter(
            name=name,
            value=min(round(interval.value, 6), most),
            basis="measured",
            observations=count,
            interval=interval,
            open=left_open,
        )
    need = f"{count} seen in {short(hours)} h: {ENOUGH_EVENTS} {what} are needed"
    if interval.low <= base <= interval.high:
        return Parameter(
            name=name,
            value=base,
            basis="assumed",
            observations=count,
            interval=interval,
            note=need,
            open=left_open,
        )
    cautious = (count + HALF) / hours
    return Parameter(
        name=name,
        value=min(round(cautious, 6), most),
        basis="few",
        observations=count,
        interval=interval,
        note=need,
        open=left_open,
    )


def open_rate(count: int, hours: float, base: float) -> dict[str, float]:
    """What this many events in this many hours leave open. Few of them are taken together with the base, which counts as half
    an event; what did not happen, and is not expected to, is left at 0.
    """
    if count >= ENOUGH_EVENTS:
        return {"mean": min(count / hours, MOST_AN_HOUR), "shape": float(count)}
    if not count and not base:
        return {}
    expected = HALF / base if base else 0.0
    return {"mean": min((count + HALF) / (hours + expected), MOST_AN_HOUR), "shape": count + HALF}
