"""Keys computed from columns, by which rows are split among files: Iceberg's partitions. Unlike partition columns, the
columns stay in the files.

=========  ===================================================================================
identity   the value itself; of a date the days, and of a timestamp the microseconds since 1970
day        days since 1970, of a date or a timestamp, in UTC
hour       hours since 1970, of a timestamp, in UTC
=========  ===================================================================================

A key is a text, as in `spark_eos.tables.files.DataFile.partition_values`: of decimal digits, or the string itself. Null
is the key of null; unlike in Delta, the empty string is one of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Literal, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.errors import stop
from spark_eos.tables.partitions import Coded, NoPartition, Partition, is_partition_type, split

Transform = Literal["identity", "day", "hour"]
_MICROSECONDS = {"day": 24 * 3600 * 1_000_000, "hour": 3600 * 1_000_000}
_INT32 = np.iinfo(np.int32)
#: A column, or a transform of one.
_OPTION = re.compile(r"(?:(?P<transform>[a-z]+)\((?P<of>[^()]+)\)|(?P<column>[^()]+))")


@dataclass(frozen=True)
class Key:
    """``name``: in the table's list of partition fields; ``column``: by whose values the key is computed."""

    name: str
    column: str
    transform: Transform = "identity"

    def fits(self, type_: pa.DataType) -> bool:
        """Whether the key can be computed of a column of this type."""
        if self.transform != "identity":
            return bool(pa.types.is_timestamp(type_) or (self.transform == "day" and pa.types.is_date32(type_)))
        return is_partition_type(type_)

    def of(self, column: pa.Array) -> pa.Array:
        """The keys of a column's values. Raises NoPartition."""
        if pa.types.is_date32(column.type):
            return column.view(pa.int32())
        if not pa.types.is_timestamp(column.type):
            return column
        numbers = column.view(pa.int64())
        if self.transform == "identity":
            return numbers
        # numpy rounds down, below 1970, too
        units = np.floor_divide(pc.fill_null(numbers, 0).to_numpy(), _MICROSECONDS[self.transform])
        if len(units) and not (_INT32.min <= units.min() and units.max() <= _INT32.max):
            raise NoPartition(f"its {self.transform} is too far from 1970")
        return pa.array(units.astype(np.int32), mask=numbers.is_null().to_numpy(zero_copy_only=False))


def key_of(option: str) -> Key:
    """The key that a part of the option ``partitionBy`` stands for, such as ``topic`` or ``day(timestamp)``. Raises
    OptionError."""
    found = _OPTION.fullmatch(option)
    transform = (found["transform"] or "identity") if found else ""
    if not found or transform not in get_args(Transform):
        raise stop("EOS_OPTION_INVALID.partition_transform", option="partitionBy", given=option)
    column = (found["of"] or found["column"]).strip()
    name = column if transform == "identity" else f"{column}_{transform}"
    return Key(name, column, cast(Transform, transform))


def by_key(batch: pa.RecordBatch, keys: Sequence[Key]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """The rows of each combination of keys in their order, with all columns. Raises NoPartition."""
    return split(batch, [_coded(key.of(batch.column(key.column))) for key in keys])


def _coded(column: pa.Array) -> Coded:
    encoded = column.dictionary_encode(null_encoding="encode")
    texts = [None if value is None else str(value) for value in encoded.dictionary.to_pylist()]
    return encoded.indices.to_numpy().astype(np.int64), texts


def value_of(text: str | None, type_: pa.DataType, transform: Transform) -> Any:  # noqa: ANN401
    """The key's value: the inverse of a key's text. ``type_``: of the column."""
    if text is None:
        return None
    if transform != "identity" or pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        return int(text)
    if pa.types.is_boolean(type_):
        return {"True": True, "False": False}[text]
    if pa.types.is_decimal(type_):
        return Decimal(text)
    return text if pa.types.is_string(type_) else int(text)
