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

from cobalance.errors import InvalidSettings
from cobalance_sims.records import EVENT
from cobalance_sims.spark.journal_options import JournalOptions
from cobalance_sims.spark.journal_slices import Slice, behind, cut_all, start_of
from cobalance_sims.spark.schemas import spark_ddl, spark_type
from cobalance_sims.spark.session import check_streams

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from cobalance_sims.spark.journal_server import JournalServer
    from cobalance_sims.spark.journal_stream import JournalStreamReader

NAME = "cobalance"

Columns = tuple[tuple[str, bool], ...]
"""Names of columns, and whether each may be null, as Spark has asked for them."""

ALL_COLUMNS: Columns = tuple((it.name, it.nullable) for it in EVENT.columns)


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
        return JournalReader(JournalOptions.read(self.options), columns_of(schema))

    def streamReader(self, schema: StructType) -> JournalStreamReader:  # noqa: N802 - Spark's name
        """The reader of a stream."""
        check_streams()
        from cobalance_sims.spark.journal_stream import JournalStreamReader

        return JournalStreamReader(JournalOptions.read(self.options), columns_of(schema))


def columns_of(schema: StructType) -> Columns:
    """The columns of a query: all, or those that it names with ``.schema("run string, kind string")``.

    Raises:
        InvalidSettings: one is no column of events, or has another type there.
    """
    types = {it.name: spark_type(it) for it in EVENT.columns}
    for field in schema.fields:
        if types.get(field.name) != (kind := field.dataType.simpleString()):
            raise InvalidSettings(
                f"The cobalance source has no column {field.name} of type {kind}; it has {spark_ddl(EVENT)}."
            )
    return tuple((field.name, field.nullable) for field in schema.fields)


class JournalSlice(InputPartition):
    """One slice, as Spark sends it to a task."""

    def __init__(self, piece: Slice) -> None:
        super().__init__(piece)
        self.piece = piece


class JournalReader(DataSourceReader):
    """Reads what is there when the query is planned."""

    def __init__(self, options: JournalOptions, columns: Columns = ALL_COLUMNS) -> None:
        self._options, self._columns = options, columns

    def partitions(self) -> Sequence[InputPartition]:
        """Slices of every group."""
        from cobalance_sims.spark.journal_server import JournalServer

        options = self._options
        with JournalServer(options) as server:
            wholes = [self._whole(server, group) for group in server.groups(options.groups)]
            return [JournalSlice(piece) for piece in cut_all(server, list(filter(None, wholes)), options)]

    def _whole(self, server: JournalServer, group: str) -> Slice | None:
        start = start_of(server, group, self._options.since_ms)
        end = server.newest(group, self._options.until_ms)
        return Slice(group, start, end) if end and behind(start, end) else None

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return read_piece(self._options, partition, self._columns)


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


def read_piece(
    options: JournalOptions, partition: InputPartition, columns: Columns = ALL_COLUMNS
) -> Iterator[pa.RecordBatch]:
    """Runs in the process of a task: a connection of its own, page by page."""
    import pyarrow as pa

    from cobalance_sims.spark.journal_rows import SCHEMA, read_slice
    from cobalance_sims.spark.journal_server import JournalServer

    piece = cast("JournalSlice", partition).piece
    schema = pa.schema([SCHEMA.field(name).with_nullable(nullable) for name, nullable in columns])
    with JournalServer(options) as server, uncollected():
        pages = server.pages(piece.group, piece.start.id, piece.end.id)
        yield from read_slice(piece, pages, options.on_gap, schema)
