"""How the shipped defaults are judged: by ratios to themselves, averaged over churns with very different costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import attrs
import numpy as np
import pytest

from cobalance.settings import GroupSettings
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.trials import Outcome
from proof.studies.shipped import NoSuchSweep, compare, sorted_out, verdict

SHIPPED = GroupSettings()
LONGER, EAGER = attrs.evolve(SHIPPED, revocation_timeout_ms=90_000), attrs.evolve(SHIPPED, gather_ms=0)
BOTH = attrs.evolve(LONGER, gather_ms=0)
Dearness = Callable[[GroupSettings], float]


def outcomes(
    churn: str, size: float, dearness: Dearness, failed: tuple[int, ...] = (), params: str = "{}"
) -> Iterator[Outcome]:
    """Runs of a minute; some seeds are dearer than others."""
    for seed in range(12):
        hard = np.random.default_rng(seed).lognormal(0, 0.3)
        for settings in (SHIPPED, LONGER, EAGER, BOTH):
            nothing = dict.fromkeys(("duplicates_at_risk", "moves", "deadline_moves", "false_expiries", "unhealed"), 0)
            ms = int(size * hard * dearness(settings))
            row: dict[str, Any] = {
                "unavailable_resource_ms": ms,
                "draining_resource_ms": 0,
                "observed_ms": 60_000,
                "heal_hist": {},
            }
            status = "failed" if seed in failed else "ok"
            yield {
                **attrs.asdict(settings),
                **nothing,
                **row,
                "churn": churn,
                "params": params,
                "seed": seed,
                "status": status,
            }


def judged(small: Dearness, large: Dearness) -> dict[str, Any]:
    """Two kinds of churn, of which the second costs a thousand times as much."""
    rows = [*outcomes("small", 1_000, small), *outcomes("large", 1_000_000, large, failed=(3,))]
    return verdict(compare(sorted_out(rows, SHIPPED), SHIPPED, Preferences()), SHIPPED)


def test_what_is_surely_better_everywhere_is_recommended() -> None:
    """A third less under the small churn, a fifth less under the large one: on average, 0.73 of the defaults' costs."""
    found = judged(lambda it: 0.667 if it == LONGER else 1.0, lambda it: 0.8 if it == LONGER else 1.0)
    assert found["decision"] == "change"
    assert found["recommended"]["changed"] == {"revocation_timeout_ms": 90_000}
    assert found["recommended"]["ratio"]["value"] == pytest.approx(0.73, abs=0.01)
    assert found["recommended"]["ratio"]["high"] < 0.74


def test_what_is_better_on_average_but_harms_somewhere_is_not() -> None:
    """Half under one churn, half as much again under the other."""
    found = judged(lambda it: 0.5 if it == LONGER else 1.0, lambda it: 1.5 if it == LONGER else 1.0)
    assert (found["decision"], found["recommended"]) == ("keep", None)
    assert found["best"][0]["changed"] == {"revocation_timeout_ms": 90_000}


def test_a_sweep_without_the_defaults_is_refused() -> None:
    """There is nothing to compare with."""
    rows = [row for row in outcomes("small", 1_000, lambda _: 1.0) if row["gather_ms"] == 0]
    with pytest.raises(NoSuchSweep, match="put them into its grid"):
        compare(sorted_out(rows, SHIPPED), SHIPPED, Preferences())


def test_of_what_is_worth_it_the_fewest_changes_are_recommended() -> None:
    """A second change that adds a little to the first is evidence of nothing."""
    found = judged(*[lambda it: {LONGER: 0.7, BOTH: 0.68}.get(it, 1.0)] * 2)
    assert found["best"][0]["changed"] == {"revocation_timeout_ms": 90_000, "gather_ms": 0}
    assert found["recommended"]["changed"] == {"revocation_timeout_ms": 90_000}


def test_a_churn_with_and_without_instance_ids_or_crash_detection_is_several_kinds() -> None:
    """Rows of the same name, settings and seed do not replace each other."""
    params = ("{}", '{"instances": true}', '{"crash_detection": true}')
    rows = [row for it in params for row in outcomes("crash_loop", 1, lambda _: 1.0, params=it)]
    assert sorted(sorted_out(rows, SHIPPED)) == [
        "crash_loop",
        "crash_loop, crashes seen at once",
        "crash_loop, instance ids",
    ]
