"""Data files as actions of Delta's log."""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from deltalake.transaction import AddAction

from spark_eos.base.whole_numbers import whole_number
from spark_eos.pipelines.tables.files import DataFile
from spark_eos.pipelines.tables.statistics import Bound, ColumnStatistics

#: More columns than any table has.
_ALL = 1 << 30


def statistics_columns(properties: Mapping[str, str]) -> int:
    """Return `FileLayout.statistics_columns` for a table with these properties: with fewer,
    `DeltaTable.to_pyarrow_dataset` would take missing bounds that it looks for to be null."""
    number = whole_number(properties.get("delta.dataSkippingNumIndexedCols", "32"))
    by_name = "delta.dataSkippingStatsColumns" in properties
    return _ALL if number is None or by_name else number


def add_action(file: DataFile) -> AddAction:
    """Return the action that adds the file. delta-rs encodes the path."""
    return AddAction(
        path=file.path,
        size=file.size_bytes,
        partition_values=dict(file.partition_values),
        modification_time=file.written_at_ms,
        data_change=True,
        stats=statistics_text(file),
    )


def statistics_text(file: DataFile) -> str:
    """Return the field ``stats``: JSON with exact numbers.

    Either all columns have bounds or none has: if only some have, `DeltaTable.to_pyarrow_dataset` (1.6.6) takes a
    missing bound for null, and finds no row by that column. So it does with a struct that is missing, so that a struct
    is there though none of its fields may have bounds.
    """
    lows: dict[str, Any] = {}
    highs: dict[str, Any] = {}
    nulls: dict[str, Any] = {}
    for one in file.statistics:
        _put(nulls, one, one.nulls)
        _put(lows, one, None if one.high is None else one.low)
        _put(highs, one, None if one.low is None else one.high)
    bounds = {} if any(one.unknown for one in file.statistics) else {"minValues": lows, "maxValues": highs}
    return _text({"numRecords": file.rows, **bounds, "nullCount": nulls})


def _put(into: dict[str, Any], one: ColumnStatistics, value: Bound | None) -> None:
    """Add a column's value, if there is one; columns within structs become nested objects, if there is none, too."""
    *above, last = one.column
    for name in above:
        into = into.setdefault(name, {})
    if value is not None:
        into[last] = value


def _text(value: dict[str, Any] | Bound) -> str:
    """Return JSON with decimals, which the standard library cannot write, and without escapes of characters: delta-rs
    1.6.6 reads the two escapes ``\\ud86e\\udd7a`` of one character as another one."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{_text(name)}:{_text(one)}' for name, one in value.items())}}}"
    return format(value, "f") if isinstance(value, Decimal) else json.dumps(value, ensure_ascii=False)
