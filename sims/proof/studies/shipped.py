"""Judges the defaults that Cobalance ships (``GroupSettings``) by a sweep over many kinds of churn.

    make defaults ARGS="SWEEP --out sims/proof/studies/defaults/now.json"

One kind of churn costs a hundred times what another does, so costs are compared with those of the defaults under the
same churn and the same seeds, and these ratios are averaged (their logarithms are) with every kind of churn counting
the same. A default should be changed only if another value is surely better by a tenth on average, and not surely worse
by a quarter anywhere; of several such choices the one that changes the fewest settings is recommended.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from cobalance.errors import CobalanceError
from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.interval import Interval
from cobalance_sims.tune.bootstrap import Draws
from cobalance_sims.tune.costs import COSTS, estimates
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.trials import Outcome, settings_of

WORTH = 0.9
"""A change must surely bring costs below this ratio, on average."""

HARM = 1.25
"""And must not surely bring them above this one, under any churn."""

LEAST_SEEDS = 8
"""The seeds that two choices must have in common to be compared."""

COLUMNS = ("churn", "params", "seed", "status", "observed_ms", "unavailable_resource_ms", "draining_resource_ms", "duplicates_at_risk", "moves", "deadline_moves", "false_expiries", "heal_hist", "unhealed")  # fmt: skip
"""Columns of the outcomes, besides the settings."""


class NoSuchSweep(CobalanceError):
    """The sweep does not hold what the judgement needs."""


@attrs.frozen(kw_only=True, eq=False)
class Compared:
    """Settings against the defaults."""

    settings: GroupSettings
    by_churn: dict[str, Interval]
    """Their cost as a multiple of the defaults' cost under that churn."""
    ratio: Interval
    """The same on average."""

    @property
    def is_worth_it(self) -> bool:
        """By the rule above."""
        return self.ratio.high < WORTH and all(it.low <= HARM for it in self.by_churn.values())

    def as_json(self, shipped: GroupSettings) -> dict[str, Any]:
        """What differs, and the ratios."""
        before = attrs.asdict(shipped)
        changed = {name: it for name, it in attrs.asdict(self.settings).items() if it != before[name]}
        return {
            "changed": changed,
            "ratio": _rounded(self.ratio),
            "by_churn": {name: _rounded(it) for name, it in self.by_churn.items()},
        }


def _rounded(it: Interval) -> dict[str, float]:
    return {name: float(f"{value:.4g}") for name, value in attrs.asdict(it).items()}


Runs = dict[str, dict[GroupSettings, dict[int, Outcome]]]
"""By churn, settings and seed."""


def sorted_out(outcomes: Iterable[Outcome], shipped: GroupSettings) -> Runs:
    """Groups the outcomes; failed runs are left out."""
    runs: Runs = defaultdict(lambda: defaultdict(dict))
    for row in outcomes:
        if row["status"] == "ok":
            runs[_kind_of(row)][settings_of(row, shipped)][row["seed"]] = row
    return runs


def _kind_of(row: Outcome) -> str:
    """Processes that come back under their names are another kind of churn than those that do not; so are those whose
    crashes are seen at once.
    """
    params = json.loads(row["params"])
    words = ((params.get("instances"), "instance ids"), (params.get("crash_detection"), "crashes seen at once"))
    return ", ".join([str(row["churn"]), *[word for holds, word in words if holds]])


def compare(runs: Runs, shipped: GroupSettings, preferences: Preferences) -> list[Compared]:
    """Returns every choice that was run with enough of the defaults' seeds, best first.

    Raises:
        NoSuchSweep: there is none.
    """
    choices = set().union(*(set(found) for found in runs.values())) if runs else set()
    compared = [it for choice in choices if (it := _compared(choice, runs, shipped, preferences)) is not None]
    if not compared:
        raise NoSuchSweep(
            f"No churn of the sweep was run with the shipped defaults and {LEAST_SEEDS} seeds in common with another choice: put "
            "them into its grid, or let it finish."
        )
    return sorted(compared, key=lambda it: it.ratio.value)


def _compared(settings: GroupSettings, runs: Runs, shipped: GroupSettings, preferences: Preferences) -> Compared | None:
    """A setting that only concerns instance ids was run only under churns that have them."""
    logs = {}
    for churn in sorted(runs):
        ours, theirs = runs[churn].get(settings, {}), runs[churn].get(shipped, {})
        seeds = sorted(ours.keys() & theirs.keys())
        if len(seeds) < LEAST_SEEDS:
            continue
        draws = Draws.of(len(seeds))
        mine, base = (
            _totals([them[seed] for seed in seeds], it, preferences, draws)
            for them, it in ((ours, settings), (theirs, shipped))
        )
        if base.min() > 0:
            logs[churn] = np.log(np.maximum(mine, 1e-9) / base)
    if not logs:
        return None
    return Compared(
        settings=settings,
        by_churn={churn: _interval(it) for churn, it in logs.items()},
        ratio=_interval(np.mean(list(logs.values()), axis=0)),
    )


def _totals(rows: list[Outcome], settings: GroupSettings, preferences: Preferences, draws: Draws) -> np.ndarray:
    """What settings cost a day: the value, then each draw."""
    costs = estimates(rows, settings)
    value = preferences.total({name: it.value for name, it in costs.items()})
    drawn = preferences.total({name: it.drawn(draws) for name, it in costs.items()})
    return np.concatenate(([float(value)], np.asarray(drawn)))


def _interval(logs: np.ndarray) -> Interval:
    low, high = np.quantile(logs[1:], (0.025, 0.975))
    value = float(logs[0])
    return Interval(math.exp(value), math.exp(min(float(low), value)), math.exp(max(float(high), value)))


def verdict(compared: Sequence[Compared], shipped: GroupSettings) -> dict[str, Any]:
    """What to do about the defaults, with the evidence. Only choices run under every churn compete."""
    churns = max(len(it.by_churn) for it in compared)
    everywhere = [it for it in compared if len(it.by_churn) == churns]
    single = [it for it in compared if _changes(it.settings, shipped) == 1]
    worth = min((it for it in everywhere if it.is_worth_it), key=lambda it: _order(it, shipped), default=None)
    return {
        "decision": "change" if worth else "keep",
        "recommended": worth.as_json(shipped) if worth else None,
        "shipped": attrs.asdict(shipped),
        "churns": sorted(set().union(*(it.by_churn for it in compared))),
        "one_setting_changed": [it.as_json(shipped) for it in single],
        "best": [it.as_json(shipped) for it in everywhere[:5]],
        "worst": [it.as_json(shipped) for it in everywhere[-3:]],
        "rule": f"change where the interval of the mean ratio lies below {WORTH} and that of no churn above {HARM}; of these, the fewest changes",
        "weights": {name: cost.weight for name, cost in COSTS.items()},
    }


def _order(compared: Compared, shipped: GroupSettings) -> tuple[int, float]:
    """Of choices that are worth it, the one that changes least: the benefit of a further change is not certain."""
    return _changes(compared.settings, shipped), compared.ratio.value


def _changes(settings: GroupSettings, shipped: GroupSettings) -> int:
    ours, theirs = attrs.asdict(settings), attrs.asdict(shipped)
    return sum(ours[name] != theirs[name] for name in ours)


def _setting(word: str) -> tuple[str, int]:
    name, _, ms = word.partition("=")
    if name not in attrs.asdict(GroupSettings()) or not ms.isdigit():
        raise argparse.ArgumentTypeError(
            f"{word!r} is no setting of a group with a number: give session_timeout_ms=10000 or the like"
        )
    return name, int(ms)


def main(words: Sequence[str] | None = None) -> int:
    """Runs the command at the top."""
    from cobalance_sims.records import SETTINGS
    from cobalance_sims.spark.errors import spark_errors
    from cobalance_sims.spark.session import spark_session
    from cobalance_sims.spark.tables import read_sweep

    parser = argparse.ArgumentParser(prog="make defaults")
    parser.add_argument("sweep")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument(
        "--instead",
        nargs="+",
        type=_setting,
        default=[],
        metavar="SETTING=MS",
        help="judge the defaults with these changed (former ones)",
    )
    parser.add_argument("--master", metavar="URL", help="where Spark runs; this machine by default")
    options = parser.parse_args(words)
    with spark_session(options.master) as spark, spark_errors("reading the outcomes"):
        table = read_sweep(spark, options.sweep).outcomes.select(*COLUMNS, *(it.name for it in SETTINGS)).toArrow()
    rows = [{**row, "heal_hist": dict(row["heal_hist"] or ())} for row in table.to_pylist()]
    shipped = attrs.evolve(GroupSettings(), **dict(options.instead))
    found = verdict(compare(sorted_out(rows, shipped), shipped, Preferences()), shipped)
    found["runs"] = len(rows)
    found["failed"] = sum(row["status"] != "ok" for row in rows)
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    sys.stdout.write(f"{found['decision']}: {json.dumps(found['recommended'] or found['best'][0])}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
