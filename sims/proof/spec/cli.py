"""``make spec``: checks the TLA+ specification with TLC."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import attrs

from cobalance.servers.unavailable import ServerUnavailable
from proof.spec.check import CheckResult, Only, handovers, histories, mistakes, models
from proof.spec.mistakes import MISTAKES
from proof.spec.models import MODELS
from proof.spec.tlc import SpecUnavailable, Tlc

PARTS: dict[str, Callable[[Tlc, Only], Iterator[CheckResult]]] = {
    "histories": histories,
    "handovers": handovers,
    "mistakes": mistakes,
    "models": models,
}


NAMES: dict[str, str] = {**dict.fromkeys(MODELS, "models"), **{it.name: "mistakes" for it in MISTAKES}}
"""Names of single models and mistakes → the parts to which they belong."""


def main(args: Sequence[str] | None = None) -> int:
    """Checks the named parts; returns 0 if all is well, 1 if not, 2 for wrong arguments or if it cannot be checked."""
    options = _parser().parse_args(args)
    unknown = [word for word in options.what if word not in PARTS and word not in NAMES]
    if unknown:
        sys.stderr.write(f"no {', '.join(unknown)}; there are {', '.join([*PARTS, *NAMES])}\n")
        return 2
    file = Path(options.json) if options.json else None
    try:
        outcomes = list(_check(options.what or list(PARTS), options.tail, file))
    except (SpecUnavailable, ServerUnavailable) as problem:
        sys.stderr.write(f"cobalance: {problem}\n")
        return 2
    failed = sum(not it.passed for it in outcomes)
    sys.stdout.write(f"{len(outcomes) - failed} as they should be, {failed} not\n")
    return 1 if failed else 0


def _check(what: Sequence[str], tail: int, file: Path | None) -> Iterator[CheckResult]:
    tlc = Tlc.obtain()
    for part, check in PARTS.items():
        only = [word for word in what if NAMES.get(word) == part]
        if not only and part not in what:
            continue
        for outcome in check(tlc, only):
            sys.stdout.write(line(outcome) + "\n")
            if not outcome.passed and outcome.output:
                sys.stdout.write("\n".join(outcome.output.splitlines()[-tail:]) + "\n")
            sys.stdout.flush()
            if file:
                _write(file, outcome)
            yield outcome


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="make spec",
        description="Checks the TLA+ document with TLC: models completely, planted mistakes, recorded histories and handovers.",
    )
    parser.add_argument("what", nargs="*", help=f"{', '.join(PARTS)}, or the name of a model or mistake; default: all")
    parser.add_argument("--tail", type=int, default=200, help="lines of TLC's output shown where something is wrong")
    parser.add_argument("--json", help="bring the figures in this file up to date")
    return parser


def line(it: CheckResult) -> str:
    verdict = "ok " if it.passed else "BAD"
    found = f"{it.broken} after {it.steps} steps" if it.steps else (it.broken or "holds")
    states = f"{it.distinct:,} states, {it.seconds:.0f} s" if it.distinct else ""
    return f"{verdict} {it.part:<9} {it.name}: {found}" + (f" ({states})" if states else "")


def _write(file: Path, outcome: CheckResult) -> None:
    """Replaces one row, without TLC's output; the others stay."""
    row = attrs.asdict(outcome, filter=lambda field, _: field.name != "output")
    known = json.loads(file.read_text("utf-8")) if file.exists() else []
    rows = {(it["part"], it["name"]): it for it in [*known, row]}
    file.write_text(json.dumps(list(rows.values()), indent=1) + "\n", "utf-8")
