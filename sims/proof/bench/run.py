"""Runs the benchmarks and shows, or writes, their figures."""

from __future__ import annotations

import argparse
import json
import logging
import os
import platform
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

import attrs
from rich.console import Console
from rich.table import Table

from cobalance.servers import private_redis, running
from proof.bench import coordinator, hints, holding
from proof.bench.by_key import ByKey
from proof.bench.consume import Consuming
from proof.bench.figures import Figure
from proof.bench.handover import Handovers

PARTS = ("coordinator", "holding", "consume", "by_key", "handover", "hints")


def main(arguments: Sequence[str]) -> int:
    """Measures, prints a table and returns 0; a missed goal is shown, but is not a failure of the program."""
    options = _parser().parse_args(arguments)
    logging.getLogger("cobalance").setLevel(logging.ERROR)
    console = Console()
    measured = []
    for figure in _figures(options):
        measured.append(figure)
        console.print(_line(figure), highlight=False)
    console.print(_table(measured))
    if options.json:
        Path(options.json).write_text(json.dumps(_report(measured), indent=2) + "\n", encoding="utf-8")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="make bench", description="Each figure against its raw peer, in one run.")
    parser.add_argument("--only", choices=PARTS, action="append", help="measure this part only; may be repeated")
    parser.add_argument("--rounds", type=int, default=5, help="rounds of each comparison (default 5)")
    parser.add_argument("--messages", type=int, default=20_000, help="messages a round of consuming (default 20000)")
    parser.add_argument("--quick", action="store_true", help="small sizes, few rounds: to see that it runs")
    parser.add_argument("--json", metavar="FILE", help="also write the figures here")
    return parser


def _figures(options: argparse.Namespace) -> Iterator[Figure]:
    parts = options.only or PARTS
    rounds = 1 if options.quick else options.rounds
    messages = min(options.messages, 2_000) if options.quick else options.messages
    if "coordinator" in parts:
        with private_redis() as own:  # it is emptied repeatedly, so it is never a server that others use
            yield from coordinator.figures(own, coordinator.SIZES[:1] if options.quick else coordinator.SIZES)
    if "holding" in parts:
        yield from holding.figures(holding.SIZES[:1] if options.quick else holding.SIZES)
    if {"consume", "by_key", "handover", "hints"}.intersection(parts):
        with running() as servers:
            if "consume" in parts:
                yield from Consuming(servers.redis_url, servers.amqp_url, messages).figures(rounds)
            if "by_key" in parts:
                yield from ByKey(servers.redis_url, servers.amqp_url, messages).figures(rounds)
            if "handover" in parts:
                yield from Handovers(servers.redis_url, servers.amqp_url).figures(rounds)
            if "hints" in parts:
                yield from hints.figures(servers.redis_url, rounds)


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


def _report(measured: list[Figure]) -> dict[str, object]:
    return {
        "at": datetime.now(UTC).isoformat(timespec="seconds"),
        "machine": {"system": platform.platform(), "python": platform.python_version(), "cores": os.cpu_count()},
        "figures": [attrs.asdict(figure) for figure in measured],
    }
