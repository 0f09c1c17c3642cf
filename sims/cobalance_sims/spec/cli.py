"""``cobalance sims spec``, which ``make spec`` runs: checks the TLA+ document with TLC."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from cobalance.servers.unavailable import ServerUnavailable
from cobalance_sims.spec.check import Outcome, histories, mistakes, models
from cobalance_sims.spec.tlc import SpecUnavailable, Tlc

PARTS: dict[str, Callable[[Tlc], Iterator[Outcome]]] = {
    "models": models,
    "mistakes": mistakes,
    "histories": histories,
}


def main(args: Sequence[str] | None = None) -> int:
    """Checks the parts named; 0 if all is well, 1 if not, 2 for wrong arguments or where it cannot be checked."""
    options = _parser().parse_args(args)
    unknown = [name for name in options.parts if name not in PARTS]
    if unknown:
        sys.stderr.write(f"no such part: {', '.join(unknown)}; there are {', '.join(PARTS)}\n")
        return 2
    try:
        outcomes = list(_check(options.parts or list(PARTS), options.tail))
    except (SpecUnavailable, ServerUnavailable) as problem:
        sys.stderr.write(f"cobalance: {problem}\n")
        return 2
    if options.json:
        _write(Path(options.json), outcomes)
    failed = sum(not it.passed for it in outcomes)
    sys.stdout.write(f"{len(outcomes) - failed} as they should be, {failed} not\n")
    return 1 if failed else 0


def _check(parts: Sequence[str], tail: int) -> Iterator[Outcome]:
    tlc = Tlc.obtain()
    for part in parts:
        for outcome in PARTS[part](tlc):
            sys.stdout.write(line(outcome) + "\n")
            if not outcome.passed and outcome.output:
                sys.stdout.write("\n".join(outcome.output.splitlines()[-tail:]) + "\n")
            sys.stdout.flush()
            yield outcome


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="cobalance sims spec",
        description="Checks the TLA+ document with TLC: models completely, planted mistakes, recorded histories.",
    )
    parser.add_argument("parts", nargs="*", help=f"default: all of {', '.join(PARTS)}")
    parser.add_argument("--tail", type=int, default=200, help="lines of TLC's output shown where something is wrong")
    parser.add_argument("--json", help="write the figures to this file, and keep those of other parts that are in it")
    return parser


def line(it: Outcome) -> str:
    """One outcome."""
    verdict = "ok " if it.passed else "BAD"
    found = f"{it.broken} after {it.steps} steps" if it.steps else (it.broken or "holds")
    states = f"{it.distinct:,} states, {it.seconds:.0f} s" if it.distinct else ""
    return f"{verdict} {it.part:<9} {it.name}: {found}" + (f" ({states})" if states else "")


def _write(file: Path, outcomes: Sequence[Outcome]) -> None:
    """The figures, without TLC's output."""
    rows = [attrs.asdict(it, filter=lambda field, _: field.name != "output") for it in outcomes]
    checked = {row["part"] for row in rows}
    known = json.loads(file.read_text("utf-8")) if file.exists() else []
    rows += [row for row in known if row["part"] not in checked]
    file.write_text(json.dumps(sorted(rows, key=lambda row: [*PARTS].index(row["part"])), indent=1) + "\n", "utf-8")
