"""Runs the benchmarks and shows, or writes, their figures."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import attrs
from rich.console import Console
from rich.table import Table

from cobalance.limits import MAX_MEMBERS, MAX_RESOURCES
from cobalance.servers import private_redis, running
from proof.bench import comparison, coordinator, hints, holding, journal, machine
from proof.bench.by_key import ByKey
from proof.bench.consume import Consuming
from proof.bench.cost import measure as cost
from proof.bench.cost import results as costs
from proof.bench.figures import Figure
from proof.bench.handover import HandoverBench
from proof.bench.peers import measure, results
from proof.bench.peers.kafka.fetch import KafkaUnavailable
from proof.bench.watched import HANDLERS, Watched

INTERRUPTED = 130
FILE_WIDTH = 160
"""Columns of what is written to a file or a pipe."""

PARTS = ("coordinator", "holding", "consume", "watched", "by_key", "handover", "hints", "journal")
ON_BOTH_SERVERS = frozenset(PARTS) - {"coordinator", "holding"}


def main(arguments: Sequence[str]) -> int:
    """Measures, prints tables, and returns 0; a missed goal is shown, but is not a failure of the program.

    What got worse since a run that is named is one: 1, as for a peer that was asked for and cannot be measured.
    130 after Ctrl-C, with the table of the stories that were complete.
    """
    options = _parser().parse_args(arguments)
    console = Console(width=None if sys.stdout.isatty() else FILE_WIDTH)
    if options.compare and len(options.compare) == 2:
        return comparison.show(options.compare[0], options.compare[1], console)
    report = _Report(machine.describe())
    code = 0
    try:
        with measure.ended_by_sigterm():
            _measure(options, report, console)
    except KeyboardInterrupt:
        code = INTERRUPTED
    except KafkaUnavailable as reason:
        sys.stderr.write(f"error: {reason}\n")
        code = 1
    report.show(console)
    if options.json:
        Path(options.json).write_text(json.dumps(report.as_json(), indent=2) + "\n", encoding="utf-8")
    if options.compare and code == 0:
        return comparison.show(options.compare[0], report.as_json(), console)
    return code


@attrs.define
class _Report:
    """What has been measured so far."""

    machine: dict[str, object]
    figures: list[Figure] = attrs.Factory(list)
    peers: measure.Measured = attrs.Factory(measure.Measured)
    cost: costs.Costs | None = None

    def show(self, console: Console) -> None:
        if self.figures:
            console.print(_table(self.figures))
        if self.cost:
            console.print(costs.table(self.cost))
            console.print(costs.disturbance(self.cost), highlight=False)
            for what, size, power in costs.slopes(self.cost):
                console.print(f"{what}: Redis's CPU grows with {size} to the power of {power:.2f}", highlight=False)
        if self.peers.played:
            console.print(results.table(self.peers.played))
        console.print(
            f"load {self.machine['load']} before, {machine.load()} after, {self.machine['cores']} cores",
            highlight=False,
        )

    def as_json(self) -> dict[str, object]:
        of_cost = list(costs.figures(self.cost)) if self.cost else []
        return {
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "machine": {**self.machine, "load_after": machine.load()},
            "figures": [attrs.asdict(it) for it in [*self.figures, *of_cost, *results.figures(self.peers.played)]],
            "peers": attrs.asdict(self.peers),
            "cost": attrs.asdict(self.cost) if self.cost else None,
        }


def _measure(options: argparse.Namespace, report: _Report, console: Console) -> None:
    for figure in _figures(options):
        report.figures.append(figure)
        console.print(_line(figure), highlight=False, soft_wrap=True)
    if options.cost or options.all:
        with closing(cost.measure(cost.SHORT if options.quick else options.sizes or cost.SIZES)) as measured_costs:
            for number, (heartbeat, report.cost) in enumerate(measured_costs):
                if number == 0:
                    report.figures.append(heartbeat)
                console.print(costs.line(report.cost), highlight=False, soft_wrap=True)
    if options.peers is not None or options.all:
        rounds = 1 if options.quick else options.rounds
        # Closed rather than left to the collector: Ctrl-C may come between two stories, too.
        with closing(measure.measure(options.peers or (), rounds, options.seed, console)) as stories:
            for measured in stories:
                report.peers = measured


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="Each figure against its raw peer, in one run.")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part only; may be repeated")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison (default 5)")
    parser.add_argument("--messages", type=int, default=20_000, help="messages a round of consuming (default 20000)")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: to see that it runs")
    parser.add_argument(
        "--peers", nargs="*", metavar="PEER", choices=measure.NAMES,
        help=f"one story on Cobalance and its peers instead of the parts; all of them, or of {', '.join(measure.NAMES)}",
    )  # fmt: skip
    parser.add_argument(
        "--cost", action="store_true", help="what changes cost groups of all sizes instead of the parts"
    )
    parser.add_argument(
        "--sizes", nargs="+", type=_size, metavar="MEMBERSxRESOURCES", help="with --cost: groups of these sizes only"
    )
    parser.add_argument("--seed", type=int, default=1, help="whom the stories meet, and when (default 1)")
    parser.add_argument("--all", action="store_true", help="the parts, the costs and the peers")
    parser.add_argument("--json", metavar="FILE", help="also write every figure here, and the machine's load")
    parser.add_argument(
        "--compare", nargs="+", type=_earlier, metavar=("OLD", "NEW"), action=_OneOrTwo,
        help="say what got worse since a run whose --json is OLD; measures, unless NEW is given",
    )  # fmt: skip
    return parser


def _size(text: str) -> tuple[int, int]:
    members, _, resources = text.partition("x")
    if not (members.isdecimal() and resources.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text}: give two numbers, such as 100x1000")
    if int(members) < 2 or int(members) > MAX_MEMBERS or not 100 <= int(resources) <= MAX_RESOURCES:
        raise argparse.ArgumentTypeError(
            f"{text}: from 2 to {MAX_MEMBERS:,} members and from 100 to {MAX_RESOURCES:,} resources"
        )
    return int(members), int(resources)


def _earlier(path: str) -> dict[str, Any]:
    """Reads a report before anything is measured for it to be compared with."""
    try:
        report = json.loads(Path(path).read_text(encoding="utf-8"))
        if not isinstance(report, dict) or "figures" not in report:
            raise argparse.ArgumentTypeError(f"{path} has no figures: name what --json has written")
    except (OSError, ValueError) as error:
        raise argparse.ArgumentTypeError(f"{path} cannot be read: {error}") from error
    return report


class _OneOrTwo(argparse.Action):
    """Reports to compare."""

    def __call__(self, parser: argparse.ArgumentParser, namespace: argparse.Namespace, values: Any, *_: object) -> None:
        if len(values) > 2:
            parser.error("--compare takes one or two files")
        namespace.compare = values


def _figures(options: argparse.Namespace) -> Iterator[Figure]:
    is_alone = options.peers is None and not options.cost
    parts = options.only or (PARTS if is_alone or options.all else ())
    rounds = 1 if options.quick else options.rounds
    messages = min(options.messages, 2_000) if options.quick else options.messages
    if "coordinator" in parts:
        with private_redis() as own:  # it is emptied repeatedly, so it is never a server that others use
            yield from coordinator.figures(own, coordinator.SIZES[:1] if options.quick else coordinator.SIZES)
    if "holding" in parts:
        yield from holding.figures(holding.SIZES[:1] if options.quick else holding.SIZES)
    if ON_BOTH_SERVERS.intersection(parts):
        with running() as servers:
            yield from _on_both(servers.redis_url, servers.amqp_url, parts, rounds, messages, quick=options.quick)


def _on_both(
    redis_url: str, amqp_url: str, parts: Sequence[str], rounds: int, messages: int, *, quick: bool
) -> Iterator[Figure]:
    if "consume" in parts:
        yield from Consuming(redis_url, amqp_url, messages).figures(rounds)
    if "watched" in parts:
        yield from Watched(redis_url, amqp_url, messages).figures(rounds, HANDLERS[:2] if quick else HANDLERS)
    if "by_key" in parts:
        yield from ByKey(redis_url, amqp_url, messages).figures(rounds)
    if "handover" in parts:
        yield from HandoverBench(redis_url, amqp_url).figures(rounds)
    if "hints" in parts:
        yield from hints.figures(redis_url, rounds)
    if "journal" in parts:
        yield from journal.figures(redis_url, rounds, journal.ENTRIES // 10 if quick else journal.ENTRIES)


def _line(figure: Figure) -> str:
    ratio = "" if figure.ratio is None else f"  ratio {figure.ratio:.2f}"
    return f"{figure.name}: {figure.ours:.4g} {figure.unit}{ratio}"


def _table(measured: list[Figure]) -> Table:
    table = Table(title="make bench: medians; ratios are medians of the rounds' own")
    for column in ("figure", "ours", "peer", "ratio", "goal", "", "how"):
        table.add_column(column)
    for it in measured:
        table.add_row(
            it.name,
            f"{it.ours:.4g} {it.unit}",
            "" if it.peer is None else f"{it.peer:.4g}",
            "" if it.ratio is None else f"{it.ratio:.2f}",
            it.goal,
            "" if it.met is None else "met" if it.met else "missed",
            it.detail,
        )
    return table
