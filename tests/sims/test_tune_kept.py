"""An interrupted search resumes where it stopped, and comes to the same result."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.sims.test_tune import DEPLOYS, REVOCATION, TODAY, Known

from cobalance.cli.app import run as main
from cobalance.cli.exits import INTERRUPTED
from cobalance_sims.simulate.churn import Churn
from cobalance_sims.simulate.kernel import RowResult, run_row
from cobalance_sims.spark.errors import SparkFailed
from cobalance_sims.tune import runners
from cobalance_sims.tune.kept import Kept, NotKept
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.trials import Asked, Outcome, Runner
from cobalance_sims.tune.tuning import tune
from cobalance_sims.tune.written import as_json


class Counting:
    """Known costs; counts its runs, and is interrupted after a given number."""

    at_once = 20

    def __init__(self, patience: int = 1_000_000) -> None:
        self.made: list[Asked] = []
        self.patience = patience

    def __call__(self, asked: Sequence[Asked]) -> list[Outcome]:
        if len(self.made) + len(asked) > self.patience:
            raise KeyboardInterrupt
        self.made += asked
        return Known()(asked)


def result(runner: Runner) -> str:
    """The result of a search, to the last digit."""
    return json.dumps(as_json(tune(runner, TODAY, REVOCATION, Preferences(), seeds=8), churn={}, group="g"))


def test_an_interrupted_search_goes_on(tmp_path: Path) -> None:
    """No run is repeated except a torn last line, and the recommendation is that of an undisturbed search."""
    file, whole = tmp_path / "tune.json.runs", Counting()
    wanted = result(whole)
    first = Counting(patience=30)
    with pytest.raises(KeyboardInterrupt):
        result(Kept(file, DEPLOYS, first))
    assert 0 < len(first.made) <= 30
    with file.open("ab") as opened:
        opened.write(b'["half of a line\xff')
    second = Counting()
    assert result(Kept(file, DEPLOYS, second)) == wanted
    assert len(first.made) + len(second.made) == len(whole.made)
    third = Counting()
    assert result(Kept(file, DEPLOYS, third)) == wanted
    assert third.made == []


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Not as a bare error, and not as one of Spark's."""
    (tmp_path / "tune.json.runs").mkdir()
    with pytest.raises(NotKept, match="cannot be read"):
        Kept(tmp_path / "tune.json.runs", DEPLOYS)
    with pytest.raises(NotKept, match="cannot be written"):
        Kept(tmp_path / "nowhere" / "runs", DEPLOYS, Counting())([(TODAY, 1)])


def test_runs_of_another_churn_are_others(tmp_path: Path) -> None:
    """They stay in the file, and are not mistaken for these."""
    file = tmp_path / "tune.json.runs"
    Kept(file, DEPLOYS, Counting())([(TODAY, 1)])
    other = Counting()
    kept = Kept(file, Churn(members=9), other)
    assert kept.count == 1
    kept([(TODAY, 1)])
    assert (len(other.made), kept.count) == (1, 2)


def test_ctrl_c_is_one_line_and_keeps_every_finished_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Interrupted in its fourth run, the command ends with 130, and three runs are in its file. What fails after that is
    not shown, as Spark's broken conversations are not.
    """
    made = 0

    def interrupted(row: dict[str, Any]) -> RowResult:
        nonlocal made
        made += 1
        if made == 4:
            try:
                os.kill(os.getpid(), signal.SIGINT)
            finally:
                raise SparkFailed("awaitResult")
        return run_row(row)

    monkeypatch.setattr(runners, "run_row", interrupted)
    (tmp_path / "churn.json").write_text(json.dumps(DEPLOYS.changed(length_ms=20_000).table()))
    out = tmp_path / "tune.json"
    words = ["--churn", str(tmp_path / "churn.json"), "--out", str(out), "--in-process", "--search", "gather"]
    assert main(["sims", "tune", *words]) == INTERRUPTED
    last = capsys.readouterr().err.splitlines()[-1]
    assert last == f"error: interrupted: 3 runs are kept in {out}.runs; the same command goes on from there"
    assert Kept(tmp_path / "tune.json.runs", DEPLOYS).count == 3
