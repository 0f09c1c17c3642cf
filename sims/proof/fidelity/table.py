"""The comparison in Markdown, and where it goes: between two markers of a file, the rest of which people write."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from pathlib import Path

from cobalance.errors import UsageError
from proof.fidelity.compare import ComparedFigure, quantile
from proof.fidelity.machine import SAMPLED, Machine
from proof.fidelity.story import Story

COLUMNS = 120
"""Where lines of Markdown end."""

HEADS = ("", "real", "simulated", "90 % of seeds", "difference", "", "simulated, not measured")

MEANINGS = {
    "call_ms": "a call to Redis",
    "hint_ms": "a hint",
    "open_ms": "a channel opened, guarded and subscribed",
    "close_ms": "a channel closed",
    "ask_ms": "an idle partition: asked back → `on_revoked`",
    "let_go_ms": "… → released",
    "tell_ms": "granted → `on_assigned`",
    "overrun_ms": "a handler's sleep, too long by",
    "way_ms": "published → handler begins",
}


def table(rows: Sequence[ComparedFigure]) -> str:
    """The table of a comparison."""
    cells = [
        (
            row.name,
            *(_number(it, row.unit) for it in (row.real, row.simulated)),
            f"{_number(row.low, '')} to {_number(row.high, row.unit)}",
            "" if row.difference is None else f"{row.difference:+.0%}",
            row.verdict,
            _number(row.stock, row.unit),
        )
        for row in rows
    ]
    return markdown(HEADS, cells)


def machine_table(machine: Machine) -> str:
    """How long single operations took."""
    cells = [
        (MEANINGS[name], *(_number(quantile(getattr(machine, name), share), "ms") for share in (0.5, 0.95, 1.0)))
        for name in SAMPLED
    ]
    return markdown(("measured before", "p50", "p95", "longest"), cells)


def conditions(story: Story, runs: int, seeds: int, loads: Sequence[str]) -> str:
    """The conditions under which the figures were taken."""
    settings = story.settings
    return (
        f"Story `{story.name}`: {story.members} members at first, {story.partitions} partitions, {story.rate:g} messages a second each, handlers "
        f"{story.handler.text}, prefetch {story.prefetch}; session {settings.session_timeout_ms} ms, heartbeat "
        f"{settings.heartbeat_interval_ms} ms, revocation {settings.revocation_timeout_ms} ms; {story.length_ms / 1000:.0f} s. "
        f"Run {runs} times on real servers, each with a load of its own, and simulated with the same loads and {seeds} seeds each. "
        f"Counts are means over the runs, times are of all runs together. The machine: {'; '.join(loads)}."
    )


def _number(value: float | None, unit: str) -> str:
    if value is None:
        return ""
    digits = 0 if value == int(value) or abs(value) >= 100 else 1
    return f"{value:,.{digits}f} {unit}".strip()


def markdown(heads: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """A table whose first column is text and whose others are figures."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" + "---:|" * (len(heads) - 1)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in cells)])


def write(path: Path, name: str, text: str) -> None:
    """Puts text between ``<!-- truth NAME -->`` and ``<!-- end truth NAME -->`` of a file.

    Raises:
        UsageError: the file has no such markers.
    """
    begin, end = f"<!-- truth {name} -->", f"<!-- end truth {name} -->"
    before, found, rest = path.read_text().partition(begin)
    _, closed, after = rest.partition(end)
    if not (found and closed):
        raise UsageError(f"{path} has no lines {begin} and {end}: add them where the table is to go")
    lines = [line if line.startswith("|") else textwrap.fill(line, COLUMNS) for line in text.splitlines()]
    path.write_text("\n".join([before + begin, *lines, end + after]))
