"""Data files as entries of Iceberg's manifests."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import date, datetime
from decimal import Context, Decimal
from typing import Any

from pyiceberg.conversions import to_bytes
from pyiceberg.manifest import DataFile as Entry
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.schema import Schema
from pyiceberg.typedef import Record
from pyiceberg.types import (
    DateType,
    DecimalType,
    NestedField,
    PrimitiveType,
    StructType,
    TimestampType,
    TimestamptzType,
)

from spark_eos.pipelines.tables.files import DataFile, FileLayout
from spark_eos.pipelines.tables.keys import value_of
from spark_eos.pipelines.tables.statistics import Bound, ColumnStatistics

_EPOCH, _FIRST_DAY = datetime(1970, 1, 1), date(1970, 1, 1)
#: Properties of a table for the metrics of a column in manifests, and of columns without a property of their own.
_MODE, _MODES = "write.metadata.metrics.column.", "write.metadata.metrics.default"


def entry(
    file: DataFile, folder: str, schema: Schema, spec_id: int, layout: FileLayout, properties: Mapping[str, str]
) -> Entry:
    """Return the manifest's entry of a file. ``folder``: where files are, as the table's metadata has it;
    ``properties``: the table's."""
    counted = list(_counted(file, schema, properties))
    bounded = [(field, one, type_) for field, one, type_, mode in counted if one.low is not None and mode != "counts"]
    return Entry.from_args(
        content=DataFileContent.DATA,
        file_path=f"{folder}/{file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(*(_key(file, key.name, layout) for key in layout.keys)),
        record_count=file.rows,
        file_size_in_bytes=file.size_bytes,
        column_sizes=None,
        value_counts={field: file.rows for field, *_ in counted},
        null_value_counts={field: one.nulls for field, one, *_ in counted},
        nan_value_counts={field: one.nans for field, one, *_ in counted if one.nans is not None},
        lower_bounds={field: to_bytes(type_, _value(one.low, type_)) for field, one, type_ in bounded},
        upper_bounds={field: to_bytes(type_, _value(one.high, type_)) for field, one, type_ in bounded},
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
        spec_id=spec_id,
    )


def _counted(
    file: DataFile, schema: Schema, properties: Mapping[str, str]
) -> Iterable[tuple[int, ColumnStatistics, PrimitiveType, str]]:
    """Yield field id, statistics, type and mode of each column of which manifests have counts: no lists and maps."""
    for one in file.statistics:
        field = _field(schema.fields, one.column)
        name = ".".join(one.column)
        mode = properties.get(_MODE + name) or properties.get(_MODES) or "full"
        if isinstance(field.field_type, PrimitiveType) and mode.strip().lower() != "none":
            yield field.field_id, one, field.field_type, mode.strip().lower()


def _field(fields: Sequence[NestedField], names: Sequence[str]) -> NestedField:
    """Return the field of the first name, or, for the further names, of its structs' fields."""
    field = next(field for field in fields if field.name == names[0])
    if isinstance(field.field_type, StructType) and len(names) > 1:
        return _field(field.field_type.fields, names[1:])
    return field


def _key(file: DataFile, name: str, layout: FileLayout) -> Any:  # noqa: ANN401  # a value of the key's type
    key = next(key for key in layout.keys if key.name == name)
    return value_of(file.partition_values[name], layout.schema.field(key.column).type, key.transform)


def _value(bound: Bound | None, type_: PrimitiveType) -> Any:  # noqa: ANN401
    """Return the bound as pyiceberg takes it."""
    if isinstance(type_, DateType):
        return (date.fromisoformat(str(bound)) - _FIRST_DAY).days
    if isinstance(type_, TimestampType | TimestamptzType):
        moment = datetime.fromisoformat(str(bound).removesuffix("Z")) - _EPOCH
        return (moment.days * 86_400 + moment.seconds) * 1_000_000 + moment.microseconds
    if isinstance(type_, DecimalType):
        assert isinstance(bound, Decimal)
        return bound.quantize(Decimal(1).scaleb(-type_.scale), context=Context(prec=type_.precision))
    return bound
