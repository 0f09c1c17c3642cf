"""``cobalance sims``: ``run``, ``campaign``, ``speed`` and ``scenarios`` here; the other commands have a file of their own."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from importlib import import_module

from cobalance.coordinator.memory.lua_engine import ENGINES
from cobalance.errors import CobalanceError
from cobalance_sims.simulate.campaign import Campaign
from cobalance_sims.simulate.kernel import Row
from cobalance_sims.simulate.run import Outcome, Run
from cobalance_sims.simulate.scenarios import SCENARIOS, steady_churn

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
    run = commands.add_parser("run", help="tell one story, and check every promise after every step")
    run.add_argument("scenario", nargs="?", choices=sorted(SCENARIOS))
    run.add_argument(
        "--params", metavar="JSON", help="a row of a sweep instead: its parameters, as its replay has them"
    )
    run.add_argument("--seed", type=int, help="0 by default")
    run.add_argument("--quiet", action="store_true", help="the verdict only")
    run.add_argument("--tail", type=int, help="only that many of the last lines")
    run.set_defaults(command=_run)
    campaign = commands.add_parser("campaign", help="tell every story with many seeds")
    campaign.add_argument("--seeds", type=_seeds, default=range(1, 11), metavar="A..B")
    campaign.add_argument("--only", nargs="+", choices=sorted(SCENARIOS), metavar="SCENARIO")
    campaign.set_defaults(command=_campaign)
    speed = commands.add_parser("speed", help="measure simulated member-hours a CPU-second under steady churn")
    speed.add_argument("--members", type=int, default=1_000)
    speed.add_argument("--resources", type=int, default=10_000)
    speed.add_argument("--seconds", type=int, default=300, help="virtual")
    speed.set_defaults(command=_speed)
    for command in (run, campaign, speed):
        command.add_argument("--lua", choices=ENGINES, help="the engine; the fastest there is by default")
    for name, (_, summary) in DELEGATED.items():
        commands.add_parser(name, help=summary)
    scenarios = commands.add_parser("scenarios", help="list the stories")
    scenarios.set_defaults(command=_list)
    return parser


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    if not first.isdigit() or (dots and not last.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a seed nor a range like 1..100")
    return range(int(first), int(last or first) + 1)


def _run(options: argparse.Namespace) -> int:
    if (options.scenario is None) == (options.params is None):
        sys.stderr.write("give the name of a scenario, or --params: `cobalance sims scenarios` lists the names\n")
        return USAGE
    try:
        run = _row(options) if options.params else Run(SCENARIOS[options.scenario], options.seed or 0, lua=options.lua)
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
    row = Row.parse(options.params, seed=options.seed, lua=options.lua)
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


def _campaign(options: argparse.Namespace) -> int:
    campaign = Campaign(options.only or sorted(SCENARIOS), options.seeds, options.lua)
    campaign.run(progress=sys.stderr)
    _say(campaign.summary())
    return 0 if campaign.passed else FAILED


def _speed(options: argparse.Namespace) -> int:
    scenario = steady_churn(options.members, options.resources, options.seconds * 1000)
    run = Run(scenario, 1, lua=options.lua, verbose=False)
    figures = run.measure()
    _say(figures)
    return 0


def _list(_: argparse.Namespace) -> int:
    width = max(map(len, SCENARIOS))
    for scenario in SCENARIOS.values():
        _say(f"{scenario.name:<{width}}  {scenario.summary}")
    return 0
