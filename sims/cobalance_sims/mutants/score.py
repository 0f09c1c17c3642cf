"""Plants each bug in a copy of the sources and lets the explorer look for it."""

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
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Literal

import attrs

import cobalance
import cobalance_sims
from cobalance_sims.mutants import of_lua, of_python
from cobalance_sims.mutants.mutant import Mutant

MUTANTS = of_lua.MUTANTS + of_python.MUTANTS

UNCHANGED = Mutant(name="unchanged", file="", old="", new="", breaks="Nothing.")

Verdict = Literal["killed", "survived", "equivalent"]


@attrs.frozen
class Score:
    """What became of one bug."""

    name: str
    verdict: Verdict
    scope: str
    """Where it was killed."""
    noticed: str
    """The promise that was broken."""
    seconds: float
    story: str = ""


def main(args: Sequence[str] | None = None) -> int:
    """Scores all bugs, or those named; 0 unless one survives."""
    parser = argparse.ArgumentParser(
        prog="cobalance sims mutants", description="Plants bugs and looks whether they are found."
    )
    parser.add_argument("names", nargs="*", help="default: all")
    parser.add_argument("--processes", type=int, default=2)
    parser.add_argument("--seconds", type=float, default=120, help="of exploration, for each scope of a bug")
    parser.add_argument("--json", help="write the scores to this file")
    parser.add_argument("--stories", action="store_true", help="print the counterexamples")
    options = parser.parse_args(args)
    chosen = [it for it in MUTANTS if not options.names or it.name in options.names]
    with ThreadPoolExecutor(options.processes) as pool:
        if not _baseline_is_well(pool, chosen, options.seconds):
            return 2
        scores = []
        for score in pool.map(lambda it: judge(it, options.seconds), chosen):
            sys.stdout.write(f"{score.verdict:<10} {score.name:<26} {score.scope:<12} {score.noticed}\n")
            sys.stdout.write(f"{score.story}\n" if options.stories else "")
            sys.stdout.flush()
            scores.append(score)
    if options.json:
        Path(options.json).write_text(json.dumps([attrs.asdict(score) for score in scores], indent=1), "utf-8")
    killed = Counter(score.verdict for score in scores)
    sys.stdout.write(", ".join(f"{count} {verdict}" for verdict, count in sorted(killed.items())) + "\n")
    return 1 if killed["survived"] else 0


def _baseline_is_well(pool: ThreadPoolExecutor, chosen: list[Mutant], seconds: float) -> bool:
    """Where the sources as they are break a promise, every bug would count as found."""
    scopes = sorted({scope for it in chosen for scope in it.scopes})
    for score in pool.map(lambda scope: judge(attrs.evolve(UNCHANGED, scopes=(scope,)), seconds), scopes):
        if score.verdict == "killed":
            sys.stdout.write(f"without any planted bug {score.scope} breaks a promise:\n{score.story}\n")
            return False
    return True


def judge(mutant: Mutant, seconds: float) -> Score:
    """Plants one bug; the scopes look for it one after the other."""
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="cobalance-mutant-") as folder:
        plant(mutant, Path(folder))
        for scope in mutant.scopes:
            found = _explore(Path(folder), scope, seconds)
            if found is not None:
                return Score(mutant.name, "killed", scope, found[0], time.monotonic() - began, found[1])
    return Score(mutant.name, "equivalent" if mutant.equivalent else "survived", "", "", time.monotonic() - began)


def plant(mutant: Mutant, folder: Path) -> None:
    """A copy of both packages with the bug in it.

    Raises:
        ValueError: its text is not in the file exactly once; the file has changed and the bug has to follow.
    """
    for package in (cobalance, cobalance_sims):
        source = Path(str(package.__file__)).parent
        shutil.copytree(source, folder / source.name, ignore=shutil.ignore_patterns("__pycache__"))
    if mutant.name == UNCHANGED.name:
        return
    file = folder / "cobalance" / mutant.file
    text = file.read_text("utf-8")
    if text.count(mutant.old) != 1:
        raise ValueError(f"{mutant.name}: the text is {text.count(mutant.old)} times in {mutant.file}")
    file.write_text(text.replace(mutant.old, mutant.new), "utf-8")


def _explore(folder: Path, scope: str, seconds: float) -> tuple[str, str] | None:
    report = folder / "report.json"
    command = [sys.executable, "-m", "cobalance_sims.explore", scope, "--seconds", str(seconds), "--json", str(report)]
    environment = {**os.environ, "PYTHONPATH": str(folder)}
    done = subprocess.run(command, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    if done.returncode not in (0, 1) or not report.exists():
        raise RuntimeError(f"the explorer itself failed: {done.stderr[-2000:]}")
    (result,) = json.loads(report.read_text("utf-8"))
    report.unlink()
    found = result["result"]["found"]
    return None if found is None else (found["wrong"], result["story"])
