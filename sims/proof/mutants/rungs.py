"""Where a planted bug is looked for: a ladder of rungs, the cheapest first.

A rung is a scope of the explorer (``2x1``, ``1q``), a scenario of the simulator with one seed or several (``clock_steps@1..5``),
or random histories of one partition's tenure (``histories@1..4000``), or of what a stream's reader meets
(``streams@…``), or tests: a file of them, without those that need a server, or one test by its name
(``tests/rabbitmq/partition/test_acks.py``). This module is run where the bug is planted: ``python -m
proof.mutants.rungs RUNG … --seconds S``.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import attrs

from proof.explore.cli import ALL_SCOPES, Exploration, run
from proof.partitions.broker import BrokenHistory
from proof.partitions.stream_walk import read_on
from proof.partitions.walk import walk
from proof.stories.scenarios import SCENARIOS, story

WALKS = {"histories": walk, "streams": read_on}

TESTS = "tests/"

REPOSITORY = "COBALANCE_REPOSITORY"
"""The environment variable that says where the tests are, from where a bug is planted."""

TEST_SECONDS = 120
"""What hangs is as good as what fails."""

LINES = 60
"""Lines kept from the end of a run."""


@attrs.frozen
class BrokenPromise:
    """A promise that was broken."""

    rung: str
    """With the one seed, where there were several."""
    wrong: str
    story: str


def main(args: Sequence[str] | None = None) -> int:
    """Climbs until a promise is broken, and prints that as JSON, or null."""
    parser = argparse.ArgumentParser(description="Looks for broken promises.")
    parser.add_argument("rungs", nargs="+")
    parser.add_argument("--seconds", type=float, help="of each scope")
    options = parser.parse_args(args)
    found = next((it for rung in options.rungs if (it := look(rung, options.seconds)) is not None), None)
    sys.stdout.write(json.dumps(None if found is None else attrs.asdict(found)) + "\n")
    return 0


def is_known(rung: str) -> bool:
    if rung.startswith(TESTS):
        file, _, name = rung.partition("::")
        return Path(file).exists() and f"def {name.partition('[')[0]}" in Path(file).read_text("utf-8")
    return rung in ALL_SCOPES or rung.partition("@")[0] in {*SCENARIOS, *WALKS}


def look(rung: str, seconds: float | None) -> BrokenPromise | None:
    if rung in ALL_SCOPES:
        return _explore(rung, seconds)
    if rung.startswith(TESTS):
        return _test(rung)
    name = rung.partition("@")[0]
    judge = _walk if name in WALKS else _tell
    return next((it for seed in _seeds(rung) if (it := judge(name, seed)) is not None), None)


def _explore(scope: str, seconds: float | None) -> BrokenPromise | None:
    report = run(Exploration(scope=scope, seconds=seconds))
    found = report.result.found
    return None if found is None else BrokenPromise(scope, found.wrong, report.story)


def _test(rung: str) -> BrokenPromise | None:
    """The first test that fails, with the code that is imported here.

    Raises:
        RuntimeError: the tests could not be run.
    """
    quick = "not thorough and not campaign and not long_campaign"
    chosen = quick if "::" in rung else f"not server and {quick}"
    command = ("-m", "pytest", "-x", "-q", "-p", "no:cacheprovider", f"--timeout={TEST_SECONDS}", "-m", chosen, rung)
    done = subprocess.run(
        [sys.executable, *command], cwd=os.environ[REPOSITORY], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    failed = re.search(r"^(?:FAILED|ERROR) [^:\s]+::([^\s\[]+)", done.stdout, re.MULTILINE)
    if done.returncode != 1 or failed is None:
        raise RuntimeError(f"the tests cannot be run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
    story = "\n".join(done.stdout.splitlines()[-LINES:])
    return BrokenPromise(rung.partition("::")[0], f"{failed[1]} fails", story)


def _seeds(rung: str) -> Iterator[int]:
    first, _, last = rung.partition("@")[2].partition("..")
    yield from range(int(first), int(last or first) + 1)


def _walk(name: str, seed: int) -> BrokenPromise | None:
    try:
        WALKS[name](seed)
    except BrokenHistory as it:
        return BrokenPromise(f"{name}@{seed}", it.wrong, it.story)
    return None


def _tell(scenario: str, seed: int) -> BrokenPromise | None:
    run = story(scenario, seed)
    try:
        outcome = run.tell()
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as problem:
        return BrokenPromise(f"{scenario}@{seed}", f"{type(problem).__name__}: {problem}", "")
    if not outcome.failure:
        return None
    return BrokenPromise(f"{scenario}@{seed}", outcome.failure, "\n".join([*outcome.lines[-LINES:], outcome.replay]))


if __name__ == "__main__":
    sys.exit(main())
