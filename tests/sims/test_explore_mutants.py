"""Planted bugs are found. All of them are scored by ``python -m cobalance_sims.mutants``."""

from __future__ import annotations

from pathlib import Path

import pytest

import cobalance
from cobalance_sims.explore.scope import SCOPES
from cobalance_sims.mutants.score import MUTANTS, UNCHANGED, judge

SECONDS = 60


def test_there_are_enough() -> None:
    """The issue asks for 25 at least, on both sides of the protocol."""
    assert len({it.name for it in MUTANTS}) == len(MUTANTS) >= 25
    assert {it.file.rpartition(".")[2] for it in MUTANTS} == {"lua", "py"}


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda it: it.name)
def test_every_bug_still_fits_its_file(mutant: object) -> None:
    """A bug whose text is no longer there plants nothing."""
    it = next(one for one in MUTANTS if one is mutant)
    text = (Path(str(cobalance.__file__)).parent / it.file).read_text("utf-8")
    assert text.count(it.old) == 1
    assert it.new != it.old
    assert set(it.scopes) <= set(SCOPES)


def test_without_a_bug_nothing_is_found() -> None:
    """Otherwise every bug would count as found."""
    assert (
        judge(
            UNCHANGED.__class__(name="unchanged", file="", old="", new="", breaks="", scopes=("2x1",)), SECONDS
        ).verdict
        == "survived"
    )


@pytest.mark.parametrize("name", ["early-grant", "no-recovery", "session-ends-early", "no-fencing", "no-abort"])
def test_a_planted_bug_is_found(name: str) -> None:
    """By the smallest scope, in seconds, with a story to read."""
    (mutant,) = (it for it in MUTANTS if it.name == name)
    score = judge(mutant, SECONDS)
    assert score.verdict == "killed"
    assert "WRONG" in score.story
