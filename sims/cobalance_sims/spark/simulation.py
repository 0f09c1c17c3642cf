"""Runs the kernel on Spark: rows of parameters in, rows of nested results out. This file has what a worker executes."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from cobalance.coordinator.advice import command
from cobalance_sims.records import EVENT, FAILED, HANDOVER, OUTCOME, SIM, Record
from cobalance_sims.spark.schemas import arrow_struct, spark_struct, struct_array

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from cobalance_sims.simulate.kernel import RowResult

RESULT = (
    f"outcome {spark_struct(OUTCOME)}, handovers array<{spark_struct(HANDOVER)}>, events array<{spark_struct(EVENT)}>, "
    "cost_s double"
)
"""One row for each run, so that it is simulated once for all tables. ``cost_s`` is all of its CPU time."""

BATCH_ROWS = 5_000
"""About how many rows a worker keeps before it returns them."""

_NOTHING: dict[str, Any] = {
    "string": "",
    "long": 0,
    "double": 0.0,
    "boolean": False,
    "map<int,long>": {},
    "array<long>": [],
}

Params = dict[str, Any]
Told = tuple[Any, Sequence[Any], Sequence[Any], float]
"""The result of one run: outcome, handovers, events, cost."""
Kernel = Callable[[Params], "RowResult"]
"""``kernel.run_row``, or a test's replacement."""


def simulated(
    spark: SparkSession,
    rows: Sequence[Params],
    slots: Sequence[int],
    kept: Sequence[bool],
    kernel: Kernel | None = None,
) -> DataFrame:
    """Returns the results of these rows of parameters, as RESULT has them. Rows of one slot are simulated by one task,
    one after the other.

    ``kept`` says for each row whether its events are wanted, too.
    """
    table = pa.table(
        {
            "slot": pa.array(slots, pa.int32()),
            "kept": pa.array(kept, pa.bool_()),
            "params": pa.array([json.dumps(row, sort_keys=True) for row in rows], pa.string()),
        }
    )
    return _by_slot(spark.createDataFrame(table), max(slots) + 1).mapInArrow(_worker(kernel), RESULT)


def _by_slot(rows: DataFrame, count: int) -> DataFrame:
    """A task for each slot; before PySpark 4.1 some slots share one, so that others have to wait for it."""
    if hasattr(type(rows), "repartitionById"):
        return rows.repartitionById(count, "slot")
    return rows.repartition(count, "slot")


def simulated_events(spark: SparkSession, rows: Sequence[Params], slots: Sequence[int]) -> DataFrame:
    """The events of these runs, as a journal or a sweep has them."""
    results = simulated(spark, rows, slots, [True] * len(rows))
    return results.selectExpr("explode(events) AS event").select("event.*")


def _worker(kernel: Kernel | None) -> Callable[[Iterable[Any]], Iterator[Any]]:
    """The function that a worker runs."""

    def simulate(batches: Iterable[Any]) -> Iterator[Any]:
        from cobalance_sims.simulate.kernel import run_row

        run, done, size = kernel or run_row, [], 0
        for batch in batches:
            for kept, params in zip(batch["kept"].to_pylist(), batch["params"].to_pylist(), strict=True):
                done.append(_one(run, json.loads(params), kept))
                size += 1 + len(done[-1][1]) + len(done[-1][2])
                if size >= BATCH_ROWS:
                    yield _batch(done)
                    done, size = [], 0
        if done:
            yield _batch(done)

    return simulate


def _one(run: Kernel, params: Params, kept: bool) -> Told:
    """A run that raises is a failed one: it must not take the others with it."""
    begun = time.process_time()
    try:
        result = run(params)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is in the outcome
        return failed_outcome(params, error), (), (), time.process_time() - begun
    return result.outcome, result.handovers, result.events if kept else (), time.process_time() - begun


def failed_outcome(params: Params, error: Exception) -> tuple[Any, ...]:
    """The outcome of a run of which nothing was observed."""
    text = json.dumps(params, sort_keys=True)
    known = {
        "run": params["run"],
        "source": SIM,
        "seed": params.get("seed"),
        "params": text,
        "status": FAILED,
        "error": f"{type(error).__name__}: {error}",
        "replay": command("sims run", key_prefix=None, params=text),
    }
    nothing = {it.name: _NOTHING[it.type] for it in OUTCOME.columns if not it.nullable}
    return OUTCOME.row({**nothing, **known})


def _batch(done: Sequence[Told]) -> Any:
    outcomes, handovers, events, costs = zip(*done, strict=True)
    tables = [struct_array(OUTCOME, outcomes), _lists(HANDOVER, handovers), _lists(EVENT, events)]
    return pa.RecordBatch.from_arrays([*tables, pa.array(costs)], ["outcome", "handovers", "events", "cost_s"])


def _lists(record: Record, lists: Sequence[Sequence[Any]]) -> Any:
    """An array of lists of structs."""
    offsets = [0]
    for rows in lists:
        offsets.append(offsets[-1] + len(rows))
    flat = struct_array(record, [row for rows in lists for row in rows])
    return pa.ListArray.from_arrays(pa.array(offsets, pa.int32()), flat, type=pa.list_(arrow_struct(record)))
