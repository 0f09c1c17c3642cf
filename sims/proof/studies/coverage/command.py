"""The command: truths in waves, on Spark, into a file that the next call goes on with; and the table."""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from cobalance.settings import GroupSettings
from cobalance_sims.calibrate.calibration import Calibration, calibrate
from cobalance_sims.calibrate.drawing import DrawnChurns, of_calibration
from cobalance_sims.calibrate.tallies import tallies_by_run
from cobalance_sims.simulate.churn import CHURNS, Churn
from cobalance_sims.spark.session import open_session
from cobalance_sims.spark.simulation import simulated_events
from proof.studies.coverage.judgement import Effort, judged
from proof.studies.coverage.table import table
from proof.studies.coverage.truths import Truth, per_hour, truth

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BASE = "steady"
"""The churn for what a journal does not tell, as ``calibrate`` has it by default."""


def main(words: Sequence[str] | None = None) -> int:
    """Runs it."""
    parser = argparse.ArgumentParser(prog="make coverage", description=__doc__)
    parser.add_argument("--truths", type=int, default=40, help="how many true churns")
    parser.add_argument("--wave", type=int, default=8, help="how many of them are judged before they are kept")
    parser.add_argument("--seeds", type=int, default=Effort().seeds, help="as of tune")
    parser.add_argument("--true-runs", type=int, default=Effort().true_runs, help="runs of each truth")
    parser.add_argument("--out", type=Path, default=Path(__file__).with_name("coverage.json"))
    parser.add_argument("--master", default=None, help="a Spark master or Connect URL; this machine by default")
    given = parser.parse_args(words)
    effort = Effort(seeds=given.seeds, true_runs=given.true_runs)
    rows = json.loads(given.out.read_text(encoding="utf-8")) if given.out.exists() else []
    done = {row["number"] for row in rows}
    missing = [truth(number) for number in range(given.truths) if number not in done]
    session = open_session(given.master)
    try:
        for at in range(0, len(missing), given.wave):
            begun = time.monotonic()
            rows += study(session, missing[at : at + given.wave], effort)
            given.out.write_text(
                json.dumps(sorted(rows, key=lambda it: it["number"]), indent=1) + "\n", encoding="utf-8"
            )
            sys.stderr.write(f"{len(rows)} of {given.truths} truths, {time.monotonic() - begun:.0f} s\n")
    finally:
        session.stop()
    sys.stdout.write(f"{table(rows)}\n")
    return 0


def study(spark: SparkSession, truths: Sequence[Truth], effort: Effort) -> list[dict[str, Any]]:
    """Judges some truths: their journals are simulated on Spark, tallied by it, and each is tuned and judged by a task."""
    settings = GroupSettings()
    journals = [
        {
            "churn": it.churn.changed(length_ms=it.window_ms).table(),
            "seed": 1,
            "run": str(it.number),
            "checks": "none",
            **attrs.asdict(settings),
        }
        for it in truths
    ]
    found = tallies_by_run(simulated_events(spark, journals, range(len(journals))))
    asked = []
    for it in truths:
        known = calibrate(
            found[str(it.number)],
            CHURNS[BASE],
            name=f"calibrated-{it.number}",
            session_timeout_ms=settings.session_timeout_ms,
            heartbeat_interval_ms=settings.heartbeat_interval_ms,
            prefetch=it.churn.prefetch,
        )
        asked.append(_asked(it, known, effort))
    return _on_spark(spark, asked)


def _asked(it: Truth, known: Calibration, effort: Effort) -> dict[str, Any]:
    churns = of_calibration(known)
    return {
        "number": it.number,
        "families": it.families,
        "window_h": round(it.window_ms / 3_600_000, 2),
        "true": it.churn.table(),
        "churn": churns.churn.table(),
        "open": {name: dict(value) for name, value in churns.open.items()},
        "bases": {parameter.name: parameter.basis for parameter in known.parameters},
        "effort": attrs.asdict(effort),
    }


def _on_spark(spark: SparkSession, asked: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """One job, with a task for each."""
    import pyarrow as pa

    names = pa.array([json.dumps(it) for it in asked])
    rows = spark.createDataFrame(pa.table({"slot": pa.array(range(len(asked)), pa.int32()), "asked": names}))
    judged = rows.repartitionById(len(asked), "slot").mapInArrow(_judge, "judged string").collect()
    return [json.loads(row["judged"]) for row in judged]


def _judge(batches: Iterator[Any]) -> Iterator[Any]:
    """What a worker does."""
    import pyarrow as pa

    for batch in batches:
        judged = [json.dumps(judge(json.loads(text))) for text in batch["asked"].to_pylist()]
        yield pa.RecordBatch.from_arrays([pa.array(judged, pa.string())], ["judged"])


def judge(asked: dict[str, Any]) -> dict[str, Any]:
    """One truth, from plain values to plain values."""
    begun = time.process_time()
    bases = asked["bases"]
    knows_messages = not any(bases.get(name) == "assumed" for name in ("messages_per_s", "handle_ms"))
    churns = DrawnChurns(Churn.of(asked["churn"]), asked["open"])
    true = Churn.of(asked["true"])
    found = judged(true, churns, Effort(**asked["effort"]), per_hour(true), knows_messages=knows_messages)
    kept = {name: asked[name] for name in ("number", "families", "window_h", "effort", "bases")}
    return {**kept, "knows_messages": knows_messages, "cpu_s": round(time.process_time() - begun, 1), **found}
