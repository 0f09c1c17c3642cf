"""``spark.read.format("cobalance")`` and ``spark.readStream.format("cobalance")``: the journals of groups, straight
from Redis.

The rows are events (records.EVENT). A batch is what is there when it is planned; a stream continues from its
checkpoint, with nothing twice and nothing left out. Entries that Redis no longer has become a row of kind ``gap``.
Spark finds the source by itself, through the module ``pyspark_cobalance``; journal_options.py has its options.

Redis's URL is looked up where a process reads, and goes into no plan, partition, offset or message.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition

from cobalance_sims.records import EVENT
from cobalance_sims.spark.journal_options import JournalOptions
from cobalance_sims.spark.journal_slices import Slice, behind, cut, start_of
from cobalance_sims.spark.schemas import spark_ddl

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cobalance_sims.spark.journal_server import JournalServer
    from cobalance_sims.spark.journal_stream import JournalStreamReader

NAME = "cobalance"


class JournalSource(DataSource):
    """The source; Spark creates one for each query."""

    @classmethod
    def name(cls) -> str:
        """Name of the format."""
        return NAME

    def schema(self) -> str:
        """The schema of events, whatever is asked for."""
        JournalOptions.read(self.options)  # Invalid options are reported now.
        return spark_ddl(EVENT)

    def reader(self, schema: StructType) -> JournalReader:
        """The reader of a batch."""
        del schema
        return JournalReader(JournalOptions.read(self.options))

    def streamReader(self, schema: StructType) -> JournalStreamReader:  # noqa: N802 - Spark's name
        """The reader of a stream."""
        from cobalance_sims.spark.journal_stream import JournalStreamReader

        del schema
        return JournalStreamReader(JournalOptions.read(self.options))


class JournalSlice(InputPartition):
    """One slice, as Spark sends it to a task."""

    def __init__(self, piece: Slice) -> None:
        super().__init__(piece)
        self.piece = piece


class JournalReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: JournalOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Slices of every group."""
        from cobalance_sims.spark.journal_server import JournalServer

        options = self._options
        with JournalServer(options) as server:
            wholes = [self._whole(server, group) for group in server.groups(options.groups)]
            return [
                JournalSlice(piece)
                for whole in wholes
                if whole
                for piece in cut(server, whole, options.partition_entries)
            ]

    def _whole(self, server: JournalServer, group: str) -> Slice | None:
        start = start_of(server, group, self._options.since_ms)
        end = server.newest(group, self._options.until_ms)
        return Slice(group, start, end) if end and behind(start, end) else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self._options, partition)


@contextmanager
def uncollected() -> Iterator[None]:
    """Disables garbage collection: where a parser reads a page, it would scan tens of thousands of lists: half the time."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def read_piece(options: JournalOptions, partition: InputPartition) -> Iterator[pa.RecordBatch]:
    """Runs in the process of a task: a connection of its own, page by page."""
    from cobalance_sims.spark.journal_rows import read_slice
    from cobalance_sims.spark.journal_server import JournalServer

    piece = cast("JournalSlice", partition).piece
    with JournalServer(options) as server, uncollected():
        yield from read_slice(piece, server.pages(piece.group, piece.start.id, piece.end.id), options.on_gap)
