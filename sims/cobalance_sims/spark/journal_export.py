"""Exports journals into Parquet, a folder ``events/wave=N`` for each micro-batch, resuming where the last run stopped.

A folder is written whole. When its batch is repeated after a crash, it is written again if it was not complete, and
left as it is if it was: Redis may have trimmed meanwhile what the folder holds. So every reader of Parquet sees each
entry once, not only those that know Spark's own log of a stream's files.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from cobalance import errors
from cobalance.errors import CobalanceError
from cobalance_sims.records import EVENT
from cobalance_sims.spark.errors import spark_errors
from cobalance_sims.spark.journal import NAME
from cobalance_sims.spark.journal_folder import CHECKPOINT, EVENTS, Exported, exported_here, lost_its_place
from cobalance_sims.spark.manifest import absolute, folder_of
from cobalance_sims.spark.schemas import spark_ddl
from cobalance_sims.spark.sweep import core_count

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


class JournalFailed(CobalanceError):
    """A journal could not be read; what was exported before is kept."""


KEPT = "What was exported before is kept; the same command goes on from there."

COMPLETE = "_SUCCESS"
"""The file that Spark writes last into a folder."""


class NothingToExport(CobalanceError):
    """There is nothing to export."""


def start_export(spark: SparkSession, out: str, options: Mapping[str, str], every_s: float | None) -> StreamingQuery:
    """Starts or resumes: up to what is there now, or for ever, with a batch every ``every_s`` seconds."""
    events, checkpoint = f"{absolute(out)}/{EVENTS}", f"{absolute(out)}/{CHECKPOINT}"
    if folder_of(out) is None and is_there(spark, events) and not is_there(spark, checkpoint):
        raise lost_its_place(out)

    def write(batch: DataFrame, number: int) -> None:
        wave = f"{events}/wave={number:06d}"
        if not is_there(batch.sparkSession, f"{wave}/{COMPLETE}"):
            batch.write.mode("overwrite").parquet(wave)
        sys.stderr.write(f"wave {number} is written\n")
        sys.stderr.flush()

    stream = spark.readStream.format(NAME).options(minPartitions=core_count(spark), **options).load()
    writer = stream.writeStream.foreachBatch(write).option("checkpointLocation", checkpoint)
    if every_s is None:
        return writer.trigger(availableNow=True).start()
    return writer.trigger(processingTime=f"{max(1, round(every_s * 1000))} milliseconds").start()


def is_there(spark: SparkSession, path: str) -> bool:
    """Whether there is a file or folder of this name for Spark, wherever its disks are."""
    from pyspark.errors import AnalysisException

    try:
        spark.read.text(path).schema  # noqa: B018 - asking for it is what makes Spark look
    except AnalysisException as error:
        if error.getCondition() == "PATH_NOT_FOUND":
            return False
        raise
    return True


def exported(spark: SparkSession, out: str) -> list[Exported]:
    """What the folder holds.

    Raises:
        NothingToExport: nothing.
    """
    here = folder_of(out)
    found = (here and exported_here(here)) or exported_there(spark, out)
    if not found:
        raise NothingToExport(
            f"There are no events in {out}: the journal holds none from that time on, or none since the last export into this folder."
        )
    return found


def exported_there(spark: SparkSession, out: str) -> list[Exported]:
    """What the folder holds, read by Spark, wherever it is; nothing if there is none."""
    from pyspark.errors import AnalysisException
    from pyspark.sql import functions as F  # noqa: N812 - as everybody calls it

    is_gap = F.col("kind") == "gap"
    try:
        rows = spark.read.schema(spark_ddl(EVENT)).parquet(f"{absolute(out)}/{EVENTS}")
    except AnalysisException:
        return []
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


_SLOW = ("Python worker failed to connect back", "waiting for the Python worker to connect back")


def is_starved(error: Exception) -> bool:
    """Whether Spark only gave up waiting for a Python process to start: ten seconds, which cannot be configured, are
    little on a busy machine. Nothing was lost.
    """
    return any(words in str(error) for words in _SLOW)


_OURS = re.compile(r"\bcobalance(?:_sims)?\.(?:\w{1,99}\.){0,9}(\w{1,99}): (.+)")


@contextmanager
def own_words(doing: str) -> Iterator[None]:
    """Restores an error of ours that came back from a worker: its own message, without Spark's, and its own class."""
    try:
        with spark_errors(doing):
            yield
    except CobalanceError as error:
        found = _OURS.search(str(error.__cause__ or ""))
        if found is None:
            raise
    else:
        return
    raise _kind(found[1])(f"{found[2].strip()} {KEPT}")


def _kind(name: str) -> type[CobalanceError]:
    found = getattr(errors, name, None)
    return found if isinstance(found, type) and issubclass(found, CobalanceError) else JournalFailed
