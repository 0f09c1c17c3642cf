"""Arrow's and Spark's schemas of our records, made from the one declaration in ``records.py``.

A batch that a worker returns is bound to Spark's columns by position alone, so both sides are made here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pyarrow as pa

from cobalance_sims.records import Column, Record

_ARROW: dict[str, Any] = {
    "string": pa.string(),
    "long": pa.int64(),
    "double": pa.float64(),
    "boolean": pa.bool_(),
    "map<int,long>": pa.map_(pa.int32(), pa.int64()),
    "array<long>": pa.list_(pa.int64()),
}

_SPARK = {
    "string": "string",
    "long": "bigint",
    "double": "double",
    "boolean": "boolean",
    "map<int,long>": "map<int,bigint>",
    "array<long>": "array<bigint>",
}


def arrow_struct(record: Record) -> Any:
    """Its rows as an Arrow struct type."""
    return pa.struct([_arrow_field(column) for column in record.columns])


def arrow_schema(record: Record) -> Any:
    """Its columns as an Arrow schema."""
    return pa.schema([_arrow_field(column) for column in record.columns])


def spark_ddl(record: Record) -> str:
    """Its columns as Spark writes a schema in text."""
    return ", ".join(f"{it.name} {_SPARK[it.type]}{'' if it.nullable else ' NOT NULL'}" for it in record.columns)


def spark_type(column: Column) -> str:
    """Its type as Spark writes it."""
    return _SPARK[column.type]


def spark_struct(record: Record) -> str:
    """Its rows as a Spark struct type, in text."""
    return f"struct<{', '.join(f'{it.name}: {_SPARK[it.type]}' for it in record.columns)}>"


def struct_array(record: Record, rows: Sequence[Sequence[Any]]) -> Any:
    """Rows, each in the order of the record's columns, as an Arrow array of structs."""
    columns = list(zip(*rows, strict=True)) if rows else [()] * len(record.columns)
    arrays = [_array(column, values) for column, values in zip(record.columns, columns, strict=True)]
    return pa.StructArray.from_arrays(arrays, fields=list(arrow_struct(record)))


def maps_read(record: Record, row: Mapping[str, Any]) -> dict[str, Any]:
    """A row as Arrow gives it, with its maps as such: Arrow makes lists of pairs of them."""
    maps = {it.name for it in record.columns if it.type == "map<int,long>"}
    return {name: dict(value or ()) if name in maps else value for name, value in row.items()}


def _arrow_field(column: Column) -> Any:
    return pa.field(
        column.name, _ARROW[column.type], nullable=True
    )  # null arrays pass; records.py has refused null values


def _array(column: Column, values: Iterable[Any]) -> Any:
    if column.type == "map<int,long>":
        values = [None if it is None else list(it.items()) for it in values]
    return pa.array(values, _ARROW[column.type])
