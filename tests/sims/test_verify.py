"""The predictive check: a churn that does not do what its journal shows is noticed, named, and stops a search."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import attrs
import pytest
from tests.sims.test_calibrate import thin
from tests.sims.test_tune import DEPLOYS

from cobalance.cli.app import run as main
from cobalance.cli.sims.tune import REFUSED
from cobalance.cli.sims.verify import CODES
from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.calibration import Calibration, calibrate
from cobalance_sims.calibrate.parameter import rate
from cobalance_sims.calibrate.written import CHECK, write
from cobalance_sims.records import OUTCOME
from cobalance_sims.report.build import sections
from cobalance_sims.report.sources import read
from cobalance_sims.simulate.churn import CHURNS, Churn
from cobalance_sims.simulate.kernel import run_row
from cobalance_sims.tune.source import find
from cobalance_sims.verify import check as checking
from cobalance_sims.verify.as_journal import outcome_of, simulated_journal
from cobalance_sims.verify.check import check
from cobalance_sims.verify.comparison import Comparison, NothingPredicted, compare
from cobalance_sims.verify.promise import Promise, drifts, figures_of, page

SETTINGS = GroupSettings(session_timeout_ms=6_000, heartbeat_interval_ms=2_000, revocation_timeout_ms=10_000)
FROZEN = Churn(
    name="frozen",
    members=3,
    resources=6,
    length_ms=140_000,
    crashes_per_member_hour=20.0,
    restart_ms="lognormal:3000:0.3",
    pauses_per_member_hour=60.0,
    pause_ms="uniform:4000:12000",
)
STEADY_PAUSES = FROZEN.changed(name="short", pause_ms="lognormal:400:0.8")
WARM_MS = 20_000


def journals(churn: Churn, first: int, count: int) -> list[dict[str, Any]]:
    """What journals of this churn show, two minutes each."""
    return made(json.dumps(churn.table()), first, count)


@cache
def made(churn: str, first: int, count: int) -> list[dict[str, Any]]:
    """Made once."""
    given = attrs.asdict(SETTINGS)
    rows = [{"churn": json.loads(churn), "seed": seed, "run": f"g{seed}", "checks": "none", **given} for seed in range(first, first + count)]  # fmt: skip
    results = [simulated_journal(row, warm_ms=WARM_MS) for row in rows]
    return [dict(zip(OUTCOME.names, it.outcome, strict=True)) for it in results]


def calibration() -> Calibration:
    """Of a thin journal, in which pauses had to be assumed."""
    return calibrate(thin(), CHURNS["gc_pauses"], name="shop", session_timeout_ms=6_000, heartbeat_interval_ms=2_000)


def differing(found: list[Comparison]) -> set[str]:
    """The names of those that differ."""
    return {it.name for it in found if it.agreement == "differs"}


def test_a_simulated_run_is_read_as_a_journal() -> None:
    """What only a simulator knows changes nothing, and the dealing out at the beginning does not count."""
    given = {"churn": FROZEN.table(), "seed": 3, "checks": "none", **attrs.asdict(SETTINGS)}
    result = run_row(given)
    blind = [it._replace(unacked=None, silent_since_ms=None, alive=None) for it in result.events]
    found = outcome_of(result.events, "g", WARM_MS)
    assert found == outcome_of(blind, "g", WARM_MS)
    whole = outcome_of(result.events[1:], "g", WARM_MS)
    assert found["observed_ms"] <= whole["observed_ms"] - WARM_MS
    assert found["joins"] == whole["joins"] - 3


@pytest.mark.thorough
def test_a_churn_agrees_with_journals_of_its_own() -> None:
    """Of thirty journals, each beside the other runs, hardly any figure of any is said to differ."""
    runs = journals(FROZEN, 0, 30)
    wrong = [name for at, it in enumerate(runs) for name in differing(compare([it], runs[:at] + runs[at + 1 :]))]
    assert len(wrong) <= 6, wrong


@pytest.mark.thorough
def test_a_churn_without_its_long_pauses_is_found_out() -> None:
    """Freezes of 4 to 12 s were taken for pauses of 0.4 s: the false expiries differ, and their length is to blame."""
    found = compare(journals(FROZEN, 0, 30), journals(STEADY_PAUSES, 100, 30))
    assert "false_expiries" in differing(found)
    false = next(it for it in found if it.name == "false_expiries")
    assert false.blamed[0] == "pause_ms"
    told = check(calibration(), journals(FROZEN, 0, 30), journals(STEADY_PAUSES, 100, 30)).mismatches
    assert "To blame: pause_ms and pauses_per_member_hour (assumed: 0 late heartbeats" in told[0]
    assert all(it.endswith("To blame: the same.") for it in told[1:])


def test_what_follows_from_false_expiries_is_not_blamed_on_drains() -> None:
    """More members are taken for dead than predicted, so more moves: the pauses are named for both."""
    found = compare(journals(FROZEN, 0, 30), journals(STEADY_PAUSES, 100, 30))
    assert {it.blamed[0] for it in found if it.agreement == "differs"} == {"pause_ms"}


def test_a_longer_journal_is_known_more_precisely() -> None:
    """Beside the same runs, thirty journals together leave a narrower interval than one."""
    runs = journals(FROZEN, 0, 30)
    one, all_ = compare(runs[:1], runs), compare(runs, runs)
    widths = [next(it.predicted for it in found if it.name == "moves") for found in (one, all_)]
    assert all(widths)
    assert widths[1].high - widths[1].low < (widths[0].high - widths[0].low) / 3  # type: ignore[union-attr]


def test_runs_that_failed_predict_nothing() -> None:
    """The message says why they did."""
    failed = [{**it, "status": "failed", "error": "S1: two owners"} for it in journals(FROZEN, 0, 30)]
    with pytest.raises(NothingPredicted, match="S1: two owners"):
        compare(journals(FROZEN, 0, 30), failed)


@pytest.fixture
def mismatched(tmp_path: Path) -> Path:
    """The folder of a calibration whose churn does not do what its journal shows."""
    folder = tmp_path / "churn"
    write(calibration(), folder)
    (folder / "churn.json").write_text(json.dumps({**DEPLOYS.table(), "length_ms": 60_000, "deploy_every_ms": 30_000}))
    checking.write(check(calibration(), journals(FROZEN, 0, 30), journals(STEADY_PAUSES, 100, 30)), folder)
    return folder


@pytest.mark.thorough
def test_a_mismatch_stops_the_search(mismatched: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Unless it is asked for: then the mismatch comes with the result, and stands first on the report's page."""
    words = ["--churn", str(mismatched), "--in-process", "--seeds", "4", "--search", "gather", "--out", str(tmp_path / "tune.json")]  # fmt: skip
    assert main(["sims", "tune", *words]) == REFUSED
    said = capsys.readouterr().out
    assert "does not do what its journal shows" in said
    assert "False expiries" in said
    assert not (tmp_path / "tune.json").exists()
    assert main(["sims", "tune", *words, "--despite-mismatch"]) in {0, REFUSED}
    assert "DESPITE A MISMATCH: False expiries" in capsys.readouterr().out
    first, second = sections([read(str(tmp_path / "tune.json"))])[:2]
    assert first.title.startswith("Do not trust this")
    assert "False expiries" in first.text
    assert any(tile.tone == "alarm" for tile in first.tiles)
    assert "The churn beside its journal" in {table.title for table in second.tables}


def test_a_calibration_that_agrees_goes_on(mismatched: Path) -> None:
    """Its check holds no mismatch; a calibration of an older version has none at all, and is no mismatch either."""
    checking.write(check(calibration(), journals(FROZEN, 0, 30), journals(FROZEN, 0, 30)), mismatched)
    assert find(str(mismatched)).mismatches == []
    assert find(str(mismatched)).check["figures"]
    (mismatched / CHECK).unlink()
    assert find(str(mismatched)).mismatches == []


def with_crashes(count: int) -> Calibration:
    """A calibration from ten hours with this many crashes."""
    crashes = rate("crashes_per_member_hour", count, 10.0, 0.01, "crashes")
    return attrs.evolve(calibration(), parameters=[crashes])


def test_a_promise_that_did_not_come_true_is_told_with_what_has_changed() -> None:
    """Crashes have become ten times as frequent, and pauses long: the page says so beside the figures."""
    drifted = drifts(with_crashes(8), with_crashes(80))
    assert [it.name for it in drifted] == ["crashes_per_member_hour"]
    assert drifts(with_crashes(8), with_crashes(12)) == []
    were, are, predicted = journals(STEADY_PAUSES, 0, 5), journals(FROZEN, 0, 30), journals(STEADY_PAUSES, 100, 30)
    after = attrs.evolve(SETTINGS, gather_ms=0)
    broken = Promise(before=SETTINGS, after=after, were=figures_of(were), check=check(calibration(), are, predicted), drifts=drifted)  # fmt: skip
    told = page(broken)
    assert not broken.came_true
    assert told.startswith("THE PROMISE DID NOT COME TRUE")
    assert "crashes_per_member_hour was 0.8 (" in told
    assert "gather_ms" in told
    kept = attrs.evolve(broken, check=check(calibration(), predicted, predicted), drifts=[])
    assert kept.came_true
    assert page(kept).startswith("THE PROMISE CAME TRUE")


def test_a_journal_that_tells_nothing_keeps_no_promise(tmp_path: Path) -> None:
    """One entry: no figure can be compared. That is neither a success nor a failure, here and in the predictive check."""
    given = {"churn": FROZEN.table(), "seed": 3, "checks": "none", **attrs.asdict(SETTINGS)}
    one = run_row(given).events[8:9]
    checked = check(calibration(), [outcome_of(one, "g", WARM_MS)], journals(FROZEN, 0, 30))
    nothing = Promise(before=SETTINGS, after=SETTINGS, were={}, check=checked, drifts=[])
    assert not nothing.came_true
    assert page(nothing).startswith("WHETHER THE PROMISE CAME TRUE CANNOT BE TOLD")
    assert checking.page(checked).startswith("PREDICTIVE CHECK: NOTHING COULD BE COMPARED")
    kept = attrs.evolve(nothing, check=check(calibration(), journals(FROZEN, 0, 30), journals(FROZEN, 0, 30)))
    broken = attrs.evolve(kept, check=check(calibration(), journals(FROZEN, 0, 30), journals(STEADY_PAUSES, 100, 30)))
    assert [CODES[it.outcome] for it in (kept, broken, nothing)] == [0, 5, 6]
    write(calibration(), tmp_path)
    checking.write(checked, tmp_path)
    assert [find(str(tmp_path)).is_compared, find(str(tmp_path)).mismatches] == [False, []]
