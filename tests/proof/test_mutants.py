"""Planted bugs are found. All of them are scored by ``python -m proof.mutants``; its scores are in ``sims/proof``."""

from __future__ import annotations

from pathlib import Path

import attrs
import pytest

import cobalance
from proof.document import FIGURES, figures
from proof.mutants.mutant import Mutant
from proof.mutants.planted import MUTANTS
from proof.mutants.rungs import is_known
from proof.mutants.score import UNCHANGED, Score, as_json, judge, stale

SAMPLE = (
    "early-grant",
    "no-recovery",
    "session-ends-early",
    "clock-may-step-back",
    "no-fencing",
    "no-abort",
    "lease-from-the-reply",
)


def _named(name: str) -> Mutant:
    return next(it for it in MUTANTS if it.name == name)


def test_there_are_enough() -> None:
    """At least 25, on both sides of the protocol."""
    assert len({it.name for it in MUTANTS}) == len(MUTANTS) >= 25
    assert {it.file.rpartition(".")[2] for it in MUTANTS} == {"lua", "py"}


def test_there_are_enough_of_partitions() -> None:
    """At least 40: in the core, in order by key, its adapter, workers, streams' commits and locks, and publishers' confirms."""
    files = [it.file.removeprefix("rabbitmq/") for it in MUTANTS if it.file.startswith("rabbitmq/")]
    assert len(files) >= 40
    assert {it.partition("/")[0] for it in files} == {"partition", "consume", "streams", "publish", "wire"}
    assert {"partition/core.py", "partition/key_order.py", "partition/partition.py"} <= set(files)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda it: it.name)
def test_every_bug_still_fits_its_file(mutant: Mutant) -> None:
    """A bug whose text is no longer there plants nothing."""
    text = (Path(str(cobalance.__file__)).parent / mutant.file).read_text("utf-8")
    assert text.count(mutant.old) == 1
    assert mutant.new != mutant.old
    assert mutant.rungs
    assert all(is_known(rung) for rung in mutant.rungs)


def test_every_bug_has_been_scored_and_none_survived() -> None:
    """A bug that is added or changed is scored before it is committed."""
    scores = figures("mutants")
    assert list(stale(scores)) == []
    assert [it["name"] for it in scores if it["verdict"] == "survived"] == []
    assert [it["name"] for it in scores if it["verdict"] == "equivalent"] == [
        it.name for it in MUTANTS if it.equivalent
    ]


def test_a_bug_that_was_never_scored_is_missed() -> None:
    """So is one whose text has changed since, and one that is no longer planted."""
    scores = [{"name": it.name, "digest": it.digest} for it in MUTANTS]
    assert list(stale(scores)) == []
    assert list(stale(scores[1:])) == [f"{MUTANTS[0].name} has to be scored again"]
    changed = attrs.evolve(MUTANTS[0], new="something else")
    assert list(stale([{"name": changed.name, "digest": changed.digest}, *scores[1:]]))
    assert list(stale([*scores, {"name": "gone", "digest": ""}])) == ["gone has to be scored again"]


def test_the_file_of_scores_is_as_the_command_writes_it() -> None:
    """It is not edited by hand."""
    text = (FIGURES / "mutants.json").read_text("utf-8")
    assert as_json([Score(**it) for it in figures("mutants")]) == text


@pytest.mark.parametrize("rung", ["2x1", "everything@1"])
def test_without_a_bug_nothing_is_found(rung: str) -> None:
    """Otherwise every bug would count as found."""
    assert judge(attrs.evolve(UNCHANGED, rungs=(rung,))).score.verdict == "survived"


@pytest.mark.parametrize("name", SAMPLE)
@pytest.mark.thorough
def test_a_planted_bug_is_found(name: str) -> None:
    """By its cheapest rung, in seconds, with a readable story."""
    judged = judge(_named(name))
    assert judged.score.verdict == "killed"
    assert judged.story
