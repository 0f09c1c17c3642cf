"""Reads what a sweep has written, finished waves only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import attrs

from cobalance.coordinator.advice import command
from cobalance_sims.records import EVENT, HANDOVER, OUTCOME, Record
from cobalance_sims.spark.errors import NotASweep
from cobalance_sims.spark.manifest import Manifest, absolute
from cobalance_sims.spark.schemas import spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TABLES: dict[str, Record] = {"events": EVENT, "handovers": HANDOVER, "outcomes": OUTCOME}
"""Folder → what its rows are."""


@attrs.frozen
class SweepTables:
    """The tables of a sweep; each has its record's columns and ``wave``. Read them inside ``spark_errors``."""

    events: DataFrame
    """Events of the runs that were chosen to keep theirs."""
    handovers: DataFrame
    outcomes: DataFrame
    """One row for each run, failed ones included."""


def read_sweep(spark: SparkSession, out: str) -> SweepTables:
    """Reads the sweep in a folder.

    Raises:
        NotASweep: there is none.
        CorruptParquet: its manifest is damaged.
    """
    waves = Manifest(spark, absolute(out)).waves()
    if not waves:
        raise NotASweep(
            f"{out} holds no finished wave of a sweep: make one with {command('sims sweep', key_prefix=None, out=out)} …"
        )
    return SweepTables(
        **{name: _table(spark, f"{absolute(out)}/{name}", record, waves) for name, record in TABLES.items()}
    )


def _table(spark: SparkSession, path: str, record: Record, waves: list[int]) -> DataFrame:
    rows = spark.read.schema(f"{spark_ddl(record)}, wave bigint").parquet(path)
    return rows.where(rows.wave.isin(waves))
