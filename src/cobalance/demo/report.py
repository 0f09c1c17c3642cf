"""Presents the verdict: as tables, and as JSON."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from cobalance.demo.options import DemoOptions
from cobalance.demo.verdict import DemoVerdict, Gaps


def print_report(verdict: DemoVerdict, options: DemoOptions, elapsed_s: float, console: Console) -> None:
    console.print()
    console.print(_changes(verdict, options))
    console.print(_figures(verdict, options))
    for failure in verdict.failures:
        console.print(f"[red]FAILED[/] {failure}")
    if not verdict.failures:
        console.print(f"[green]OK[/] as promised   ({elapsed_s:.0f} s)")


def as_json(verdict: DemoVerdict, options: DemoOptions, elapsed_s: float) -> dict[str, Any]:
    """The verdict as JSON. Units are in the names; gaps and times are milliseconds."""
    return {
        "ok": not verdict.failures,
        "failures": list(verdict.failures),
        "mode": options.mode,
        "queue_type": options.queue_type,
        "seed": options.seed,
        "partitions": verdict.partitions,
        "published": verdict.published,
        "processed": verdict.processed,
        "lost": verdict.lost,
        "unexpected": verdict.unexpected,
        "left_in_queues": verdict.left_in_queues,
        "reordered": {"planned_handovers": verdict.reordered_planned, "total": verdict.reordered_total},
        "duplicates": {
            "total": verdict.duplicates_from_crash + verdict.duplicates_otherwise,
            "from_kill": verdict.duplicates_from_crash,
            "other": verdict.duplicates_otherwise,
        },
        "overlaps": verdict.overlaps,
        "key_overlaps": verdict.key_overlaps,
        "moves": {"actual": verdict.moves, "minimum": verdict.minimum},
        "never_interrupted": verdict.never_interrupted,
        "forced_moves": verdict.forced,
        "handover_gap_ms": {"planned": _gaps(verdict.gaps_planned), "crash": _gaps(verdict.gaps_crash)},
        "changes": [
            {
                "name": change.name,
                "kind": change.kind,
                "members": [change.members_before, change.members_after],
                "moves": change.moves,
                "minimum": change.minimum,
                "uninterrupted": verdict.partitions - len(change.interrupted),
                "converged_ms": change.converged_ms,
            }
            for change in verdict.changes
        ],
        "elapsed_s": round(elapsed_s, 1),
    }


def _gaps(gaps: Gaps) -> dict[str, float | int | None]:
    return {"count": len(gaps.milliseconds), **{f"p{share}": gaps.percentile(share / 100) for share in (50, 99)}}


def _changes(verdict: DemoVerdict, options: DemoOptions) -> Table:
    table = Table(title=f"What each change cost ({options.mode})")
    for name in ("change", "members"):
        table.add_column(name)
    for name in ("moved", "minimum", "never paused", "converged"):
        table.add_column(name, justify="right")
    for change in verdict.changes:
        table.add_row(
            change.name,
            f"{change.members_before} → {change.members_after}",
            str(change.moves),
            str(change.minimum),
            f"{verdict.partitions - len(change.interrupted)} of {verdict.partitions}",
            f"{change.converged_ms:,} ms",
        )
    return table


def _figures(verdict: DemoVerdict, options: DemoOptions) -> Table:
    table = Table(show_header=False, title="What became of the messages")
    table.add_row("published", f"{verdict.published:,} on {verdict.partitions} {options.queue_type} queues")
    table.add_row("processed", f"{verdict.processed:,}")
    table.add_row("lost", f"{verdict.lost}")
    table.add_row("reordered", f"{verdict.reordered_planned} on planned handovers, {verdict.reordered_total} in all")
    table.add_row(
        "duplicates",
        f"{verdict.duplicates_from_crash} unacknowledged at the kill, {verdict.duplicates_otherwise} others",
    )
    table.add_row("moves", f"{verdict.moves}, at least {verdict.minimum} were needed")
    table.add_row("partitions never interrupted", f"{verdict.never_interrupted} of {verdict.partitions}")
    table.add_row("handover gap, planned", _gap_words(verdict.gaps_planned))
    table.add_row("handover gap, after the kill", _gap_words(verdict.gaps_crash))
    if verdict.forced:
        table.add_row("moved by force, or given up", f"{verdict.forced}")
    return table


def _gap_words(gaps: Gaps) -> str:
    p50, p99 = gaps.percentile(0.50), gaps.percentile(0.99)
    if p50 is None or p99 is None:
        return "none measured"
    return f"p50 {p50:,.1f} ms, p99 {p99:,.1f} ms, of {len(gaps.milliseconds)} (last message ended → first one begun)"
