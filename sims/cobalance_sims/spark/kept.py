"""Keeps what is used several times, in the memory and on the disks of Spark's workers, where Spark allows that."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_REFUSED = "NOT_SUPPORTED_WITH_SERVERLESS"
"""What Databricks says of persist on its serverless compute."""


@contextmanager
def kept(frame: DataFrame, spare: str | None = None) -> Iterator[DataFrame]:
    """Yields it, so that it is computed once for all that is done in the ``with``.

    Where Spark refuses to keep anything, it is written as Parquet into the folder ``spare``, which stays, and read from
    there; without such a folder it is computed each time.
    """
    from pyspark.errors import PySparkException

    try:
        there = frame.persist()
    except PySparkException as error:
        if _REFUSED not in str(error):
            raise
    else:
        try:
            yield there
        finally:
            there.unpersist()
        return
    if spare is None:
        yield frame
        return
    frame.write.mode("overwrite").parquet(spare)
    yield frame.sparkSession.read.schema(frame.schema).parquet(spare)
