"""An interrupted search resumes where it stopped, and comes to the same result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.sims.test_tune import DEPLOYS, REVOCATION, TODAY, Known

from cobalance_sims.simulate.churn import Churn
from cobalance_sims.tune.kept import Kept, NotKept
from cobalance_sims.tune.preferences import Preferences
from cobalance_sims.tune.trials import Asked, Outcome, Runner
from cobalance_sims.tune.tuning import tune
from cobalance_sims.tune.written import as_json


class Counting:
    """Known costs; counts its runs, and is interrupted after a given number."""

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
        result(Kept(first, file, DEPLOYS))
    assert 0 < len(first.made) <= 30
    with file.open("ab") as opened:
        opened.write(b'["half of a line\xff')
    second = Counting()
    assert result(Kept(second, file, DEPLOYS)) == wanted
    assert len(first.made) + len(second.made) == len(whole.made)
    third = Counting()
    assert result(Kept(third, file, DEPLOYS)) == wanted
    assert third.made == []


def test_a_file_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    """Not as a bare error, and not as one of Spark's."""
    (tmp_path / "tune.json.runs").mkdir()
    with pytest.raises(NotKept, match="cannot be read"):
        Kept(Known(), tmp_path / "tune.json.runs", DEPLOYS)
    with pytest.raises(NotKept, match="cannot be written"):
        Kept(Known(), tmp_path / "nowhere" / "runs", DEPLOYS)([(TODAY, 1)])


def test_runs_of_another_churn_are_others(tmp_path: Path) -> None:
    """They stay in the file, and are not mistaken for these."""
    file = tmp_path / "tune.json.runs"
    Kept(Known(), file, DEPLOYS)([(TODAY, 1)])
    other = Counting()
    kept = Kept(other, file, Churn(members=9))
    assert kept.count == 1
    kept([(TODAY, 1)])
    assert (len(other.made), kept.count) == (1, 2)
