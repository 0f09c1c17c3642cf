"""The predictive check of a calibration, and what it says: in words, as a table, and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from cobalance_sims.calibrate.interval import short
from cobalance_sims.calibrate.written import CHECK, table
from cobalance_sims.verify.comparison import Comparison, compare, differing, most_to_blame

if TYPE_CHECKING:
    from cobalance_sims.calibrate.calibration import Calibration
    from cobalance_sims.verify.as_journal import Outcome

RESTS_ON = {"few": "from little", "assumed": "assumed", "measured": "measured"}
SAID = {"agrees": "agrees", "differs": "DIFFERS", "unknown": "too few to tell"}


@attrs.frozen(kw_only=True)
class Check:
    """What a journal shows beside what its churn does."""

    comparisons: list[Comparison]
    runs: int
    mismatches: list[str]
    """A sentence for each figure that differs, which names the parameters to blame."""

    @property
    def is_compared(self) -> bool:
        """Whether there was enough of any figure to compare it."""
        return any(it.agreement != "unknown" for it in self.comparisons)


def check(calibration: Calibration, observed: Sequence[Outcome], predicted: Sequence[Outcome]) -> Check:
    """Compares.

    Raises:
        NothingPredicted: no run came to an end.
    """
    found = compare(observed, predicted)
    sentences, said = [], set[str]()
    for it in differing(found):
        blame = _blame(it, calibration)
        sentences.append(f"{difference(it)} To blame: {'the same' if blame in said else blame}.")
        said.add(blame)
    return Check(comparisons=found, runs=len(predicted), mismatches=sentences)


def difference(it: Comparison) -> str:
    """A sentence for a figure that differs."""
    name = words(it.name)
    return f"{name[0].upper()}{name[1:]}: the journal shows {_observed(it)} {it.unit}, the churn {it.predicted}."


def _blame(it: Comparison, calibration: Calibration) -> str:
    """The parameters to look at, each with what it rests on; those that rest on the same together."""
    bases: dict[str, str] = {known.name: known.basis for known in calibration.parameters}
    together: dict[str, list[str]] = {}
    for name in most_to_blame(it, bases):
        together.setdefault(_rests_on(name, calibration), []).append(name)
    return "; ".join(f"{' and '.join(names)} ({rest})" for rest, names in together.items())


def _rests_on(name: str, calibration: Calibration) -> str:
    known = next((it for it in calibration.parameters if it.name == name), None)
    if known is None:
        return f"assumed, as in {calibration.base}"
    note = f": {known.note}" if known.note else f", from {known.observations:,}" if known.observations else ""
    return f"{RESTS_ON[known.basis]}{note}"


def words(name: str) -> str:
    """The name of a figure for people."""
    return name.replace("_", " ")


def _observed(it: Comparison) -> str:
    return "" if it.observed is None else short(it.observed)


def figures_table(found: Sequence[Comparison], predicted: str = "CHURN (95 OF 100 SUCH JOURNALS)") -> list[str]:
    """A line for each figure."""
    rows = [("FIGURE", "JOURNAL", predicted, "")]
    rows += [
        (f"{words(it.name)}, {it.unit}", _observed(it), str(it.predicted or ""), SAID[it.agreement]) for it in found
    ]
    return table(rows)


def page(it: Check) -> str:
    """For people."""
    if it.mismatches:
        head = ["PREDICTIVE CHECK: THE CHURN DOES NOT DO WHAT ITS JOURNAL SHOWS", *it.mismatches]
    elif not it.is_compared:
        head = ["PREDICTIVE CHECK: NOTHING COULD BE COMPARED, as the journal is too short: collect a longer one."]
    else:
        head = ["PREDICTIVE CHECK: simulated, the churn does what its journal shows."]
    return "\n".join([*head, "", *figures_table(it.comparisons), f"{it.runs} runs under the settings in force.", ""])


def as_json(it: Check) -> dict[str, Any]:
    """For programs, and for ``tune`` and ``report``."""
    return {"mismatches": it.mismatches, "runs": it.runs, "figures": [attrs.asdict(each) for each in it.comparisons]}


def write(it: Check, folder: Path) -> None:
    """Writes it beside the calibration."""
    (folder / CHECK).write_text(json.dumps(as_json(it), indent=2) + "\n", encoding="utf-8")
