"""Journals into Parquet, a folder ``events/wave=N`` a micro-batch, going on where the last run stopped.

A folder is written whole, and written again when its batch is repeated after a crash: so every reader of Parquet sees each entry
once, not only those who know Spark's own log of a stream's files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import attrs

from cobalance.errors import CobalanceError
from cobalance_sims.commands.journal import CHECKPOINT, EVENTS
from cobalance_sims.records import EVENT
from cobalance_sims.spark.errors import spark_errors
from cobalance_sims.spark.journal import NAME
from cobalance_sims.spark.manifest import absolute
from cobalance_sims.spark.schemas import spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class JournalFailed(CobalanceError):
    """A journal could not be read; what was exported before is kept."""


class NoEvents(CobalanceError):
    """There is nothing to export."""


@attrs.frozen
class Exported:
    """What the folder holds of one group."""

    group: str
    events: int
    first_at_ms: int
    last_at_ms: int
    gaps: tuple[str, ...]
    """Which entries are missing, by seq: "51 to 173"."""


def start_export(spark: SparkSession, out: str, options: Mapping[str, str], every_s: float | None) -> StreamingQuery:
    """Begins, or goes on: up to what is there now, or for ever, a batch in so many seconds."""
    events = f"{absolute(out)}/{EVENTS}"

    def write(batch: DataFrame, number: int) -> None:
        batch.write.mode("overwrite").parquet(f"{events}/wave={number:06d}")
        sys.stderr.write(f"wave {number} is written\n")
        sys.stderr.flush()

    stream = spark.readStream.format(NAME).options(**options).load()
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", f"{absolute(out)}/{CHECKPOINT}")
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{every_s} seconds").start()


def exported(spark: SparkSession, out: str) -> list[Exported]:
    """What the folder holds.

    Raises:
        NoEvents: nothing.
    """
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    is_gap = F.col("kind") == "gap"
    try:
        rows = spark.read.schema(spark_ddl(EVENT)).parquet(f"{absolute(out)}/{EVENTS}")
    except AnalysisException:
        rows = None
    if rows is None:
        raise NoEvents("The journal holds no events, from that time on at least: nothing was written.")
    with spark_errors("reading what was exported"):
        found = (
            rows.groupBy("run")
            .agg(
                F.count_if(~is_gap).alias("events"),
                F.min("at_ms").alias("first_at_ms"),
                F.max("at_ms").alias("last_at_ms"),
                F.sort_array(F.collect_list(F.when(is_gap, F.struct("seq", "reason")))).alias("gaps"),
            )
            .orderBy("run")
            .collect()
        )
    return [
        Exported(it.run, it.events, it.first_at_ms, it.last_at_ms, tuple(gap.reason for gap in it.gaps)) for it in found
    ]


def is_starved(error: Exception) -> bool:
    """Whether Spark only gave up waiting for a Python process to start: ten seconds, which nothing can change, are little on a
    machine that is busy. Nothing was lost.
    """
    return "Python worker failed to connect back" in str(error)


_OURS = re.compile(r"\bcobalance(?:_sims)?\.[\w.]*?(\w+): (.+)")


@contextmanager
def own_words(doing: str) -> Iterator[None]:
    """Inside, an error of ours that came back from a worker is told in its own words, without Spark's."""
    try:
        with spark_errors(doing):
            yield
    except CobalanceError as error:
        found = _OURS.search(str(error.__cause__ or ""))
        if found is None:
            raise
    else:
        return
    raise JournalFailed(found[2].strip())
