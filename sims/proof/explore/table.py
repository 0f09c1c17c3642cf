"""The results of explorations as the tables of PROOF.md; `reports` are what ``explore --json`` wrote."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

from proof.explore.reached import REQUIRED

Reports = Sequence[dict[str, Any]]


def explored(reports: Reports) -> Iterator[str]:
    """One row for each scope, and what was followed from its states."""
    if not reports:
        yield "No figures yet."
        return
    yield "| scope | verdict | states | transitions | depth | distinct executions | CPU seconds |"
    yield "|---|---|---:|---:|---:|---:|---:|"
    for it in (report["result"] for report in reports):
        verdict = "broken" if it["found"] else ("complete" if it["is_complete"] else "incomplete")
        yield (
            f"| `{it['scope']}` | {verdict} | {it['states']:,} | {it['transitions']:,} | {it['depth']} | "
            f"{it['executions']:,} | {it['cpu_seconds']:.0f} |"
        )
    yield ""
    yield "| scope | fair continuations to an even group | of these with one member never draining |"
    yield "|---|---:|---|"
    for it in (report["result"] for report in reports):
        wedged = ", ".join(f"{slot} {count:,}" for slot, count in it["closures"].items() if slot)
        yield f"| `{it['scope']}` | {sum(it['closures'].values()):,} | {wedged} |"


def reached(reports: Reports) -> Iterator[str]:
    """How often each kind that a tier has to reach was reached, in all scopes together."""
    counts = sum((Counter(report["result"]["reached"]) for report in reports), Counter[str]())
    yield ", ".join(f"{kind} {counts[kind]:,}" for kind in REQUIRED) + "."


def replayed(reports: Reports) -> Iterator[str]:
    """One row for each scope and engine."""
    yield "| scope | engine | executions replayed | mismatches | seconds |"
    yield "|---|---|---:|---:|---:|"
    for report in reports:
        for it in report["replays"]:
            row = (f"`{report['result']['scope']}`", it["engine"], f"{it['executions']:,}", str(len(it["mismatches"])))
            yield f"| {' | '.join(row)} | {it['seconds']:.0f} |"
