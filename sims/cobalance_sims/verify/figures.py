"""What is compared: figures that a journal shows, and which parameters of a churn each of them depends on."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import attrs

from cobalance_sims import histogram
from cobalance_sims.verify.as_journal import Outcome

DAY_MS = 86_400_000

FEW_EVENTS = 3.0
"""Fewer events more or less than predicted are no mismatch."""

ENOUGH = 5
"""From this many durations on, their mean is compared."""

HASTE_S = 0.02
"""What a real server may take for a handover beyond a simulated one."""


@attrs.frozen(kw_only=True)
class Figure:
    """A sum over runs (or groups) divided by another sum over them."""

    name: str
    unit: str
    amount: Callable[[Outcome], float]
    exposure: Callable[[Outcome], float]
    blamed: tuple[str, ...]
    """Parameters of a churn on which it hangs, the likeliest first."""
    trifle: Callable[[Sequence[Outcome]], float]
    """A difference that does not matter, in the figure's unit."""
    least: float = 0.0
    """The least exposure from which it is compared."""

    def value(self, outcomes: Sequence[Outcome]) -> float | None:
        """Over all of them; ``None`` if there is too little."""
        exposure = sum(map(self.exposure, outcomes))
        return sum(map(self.amount, outcomes)) / exposure if exposure and exposure >= self.least else None


def days(outcome: Outcome) -> float:
    """How long was observed."""
    return float(outcome["observed_ms"]) / DAY_MS


def _column(name: str, factor: float = 1.0) -> Callable[[Outcome], float]:
    return lambda outcome: float(outcome[name]) * factor


def _few(outcomes: Sequence[Outcome]) -> float:
    return FEW_EVENTS / max(sum(map(days, outcomes)), 1e-9)


def _haste(outcomes: Sequence[Outcome]) -> float:
    return HASTE_S * float(sum(it["handovers"] for it in outcomes)) / max(sum(map(days, outcomes)), 1e-9)


def _sum(name: str, factor: float = 1.0) -> Callable[[Outcome], float]:
    return lambda outcome: (histogram.mean(outcome[name]) or 0.0) * sum(outcome[name].values()) * factor


def _number(name: str) -> Callable[[Outcome], float]:
    return lambda outcome: float(sum(outcome[name].values()))


def _per_day(name: str, column: str, unit: str, *blamed: str) -> Figure:
    return Figure(name=name, unit=f"{unit}/day", amount=_column(column), exposure=days, blamed=blamed, trifle=_few)


def _seconds(name: str, column: str, *blamed: str) -> Figure:
    amount = _column(column, 0.001)
    return Figure(name=name, unit="resource-s/day", amount=amount, exposure=days, blamed=blamed, trifle=_haste)


FALSE_EXPIRIES = _per_day(
    "false_expiries", "false_expiries", "members", "pause_ms", "pauses_per_member_hour", "cuts_per_member_hour"
)

CAUSES = (
    FALSE_EXPIRIES,
    _per_day("crashes", "crashes", "members", "crashes_per_member_hour"),
    _per_day("leaves", "leaves", "members", "deploy", "deploy_every_ms", "replacements_per_member_hour", "leaves_per_hour"),
    _per_day("joins", "joins", "members", "joins_per_hour", "deploy", "deploy_every_ms", "restart_ms"),
)  # fmt: skip
"""What members do. Where one of these is off, so is what follows from it, and its parameters are to blame."""

FIGURES = (
    FALSE_EXPIRIES,
    _per_day("moves", "moves", "moves", "members", "resources", "instances"),
    Figure(
        name="healing",
        unit="s from expiry",
        amount=_sum("heal_hist", 0.001),
        exposure=_number("heal_hist"),
        blamed=("instances", "restart_ms", "members"),
        trifle=lambda _: 0.25,
        least=ENOUGH,
    ),
    _seconds("unworked", "unowned_resource_ms", "restart_ms", "startup_ms", "instances"),
    _seconds("draining", "draining_resource_ms", "drain_ms", "drain_ms_of"),
    Figure(
        name="gaps",
        unit="ms a handover",
        amount=_sum("gap_hist"),
        exposure=_number("gap_hist"),
        blamed=("instances", "startup_ms", "restart_ms"),
        trifle=lambda _: HASTE_S * 1_000,
        least=ENOUGH,
    ),
)
"""What a group's users notice."""
