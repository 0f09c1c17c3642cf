"""Outcomes as a journal would show them, of a journal and of simulated runs alike, so that the two compare.

A simulator knows more than a journal: which process was alive, when it died, what was unacknowledged. That is left out
here. And a group that has just been created deals everything out; that is left out as well, where it was seen.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from cobalance_sims.outcomes import Event, RunFacts, fold
from cobalance_sims.records import EVENT, JOURNAL, OUTCOME
from cobalance_sims.simulate.kernel import RowResult, run_row
from cobalance_sims.simulate.server import START_MS

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

Outcome = dict[str, Any]
"""A row of OUTCOME (records.py)."""

MOST_OF_IT = 4
"""At most this part (a quarter) of a journal is left out as the beginning of its group."""

_HISTOGRAMS = tuple(it.name for it in OUTCOME.columns if it.type == "map<int,long>")
_SUMS = tuple(it.name for it in OUTCOME.columns if it.type in ("long", "double") and not it.nullable)


def outcome_of(events: Sequence[Event], run: str, warm_ms: int, *, ended_at_ms: int | None = None) -> Outcome:
    """What a journal of these events, ordered by ``seq``, shows from the time on at which its group had settled.

    Args:
        events: of one run or group.
        run: its name.
        warm_ms: how long a group takes to settle. It counts only if the events begin with the group.
        ended_at_ms: end of the observation; by default the last event.
    """
    plain = _plain(events)
    begun, ended = plain[0].at_ms, ended_at_ms or plain[-1].at_ms
    if plain[0].seq != 1:
        return _until(plain, run, ended)
    return outcome_between(plain, run, begun + min(warm_ms, (ended - begun) // MOST_OF_IT), ended)


def outcome_between(events: Sequence[Event], run: str, from_ms: int, to_ms: int) -> Outcome:
    """What a journal of these events shows of a part of its time; what was before tells who owned what."""
    plain = [it for it in _plain(events) if it.at_ms <= to_ms]
    return _without(_until(plain, run, to_ms), _until([it for it in plain if it.at_ms < from_ms], run, from_ms))


def _plain(events: Sequence[Event]) -> list[Event]:
    return [it._replace(unacked=None, silent_since_ms=None, alive=None) for it in events if it.kind != "gap"]


def _until(events: Sequence[Event], run: str, to_ms: int) -> Outcome:
    begun = events[0].at_ms if events else to_ms
    return fold(events, run, JOURNAL, RunFacts(begun, to_ms)).outcome_dict()


def _without(whole: Outcome, before: Outcome) -> Outcome:
    """What came after: sums and histograms are those of the whole less those of its beginning."""
    rest = {**whole, **{name: max(0, whole[name] - before[name]) for name in _SUMS}}
    for name in _HISTOGRAMS:
        counts = {bin_: count - before[name].get(bin_, 0) for bin_, count in whole[name].items()}
        rest[name] = {bin_: count for bin_, count in counts.items() if count > 0}
    return rest


def simulated_journal(params: Mapping[str, Any], *, warm_ms: int) -> RowResult:
    """A kernel for spark/simulation.py: the run's outcome, as its journal shows it.

    Raises:
        BadParameters, BadChurn, InvalidSettings: the parameters are invalid.
    """
    result = run_row(params)
    known = dict(zip(OUTCOME.names, result.outcome, strict=True))
    ended = START_MS + known["observed_ms"]
    found = outcome_of(result.events, known["run"], warm_ms, ended_at_ms=ended) if result.events else {}
    kept = {name: known[name] for name in ("seed", "status", "error", "replay", "cpu_s")}
    return RowResult([], [], OUTCOME.row({**known, **found, **kept}))


def observed(events: DataFrame, warm_ms: int) -> list[Outcome]:
    """The outcome of each run or group among rows of EVENT, each folded by one task."""
    from cobalance_sims.spark.errors import spark_errors
    from cobalance_sims.spark.schemas import arrow_schema, maps_read, spark_ddl, struct_array

    def folded(table: pa.Table) -> pa.Table:
        import pyarrow as pa

        columns = [table[name].to_pylist() for name in EVENT.names]
        rows = sorted((Event(*row) for row in zip(*columns, strict=True)), key=lambda it: it.seq)
        outcome = outcome_of(rows, rows[0].run, warm_ms)
        array = struct_array(OUTCOME, [OUTCOME.row(outcome)])
        return pa.Table.from_arrays(array.flatten(), schema=arrow_schema(OUTCOME))

    with spark_errors("folding the events"):
        rows = events.where("kind <> 'gap'").select(*EVENT.names).groupBy("run")
        found = rows.applyInArrow(folded, spark_ddl(OUTCOME).replace(" NOT NULL", ""))
        return [maps_read(OUTCOME, row) for row in found.toArrow().to_pylist()]
