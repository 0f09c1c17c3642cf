"""The folder of an exported journal: its events, and how far they go. Spark is not needed to look into one of this machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.errors import UsageError
from cobalance.limits import parse_json

if TYPE_CHECKING:
    import pyarrow as pa

    from cobalance_sims.spark.journal_options import JournalOptions

EVENTS, CHECKPOINT = "events", "checkpoint"

_COLUMNS = ("run", "kind", "seq", "at_ms", "reason")


@attrs.frozen
class Exported:
    """What the folder holds of one group."""

    group: str
    events: int
    first_at_ms: int
    last_at_ms: int
    gaps: tuple[str, ...]
    """Which entries are missing, by seq: "51 to 173"."""


def lost_its_place(out: str) -> UsageError:
    """The error for a folder that would get events a second time."""
    return UsageError(
        f"{out} holds events but no {CHECKPOINT}, so it is not known where they end: name another folder, or bring it back."
    )


def holds_everything(folder: Path, options: JournalOptions) -> bool:
    """Whether the last export is complete, and every group's journal still ends where it ended."""
    from cobalance_sims.spark.journal_server import JournalServer

    ends = _ends(folder / CHECKPOINT)
    if not ends:
        return False
    with JournalServer(options) as server:
        newest = {group: server.newest(group) for group in server.groups(options.groups)}
    return all(place is not None and place.id == ends.get(group) for group, place in newest.items())


def _ends(checkpoint: Path) -> dict[str, str]:
    """The id of each group's last entry in the folder; nothing if a batch is unfinished.

    Spark plans a batch by writing ``offsets/N``, whose last line is the offset of its end (journal_stream.py), and
    finishes it by writing ``commits/N``.
    """
    try:
        last = max(int(file.name) for file in (checkpoint / "offsets").iterdir() if file.name.isdecimal())
        if not (checkpoint / "commits" / str(last)).exists():
            return {}
        offset = parse_json((checkpoint / "offsets" / str(last)).read_text(encoding="utf-8").splitlines()[-1], dict)
        return {group: place["id"] for group, place in offset["groups"].items()}
    except (OSError, ValueError, LookupError, TypeError, AttributeError):
        return {}


def exported_here(folder: Path) -> list[Exported]:
    """What a folder of this machine holds; nothing if it has no events."""
    import pyarrow.dataset as ds

    if not (folder / EVENTS).is_dir():
        return []
    events = ds.dataset(folder / EVENTS, format="parquet")
    parts = [part for batch in events.to_batches(columns=list(_COLUMNS)) for part in _summed(batch)]
    return [_merged([it for it in parts if it["run"] == run]) for run in sorted({it["run"] for it in parts})]


def _summed(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """For each group in it, its name, count, first and last time, and gaps as (seq, reason)."""
    import pyarrow as pa
    import pyarrow.compute as pc

    if not batch.num_rows:
        return
    rows = pa.Table.from_batches([batch])
    is_gap = pc.equal(rows["kind"], "gap")
    gaps = rows.filter(is_gap).select(["run", "seq", "reason"]).to_pylist()
    counted = rows.append_column("event", pc.invert(is_gap).cast(pa.int64()))
    for found in counted.group_by("run").aggregate([("event", "sum"), ("at_ms", "min"), ("at_ms", "max")]).to_pylist():
        yield {**found, "gaps": [(gap["seq"], gap["reason"]) for gap in gaps if gap["run"] == found["run"]]}


def _merged(parts: list[dict[str, Any]]) -> Exported:
    return Exported(
        parts[0]["run"],
        sum(it["event_sum"] for it in parts),
        min(it["at_ms_min"] for it in parts),
        max(it["at_ms_max"] for it in parts),
        tuple(reason for _, reason in sorted(gap for it in parts for gap in it["gaps"])),
    )
