"""What a report is made from: a sweep, an exported journal or a recommendation, recognised by the contents of the
folder.

It is read with Arrow alone, so that a report needs neither Java nor Spark. Large data are read by column, and only one
run's events.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from cobalance.errors import CobalanceError, UsageError, counted
from cobalance.limits import parse_json
from cobalance_sims.outcomes.event import Event
from cobalance_sims.outcomes.fold import fold
from cobalance_sims.records import EVENT, JOURNAL, OUTCOME, SIM, Record

MOST_FOLDED = 5_000_000
"""The most events of journals that are folded here, by one process: about a minute."""


class NothingToReport(UsageError):
    """The folder or file is nothing that a report can be made from."""


class SourceUnreadable(CobalanceError):
    """A file is damaged, or not what it should be. Nothing was written."""


@attrs.frozen(eq=False)
class Material:
    """The contents of one source."""

    label: str
    source: str
    """sim, journal or tune."""
    outcomes: list[dict[str, Any]] = attrs.field(factory=list)
    """One row for each run: the columns that the report uses."""
    histograms: dict[str, dict[int, int]] = attrs.field(factory=dict)
    """Summed over all runs: gap_hist, drain_hist and heal_hist."""
    events: list[Event] = attrs.field(factory=list)
    """Events of the run whose story is shown."""
    tuned: dict[str, Any] = attrs.field(factory=dict)


def read(path: str, run: str | None = None) -> Material:
    """Reads the source in a folder or file; ``run`` chooses the run or group whose story is shown.

    Raises:
        NothingToReport: it is no source, or has no such run.
        SourceUnreadable: it is damaged.
    """
    there = Path(path).expanduser()
    if there.is_file():
        return _tuned(there)
    if (there / "outcomes").is_dir():
        return _sweep(there, run)
    if (there / "events").is_dir():
        return _journal(there, run)
    found = sorted(there.glob("*.json")) if there.is_dir() else []
    if found:
        return next((it for it in map(_peeked, found) if it is not None), None) or _tuned(found[0])
    raise NothingToReport(
        f"{path} is neither a sweep (cobalance sims sweep --out), nor an exported journal (cobalance sims journal --out), nor a "
        "recommendation (cobalance sims tune)."
    )


HISTOGRAMS = ("gap_hist", "drain_hist", "heal_hist")
_BULKY = {"gap_hist", "drain_hist", "heal_hist", "late_hist", "heal_ms", "params", "replay"}


def _sweep(folder: Path, run: str | None) -> Material:
    with _damage(folder):
        table = _dataset(folder / "outcomes", _waves(folder)).to_table(columns=[*OUTCOME.names])
    _check(table, OUTCOME, folder)
    if not table.num_rows:
        raise NothingToReport(f"{folder} holds no finished wave of a sweep: let cobalance sims sweep go on.")
    rows = table.select([name for name in table.column_names if name not in _BULKY]).to_pylist()
    merged = {name: _merged(table[name]) for name in HISTOGRAMS}
    events = _story_events(folder, _waves(folder), run, rows) if (folder / "events").is_dir() else []
    return Material(f"{folder.resolve().name}: {counted(len(rows), 'simulated run')}", SIM, rows, merged, events)


def _waves(folder: Path) -> list[Path] | None:
    """The finished waves; None for a folder without a manifest, where everything counts."""
    if not (folder / "manifest").is_dir():
        return None
    return [wave for wave in sorted((folder / "manifest").glob("wave=*")) if any(wave.glob("*.parquet"))]


def _dataset(folder: Path, waves: list[Path] | None) -> Any:
    import pyarrow.dataset as ds

    folders = [folder] if waves is None else [folder / wave.name for wave in waves]
    files = [
        str(file) for it in folders for file in sorted(it.rglob("*.parquet")) if not file.name.startswith(("_", "."))
    ]
    return ds.dataset(files, format="parquet", schema=_schema(folder.name))


def _schema(name: str) -> Any:
    from cobalance_sims.spark.schemas import arrow_schema

    return arrow_schema(EVENT if name == "events" else OUTCOME)


def _merged(column: Any) -> dict[int, int]:
    """All histograms of a column, added up."""
    total: dict[int, int] = {}
    for chunk in column.chunks:
        bins, counts = np.asarray(chunk.keys), np.asarray(chunk.items)
        if len(bins):
            sums = np.bincount(bins, weights=counts)
            for at in np.flatnonzero(sums):
                total[int(at)] = total.get(int(at), 0) + int(sums[at])
    return total


def _story_events(folder: Path, waves: list[Path] | None, run: str | None, rows: list[dict[str, Any]]) -> list[Event]:
    import pyarrow.compute as pc

    with _damage(folder):
        dataset = _dataset(folder / "events", waves)
        there = set(dataset.to_table(columns=["run"])["run"].unique().to_pylist())
        if run is not None and run not in there:
            raise NothingToReport(f"{folder} keeps no events of the run {run}; it does of {_some(sorted(there))}.")
        if not there:
            return []
        chosen = run or _most_telling([row for row in rows if row["run"] in there]) or min(there)
        return _events(dataset.to_table(filter=pc.field("run") == chosen), folder)


def _most_telling(rows: list[dict[str, Any]]) -> str | None:
    """The run with a story of a drawable size, in which much happens and something goes wrong."""

    def worth(row: dict[str, Any]) -> tuple[bool, int, int]:
        kinds = sum(bool(row[name]) for name in ("deadline_moves", "crashes", "leaves", "cancelled", "false_expiries"))
        return (
            4 <= (row["resources"] or 0) <= 24,
            kinds,
            min(row["deadline_moves"], 5) - abs(row["handovers"] - 50) // 10,
        )

    return max(rows, key=worth)["run"] if rows else None


def _journal(folder: Path, run: str | None) -> Material:
    import pyarrow.compute as pc

    with _damage(folder):
        dataset = _dataset(folder / "events", None)
        counts = {
            it["values"]: it["counts"] for it in dataset.to_table(columns=["run"])["run"].value_counts().to_pylist()
        }
    if None in counts:
        raise _strange(folder, ["run"])
    if not counts:
        raise NothingToReport(f"{folder} holds no events.")
    if run is not None and run not in counts:
        raise NothingToReport(f"{folder} has no group {run}; it has {_some(sorted(counts))}.")
    if sum(counts.values()) > MOST_FOLDED:
        raise NothingToReport(
            f"{folder} holds {sum(counts.values()):,} events, more than {MOST_FOLDED:,}: export less (--since)."
        )
    chosen = run or max(counts, key=lambda it: counts[it])
    rows, merged, chosen_events = [], {name: dict[int, int]() for name in HISTOGRAMS}, list[Event]()
    for group in sorted(counts):
        with _damage(folder):
            events = _events(dataset.to_table(filter=pc.field("run") == group), folder)
        rows.append(fold(events, group, JOURNAL).outcome_dict())
        for name, total in merged.items():
            for bin_, amount in rows[-1][name].items():
                total[bin_] = total.get(bin_, 0) + amount
        chosen_events = events if group == chosen else chosen_events
    label = f"journal of {_some(sorted(counts))}"
    return Material(label, JOURNAL, rows, merged, chosen_events)


def _check(table: Any, record: Record, folder: Path) -> None:
    """Columns that a file lacks are read as nulls."""
    lacking = [it.name for it in record.columns if not it.nullable and table[it.name].null_count]
    if lacking:
        raise _strange(folder, lacking)


def _strange(folder: Path, lacking: Sequence[str]) -> SourceUnreadable:
    return SourceUnreadable(
        f"{folder} holds rows without {_some(lacking)}: other data, or of another version of Cobalance. Make it again."
    )


def _events(table: Any, folder: Path) -> list[Event]:
    _check(table, EVENT, folder)
    columns = [table[name].to_pylist() for name in EVENT.names]
    return sorted((Event(*row) for row in zip(*columns, strict=True)), key=lambda it: it.seq)


def _peeked(file: Path) -> Material | None:
    """A recommendation among other files; None for those."""
    try:
        return _tuned(file)
    except CobalanceError:
        return None


def _tuned(file: Path) -> Material:
    try:
        found = parse_json(file.read_text(encoding="utf-8"), dict)
    except (OSError, ValueError) as error:
        raise SourceUnreadable(f"{file} cannot be read as the result of cobalance sims tune: {error}.") from None
    if "today" not in found:
        raise NothingToReport(f"{file} is not the result of cobalance sims tune.")
    return Material(file.name, "tune", tuned=found)


@contextmanager
def _damage(folder: Path) -> Iterator[None]:
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError) as error:
        problem = " ".join(str(error).split())[:300]
    else:
        return
    raise SourceUnreadable(f"The Parquet in {folder} cannot be read: {problem}")


def _some(names: Sequence[str]) -> str:
    return ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
