"""Plants each bug in a copy of the sources and runs its ladder."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import attrs

import cobalance
import cobalance_sims
import proof
from proof.mutants.mutant import Mutant
from proof.mutants.planted import MUTANTS
from proof.mutants.rungs import REPOSITORY

UNCHANGED = Mutant(name="unchanged", file="", old="", new="", breaks="Nothing.", rungs=())

SECONDS = 60.0
"""Time to explore each scope of a ladder: far more than any bug takes, or than a small scope takes to be complete."""

Verdict = Literal["killed", "survived", "equivalent"]


@attrs.frozen
class Score:
    """The result for one bug."""

    name: str
    digest: str
    verdict: Verdict
    rung: str
    """Where it was killed."""
    noticed: str
    """The promise that was broken."""


@attrs.frozen
class ScoredMutant:
    """A score, and the data that differ from run to run."""

    score: Score
    seconds: float
    story: str


def main(args: Sequence[str] | None = None) -> int:
    """Scores all bugs, or the named ones; returns 0 unless one survives."""
    options = _parser().parse_args(args)
    chosen = [it for it in MUTANTS if not options.names or it.name in options.names]
    began, scores = time.monotonic(), []
    with ThreadPoolExecutor(options.processes) as pool:
        broken = [it for it in pool.map(lambda rung: baseline(rung, options.seconds), _rungs(chosen)) if it is not None]
        for judged in broken:
            sys.stdout.write(f"without any planted bug a promise is broken: {judged.score.noticed}\n{judged.story}\n")
        if broken:
            return 2
        sys.stdout.write(f"without any bug nothing is found: {time.monotonic() - began:.0f} s\n")
        for judged in pool.map(lambda it: judge(it, options.seconds), chosen):
            _say(judged, options.stories)
            scores.append(judged.score)
    if options.json:
        Path(options.json).write_text(as_json(scores), "utf-8")
    counts = Counter(score.verdict for score in scores)
    summary = ", ".join(f"{count} {verdict}" for verdict, count in sorted(counts.items()))
    sys.stdout.write(f"{summary}; {time.monotonic() - began:.0f} s\n")
    return 1 if counts["survived"] else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cobalance sims mutants", description="Plants bugs and looks whether they are found."
    )
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of exploration, for each scope")
    parser.add_argument("--json", help="write the scores to this file")
    parser.add_argument("--stories", action="store_true", help="print the counterexamples")
    return parser


def _rungs(chosen: Sequence[Mutant]) -> list[str]:
    return sorted({rung for it in chosen for rung in it.rungs})


def _say(judged: ScoredMutant, stories: bool) -> None:  # private
    it = judged.score
    sys.stdout.write(f"{it.verdict:<10} {it.name:<28} {it.rung:<20} {judged.seconds:5.1f} s  {it.noticed}\n")
    sys.stdout.write(f"{judged.story}\n" if stories and judged.story else "")
    sys.stdout.flush()


def as_json(scores: Sequence[Score]) -> str:
    """Always the same for the same sources."""
    return json.dumps([attrs.asdict(score) for score in scores], indent=1) + "\n"


def baseline(rung: str, seconds: float) -> ScoredMutant | None:
    """If the unchanged sources broke a promise, every bug would count as found."""
    judged = judge(attrs.evolve(UNCHANGED, rungs=(rung,)), seconds)
    return judged if judged.score.verdict == "killed" else None


def judge(mutant: Mutant, seconds: float = SECONDS) -> ScoredMutant:
    """Plants one bug; its rungs look for it one after the other."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cobalance-mutant-") as folder:
        plant(mutant, Path(folder))
        found = _climb(Path(folder), mutant.rungs, seconds)
    took = time.monotonic() - began
    if found is not None:
        score = Score(mutant.name, mutant.digest, "killed", found["rung"], found["wrong"])
        return ScoredMutant(score, took, found["story"])
    return ScoredMutant(
        Score(mutant.name, mutant.digest, "equivalent" if mutant.equivalent else "survived", "", ""), took, ""
    )


def plant(mutant: Mutant, folder: Path) -> None:
    """Copies both packages with the bug in them.

    Raises:
        ValueError: its text is not in the file exactly once; the file has changed and the bug has to follow.
    """
    for package in (cobalance, cobalance_sims, proof):
        source = Path(str(package.__file__)).parent
        # Compiled files are copied too: they stay valid where nothing changes.
        shutil.copytree(source, folder / source.name)
    if mutant.name == UNCHANGED.name:
        return
    file = folder / "cobalance" / mutant.file
    text = file.read_text("utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: the text is {text.count(mutant.old)} times in {mutant.file}")
    file.write_text(text.replace(mutant.old, mutant.new), "utf-8")


def _climb(folder: Path, rungs: Sequence[str], seconds: float) -> Any:
    command = [sys.executable, "-m", "proof.mutants.rungs", *rungs, "--seconds", str(seconds)]
    environment = {
        **os.environ,
        "PYTHONPATH": str(folder),
        "PYTHONHASHSEED": "0",  # of several, the first one counts
        REPOSITORY: str(Path(str(cobalance.__file__)).parents[2]),
    }
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the checkers themselves failed: {done.stderr[-2000:]}")
    return json.loads(done.stdout)


def stale(scores: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Says where the scores do not match the bugs planted now: what was added, changed or dropped since."""
    scored = {it["name"]: it["digest"] for it in scores}
    planted = {it.name: it.digest for it in MUTANTS}
    for name in sorted(scored.keys() | planted.keys()):
        if scored.get(name) != planted.get(name):
            yield f"{name} has to be scored again"
