"""Writes what explorations, replays and planted bugs came to into ``sims/PROOF.md``, between marks; the rest of it is prose."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from cobalance_sims.mutants.score import MUTANTS


def main(args: Sequence[str] | None = None) -> int:
    """Renders the tables from the JSON files that ``explore --json`` and ``mutants --json`` wrote."""
    parser = argparse.ArgumentParser(prog="cobalance sims proof", description="Renders the tables of PROOF.md.")
    parser.add_argument("file", type=Path, help="PROOF.md")
    parser.add_argument("--explored", type=Path, help="what `explore --json` wrote")
    parser.add_argument("--mutants", type=Path, help="what `mutants --json` wrote")
    options = parser.parse_args(args)
    text = options.file.read_text("utf-8")
    if options.explored:
        reports = json.loads(options.explored.read_text("utf-8"))
        text = replaced(text, "explored", explored(reports))
        text = replaced(text, "replayed", replayed(reports))
    if options.mutants:
        text = replaced(text, "mutants", scored(json.loads(options.mutants.read_text("utf-8"))))
    options.file.write_text(text, "utf-8")
    return 0


def replaced(text: str, mark: str, lines: Iterator[str]) -> str:
    """The text with what stands between the marks replaced.

    Raises:
        ValueError: the marks are not there.
    """
    begin, end = f"<!-- {mark} -->\n", f"<!-- end of {mark} -->"
    before, found, rest = text.partition(begin)
    _, closed, after = rest.partition(end)
    if not found or not closed:
        raise ValueError(f"PROOF.md has no marks for {mark}")
    return before + begin + "\n" + "\n".join(lines) + "\n\n" + end + after


def explored(reports: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One row a scope."""
    yield "| scope | verdict | states | transitions | depth | distinct executions | seconds |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for report in reports:
        it = report["result"]
        verdict = "broken" if it["found"] else ("complete" if it["is_complete"] else "incomplete")
        yield (
            f"| {it['scope']} | {verdict} | {it['states']:,} | {it['transitions']:,} | {it['depth']} | "
            f"{it['executions']:,} | {it['seconds']:.0f} |"
        )


def replayed(reports: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One row a scope and engine."""
    yield "| scope | engine | replayed | mismatches | seconds |"
    yield "|---|---|---:|---:|---:|"
    for report in reports:
        for it in report["replays"]:
            row = (report["result"]["scope"], it["engine"], f"{it['executions']:,}", str(len(it["mismatches"])))
            yield f"| {' | '.join(row)} | {it['seconds']:.0f} |"


def scored(scores: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One row a planted bug."""
    mutants = {it.name: it for it in MUTANTS}
    yield "| bug | in | what it breaks | verdict | noticed as |"
    yield "|---|---|---|---|---|"
    for score in scores:
        it = mutants[score["name"]]
        noticed = f"{score['noticed']} ({score['scope']})" if score["verdict"] == "killed" else it.equivalent
        yield f"| {it.name} | `{Path(it.file).name}` | {it.breaks} | {score['verdict']} | {noticed} |".replace(
            "\n", " "
        )
    counts = [sum(score["verdict"] == verdict for score in scores) for verdict in ("killed", "survived", "equivalent")]
    yield ""
    yield f"{len(scores)} planted: {counts[0]} killed, {counts[1]} survived, {counts[2]} equivalent."


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
