"""``make stories``: runs one scenario or all with many seeds, lists names, and measures the simulator's speed."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence

from cobalance.coordinator.memory.lua_engine import ENGINES
from cobalance_sims.simulate.run import Run
from proof.stories.campaign import Campaign
from proof.stories.scenarios import SCENARIOS, story
from proof.stories.speed import measure, steady_churn

FAILED = 1


def main(words: Sequence[str]) -> int:
    """Runs a command; its exit code is 1 when a promise was broken."""
    options = _parser().parse_args(words)
    return int(options.command(options))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make stories", description="Stories in virtual time, and the promises.")
    parser.set_defaults(command=_campaign, seeds=range(1, 11), only=None, lua=None)
    commands = parser.add_subparsers(metavar="COMMAND")
    run = commands.add_parser("run", help="tell one story, and check every promise after every step")
    run.add_argument("scenario", choices=sorted(SCENARIOS))
    run.add_argument("--seed", type=int, default=0)
    run.add_argument("--quiet", action="store_true", help="the verdict only")
    run.add_argument("--tail", type=int, help="only that many of the last lines")
    run.set_defaults(command=_run)
    campaign = commands.add_parser("campaign", help="tell every story with many seeds: what is done by default")
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
    names = commands.add_parser("names", help="list the stories")
    names.set_defaults(command=_list)
    return parser


def _seeds(text: str) -> range:
    first, dots, last = text.partition("..")
    if not first.isdigit() or (dots and not last.isdigit()):
        raise argparse.ArgumentTypeError(f"{text!r} is neither a seed nor a range like 1..100")
    return range(int(first), int(last or first) + 1)


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _run(options: argparse.Namespace) -> int:
    outcome = story(options.scenario, options.seed, lua=options.lua).tell()
    if not options.quiet:
        _say("\n".join(outcome.lines if options.tail is None else outcome.lines[-options.tail :]))
    _say(outcome.verdict)
    return FAILED if outcome.failure else 0


def _campaign(options: argparse.Namespace) -> int:
    campaign = Campaign(options.only or sorted(SCENARIOS), options.seeds, options.lua)
    campaign.run(progress=sys.stderr)
    _say(campaign.summary())
    return 0 if campaign.passed else FAILED


def _speed(options: argparse.Namespace) -> int:
    scenario = steady_churn(options.members, options.resources, options.seconds * 1000)
    _say(measure(Run(scenario, 1, lua=options.lua, verbose=False)))
    return 0


def _list(_: argparse.Namespace) -> int:
    width = max(map(len, SCENARIOS))
    for scenario in SCENARIOS.values():
        _say(f"{scenario.name:<{width}}  {scenario.summary}")
    return 0
