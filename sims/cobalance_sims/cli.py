"""``cobalance sims``: ``run`` here; the other commands have a file of their own."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from importlib import import_module

from cobalance.coordinator.memory.lua_engine import ENGINES
from cobalance.errors import CobalanceError
from cobalance_sims.simulate.churn import CHURNS
from cobalance_sims.simulate.kernel import Row
from cobalance_sims.simulate.run import Outcome, Run

FAILED, USAGE = 1, 2

DELEGATED = {
    "sweep": ("cobalance_sims.commands.sweep", "simulate a grid of settings, churn and seeds on Spark"),
    "journal": ("cobalance_sims.commands.journal", "export production journals from Redis to Parquet with Spark"),
    "calibrate": ("cobalance_sims.commands.calibrate", "fit churn, drain and handler times to a journal"),
    "tune": ("cobalance_sims.commands.tune", "recommend timeouts for a churn and your preferences"),
    "report": ("cobalance_sims.commands.report", "draw a sweep, a journal or a recommendation as one HTML page"),
}
"""Commands with a command line of their own, loaded when they are asked for: name → module with a ``main``, summary."""


def main(args: Sequence[str] | None = None) -> int:
    """Runs a command; its exit code: 1 when a promise was broken, 2 when the command was."""
    words = list(sys.argv[1:] if args is None else args)
    if words and words[0] in DELEGATED:
        return int(import_module(DELEGATED[words[0]][0]).main(words[1:]))
    parser = _parser()
    try:
        options = parser.parse_args(words)
    except SystemExit as end:
        return USAGE if end.code else 0
    return int(options.command(options))


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="cobalance sims", description="Cobalance in virtual time.")
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run", help="tell one run of a churn, and check every promise after every step")
    run.add_argument("churn", nargs="?", choices=sorted(CHURNS))
    run.add_argument("--params", metavar="JSON", help="a row of a sweep: its parameters, as its replay has them")
    run.add_argument("--seed", type=int, help="0 by default")
    run.add_argument("--quiet", action="store_true", help="the verdict only")
    run.add_argument("--tail", type=int, help="only that many of the last lines")
    run.add_argument("--lua", choices=ENGINES, help="the engine; the fastest there is by default")
    run.set_defaults(command=_run)
    for name, (_, summary) in DELEGATED.items():
        commands.add_parser(name, help=summary)
    return parser


def _run(options: argparse.Namespace) -> int:
    if (options.churn is None) == (options.params is None):
        sys.stderr.write(f"give --params, or the name of a churn: {', '.join(CHURNS)}\n")
        return USAGE
    try:
        run = _row(options)
    except CobalanceError as error:
        sys.stderr.write(f"{error}\n")
        return USAGE
    outcome = run.tell()
    if not options.quiet:
        lines = outcome.lines if options.tail is None else outcome.lines[-options.tail :]
        _say("\n".join(lines))
    _say(verdict(outcome))
    return FAILED if outcome.failure else 0


def _row(options: argparse.Namespace) -> Run:
    """With more checks than a sweep has: what it found is found again, and perhaps more is."""
    text = options.params or json.dumps({"churn": options.churn})
    row = Row.parse(text, seed=options.seed, lua=options.lua)
    return row.run(verbose=True, checks="all")


def verdict(outcome: Outcome) -> str:
    """The last lines of a story."""
    seconds = f"{outcome.virtual_ms / 1000:.0f} s in {outcome.cpu_s:.2f} s of CPU on {outcome.engine}"
    lines = [f"hash {outcome.digest}   {outcome.scenario} seed {outcome.seed}: {seconds}"]
    if outcome.failure:
        lines += [f"FAILED {outcome.failure}", f"replay: {outcome.replay}"]
    else:
        lines.append(f"every promise was kept; converged {outcome.converged_ms} ms after the end of churn")
    return "\n".join(lines)
