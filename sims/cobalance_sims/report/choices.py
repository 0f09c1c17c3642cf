"""The results of ``cobalance sims tune``, as the report draws them: choices of settings with the costs of each."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any

import attrs

from cobalance_sims.report.sources import SourceUnreadable


@attrs.frozen
class CostInterval:
    """One cost of one choice, with its interval."""

    value: float
    low: float
    high: float

    @classmethod
    def of(cls, found: Any) -> CostInterval:
        """Reads a number, or a mapping with value, low and high."""
        if isinstance(found, Mapping):
            value = _number(found["value"])
            return cls(value, _number(found.get("low", value)), _number(found.get("high", value)))
        return cls(_number(found), _number(found), _number(found))


@attrs.frozen
class Choice:
    """Settings and their costs."""

    name: str
    settings: Mapping[str, Any]
    costs: Mapping[str, CostInterval]
    total: CostInterval


@attrs.frozen
class Sensitivity:
    """One setting varied, the others as recommended."""

    setting: str
    points: tuple[tuple[float, CostInterval], ...]
    chosen: float | None


@attrs.frozen
class CheckedFigure:
    """One figure of the predictive check."""

    name: str
    unit: str
    observed: float | None
    predicted: CostInterval | None
    agreement: str

    @classmethod
    def of(cls, found: Mapping[str, Any]) -> CheckedFigure:
        """Reads it as verify/check.py writes it."""
        predicted = found["predicted"]
        return cls(
            str(found["name"]),
            str(found["unit"]),
            found["observed"],
            CostInterval.of(predicted) if predicted else None,
            str(found["agreement"]),
        )


@attrs.frozen(kw_only=True)
class Tuned:
    """The results of one search."""

    today: Choice
    recommended: Choice | None
    best: Choice | None
    """What a refusal found best, if that is not today's."""
    peers: tuple[Choice, ...]
    front: tuple[Choice, ...]
    """Choices that nothing tried surely beats in all costs that count."""
    others: tuple[Choice, ...]
    sensitivity: tuple[Sensitivity, ...]
    decision: str
    reasons: tuple[str, ...]
    trade: tuple[str, ...]
    """What the choice, or the best that was found, gives and takes."""
    collect: tuple[str, ...]
    command: str
    limits: Mapping[str, float]
    units: Mapping[str, str]
    gain: CostInterval | None = None
    """How much less the choice, or the best that was found, costs than today's settings, in resource-seconds a day."""
    mismatches: tuple[str, ...] = ()
    """In what the churn does not do what its journal shows."""
    figures: tuple[CheckedFigure, ...] = ()
    """The journal's figures beside the churn's; none for a churn that was not calibrated."""

    @property
    def named(self) -> tuple[Choice, ...]:
        """Choices with a name of their own."""
        best = self.recommended or self.best
        return (*((best,) if best else ()), self.today, *self.peers)

    @classmethod
    def read(cls, found: Mapping[str, Any]) -> Tuned:
        """Reads the JSON of ``cobalance sims tune``.

        Raises:
            SourceUnreadable: it lacks something, or is of another version.
        """
        try:
            return _read(found)
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            problem = f"{type(error).__name__}: {error}"
        raise SourceUnreadable(
            f"The recommendation is not of the form that this version reads ({problem}): run cobalance sims tune again."
        )


def _read(found: Mapping[str, Any]) -> Tuned:
    recommended = found["recommended"]
    if recommended and recommended["settings"] == found["today"]["settings"]:
        recommended = None  # they are kept
    best = found.get("best") if found.get("decision") == "refused" else None
    if best and best["settings"] == found["today"]["settings"]:
        best = None
    return Tuned(
        best=_choice("best found", best) if best else None,
        today=_choice("today", found["today"]),
        recommended=_choice("recommended", recommended) if recommended else None,
        peers=tuple(_choice(str(it.get("name", "")), it) for it in found.get("peers", ())),
        front=tuple(_choice("", it) for it in found["front"]),
        others=tuple(_choice("", it) for it in found["candidates"]),
        sensitivity=tuple(_sensitivity(it) for it in found.get("sensitivity", ())),
        decision=str(found.get("decision", "")),
        reasons=tuple(map(str, found.get("reasons", ()))),
        trade=tuple(map(str, found.get("trade", ()))),
        collect=tuple(map(str, found.get("collect", ()))),
        command=str(found.get("command", "") or ""),
        limits={str(name): float(limit) for name, limit in found.get("limits", {}).items()},
        units={str(name): str(unit) for name, unit in found.get("units", {}).items()},
        gain=CostInterval.of(found["gain"]) if found.get("gain") else None,
        mismatches=tuple(map(str, found.get("check", {}).get("mismatches", ()))),
        figures=tuple(map(CheckedFigure.of, found.get("check", {}).get("figures", ()))),
    )


def _choice(name: str, found: Mapping[str, Any]) -> Choice:
    costs = {str(cost): CostInterval.of(value) for cost, value in found["costs"].items()}
    return Choice(name, found["settings"], costs, CostInterval.of(found["total"]))


def _sensitivity(found: Mapping[str, Any]) -> Sensitivity:
    points = tuple(sorted((float(it["value"]), CostInterval.of(it["total"])) for it in found["points"]))
    chosen = found.get("chosen")
    return Sensitivity(str(found["setting"]), points, None if chosen is None else float(chosen))


def _number(value: Any) -> float:
    return float("inf") if value is None else float(value)


def span(cost: CostInterval) -> list[list[float]]:
    """Distances of the interval from the value, as matplotlib wants them; without values that have no bound."""
    high = cost.high if isfinite(cost.high) else cost.value
    return [[max(cost.value - cost.low, 0.0)], [max(high - cost.value, 0.0)]]
