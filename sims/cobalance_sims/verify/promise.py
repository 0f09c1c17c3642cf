"""Whether new settings did what they promised: the old journal's churn under them, beside the journal that they made.

The life of a group may have changed meanwhile. So its parameters are compared as well: a promise that was made for
another life could not come true.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal

import attrs

from cobalance_sims.calibrate.interval import Interval, short
from cobalance_sims.calibrate.written import table
from cobalance_sims.verify.check import SAID, Check, words
from cobalance_sims.verify.comparison import Comparison
from cobalance_sims.verify.figures import FIGURES

if TYPE_CHECKING:
    from cobalance.settings import GroupSettings
    from cobalance_sims.calibrate.calibration import Calibration
    from cobalance_sims.verify.as_journal import Outcome

PromiseOutcome = Literal["kept", "broken", "unknown"]

_HEADS: dict[PromiseOutcome, str] = {
    "kept": "THE PROMISE CAME TRUE",
    "broken": "THE PROMISE DID NOT COME TRUE",
    "unknown": "WHETHER THE PROMISE CAME TRUE CANNOT BE TOLD: the journal from after is too short. Collect a longer one.",
}


@attrs.frozen
class Drift:
    """A parameter that has changed: its two intervals have nothing in common."""

    name: str
    before: Interval
    after: Interval

    def __str__(self) -> str:
        return f"{self.name} was {self.before}, and is {self.after} now"


@attrs.frozen(kw_only=True)
class Promise:
    """What was promised, and what came of it."""

    before: GroupSettings
    after: GroupSettings
    were: Mapping[str, float | None]
    """The figures of the old journal."""
    check: Check
    """The new journal beside the old churn under the new settings."""
    drifts: list[Drift]

    @property
    def outcome(self) -> PromiseOutcome:
        """It came true if some figure could be compared, and none differs."""
        if self.check.mismatches:
            return "broken"
        return "kept" if self.check.is_compared else "unknown"

    @property
    def came_true(self) -> bool:
        """Whether it is known to have come true."""
        return self.outcome == "kept"


def drifts(before: Calibration, after: Calibration) -> list[Drift]:
    """The parameters that have surely changed."""
    earlier = {it.name: it.interval for it in before.parameters if it.basis == "measured" and it.interval}
    later = {it.name: it.interval for it in after.parameters if it.basis == "measured" and it.interval}
    both = [Drift(name, it, later[name]) for name, it in earlier.items() if name in later]
    return [it for it in both if it.before.high < it.after.low or it.after.high < it.before.low]


def figures_of(outcomes: Sequence[Outcome]) -> dict[str, float | None]:
    """Each of FIGURES, by its name."""
    return {it.name: it.value(outcomes) for it in FIGURES}


def page(it: Promise) -> str:
    """For people."""
    lines = [_HEADS[it.outcome], *it.check.mismatches]
    if it.drifts:
        lines += ["The group lives otherwise than it did:", *(f"  {drift}" for drift in it.drifts)]
    else:
        lines += ["Nothing that both journals tell says that the group lives otherwise than it did."]
    lines += ["", *_settings(it), "", *_figures(it), f"{it.check.runs} runs of the old churn under the new settings."]
    return "\n".join(lines) + "\n"


def _settings(it: Promise) -> list[str]:
    before, after = attrs.asdict(it.before), attrs.asdict(it.after)
    rows = [(name, f"{before[name]:,}", f"{after[name]:,}") for name in before if before[name] != after[name]]
    return table([("SETTING", "BEFORE", "AFTER"), *rows]) if rows else ["The settings are the same."]


def _figures(it: Promise) -> list[str]:
    return table(
        [
            ("FIGURE", "BEFORE", "PROMISED (95 OF 100 SUCH JOURNALS)", "AFTER", ""),
            *(_row(it, found) for found in it.check.comparisons),
        ]
    )


def _row(it: Promise, found: Comparison) -> tuple[str, ...]:
    were = it.were.get(found.name)
    return (
        f"{words(found.name)}, {found.unit}",
        "" if were is None else short(were),
        str(found.predicted or ""),
        "" if found.observed is None else short(found.observed),
        SAID[found.agreement],
    )
