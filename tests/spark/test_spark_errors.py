"""Messages for Spark's errors: the remedy has to fit what broke."""

from __future__ import annotations

import pytest
from pyspark.errors import AnalysisException

from cobalance_sims.spark.errors import CorruptParquet, SparkMissing, translated


@pytest.mark.parametrize(
    ("file", "cure"),
    [
        (
            "/data/sweep/events/wave=20261122012048462/part-00000.snappy.parquet",
            "Remove /data/sweep/manifest/wave=20261122012048462 and run the same sweep again",
        ),
        (
            "/data/export/events/wave=000003/part-00000.snappy.parquet",
            "export the journal into a new folder",
        ),
        ("/data/else/part-00000.snappy.parquet", "Remove it, or write it again."),
    ],
)
def test_a_damaged_file_has_the_cure_of_its_kind(file: str, cure: str) -> None:
    """In a sweep, in an exported journal (which has no manifest), and in anything else."""
    clear = translated(
        AnalysisException(f"[CANNOT_READ_FILE_FOOTER] Could not read footer for file: file:{file}."), "x"
    )
    assert isinstance(clear, CorruptParquet)
    assert str(clear).startswith(f"{file} cannot be read (while x)")
    assert cure in str(clear)


def test_a_server_without_us_is_told_what_to_install() -> None:
    """A Connect server looks for the format in its own Python, which does not have what a client sends."""
    text = "[DATA_SOURCE_NOT_FOUND] Failed to find the data source: cobalance. Make sure the provider name is correct"
    clear = translated(AnalysisException(text), "reading the journal")
    assert isinstance(clear, SparkMissing)
    assert "pip install 'cobalance[spark]' where its driver runs" in str(clear)
