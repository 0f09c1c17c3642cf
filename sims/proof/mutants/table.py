"""The results for the planted bugs, as a table for people."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from proof.mutants.planted import MUTANTS


def scored(scores: Sequence[dict[str, Any]]) -> Iterator[str]:
    """One row for each planted bug, as ``mutants --json`` scored it."""
    mutants = {it.name: it for it in MUTANTS}
    yield "| bug | in | what it breaks | verdict | noticed as |"
    yield "|---|---|---|---|---|"
    for score in scores:
        it = mutants[score["name"]]
        noticed = f"{score['noticed']} ({score['rung']})" if score["verdict"] == "killed" else it.equivalent
        row = f"| {it.name} | `{Path(it.file).name}` | {it.breaks} | {score['verdict']} | {noticed} |"
        yield row.replace("\n", " ")
    counts = Counter(score["verdict"] for score in scores)
    yield ""
    yield (
        f"{len(scores)} planted: {counts['killed']} killed, {counts['survived']} survived, {counts['equivalent']} equivalent."
    )
