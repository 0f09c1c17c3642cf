"""Reads events from Parquet, of an export or a sweep."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from typing import TYPE_CHECKING

from cobalance.errors import CobalanceError
from cobalance_sims.records import EVENT
from cobalance_sims.spark.errors import NotASweep
from cobalance_sims.spark.schemas import spark_ddl

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


class NoEvents(CobalanceError):
    """The given places hold no events."""


def from_parquet(spark: SparkSession, places: Sequence[str], groups: Sequence[str] = ()) -> DataFrame:
    """Reads events of exports, of sweeps (their finished waves), or of folders of either's events. Duplicates across
    places count once.

    Raises:
        NoEvents: there is no such folder.
    """
    events = reduce(lambda a, b: a.unionByName(b), (_read(spark, place) for place in places))
    if len(places) > 1:
        events = events.dropDuplicates(
            ["run", "id", "seq"]
        )  # a group that was created again restarts its seq, but never its ids
    if groups:
        events = events.where(events.run.isin(list(groups)))
    return events


def _read(spark: SparkSession, place: str) -> DataFrame:
    from cobalance_sims.spark.manifest import absolute
    from cobalance_sims.spark.tables import read_sweep

    try:
        return read_sweep(spark, place).events.select(*EVENT.names)
    except NotASweep:
        pass
    from pyspark.errors import AnalysisException

    for path in (f"{absolute(place)}/events", absolute(place)):
        try:
            return spark.read.schema(spark_ddl(EVENT)).parquet(path).select(*EVENT.names)
        except AnalysisException:
            continue
    raise NoEvents(f"There is no folder of Parquet at {place}.")
