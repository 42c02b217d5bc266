"""Keys computed from columns, by which rows are split among files: Iceberg's partitions. Unlike partition columns, the
columns stay in the files.

================  ==================================================================================
identity          the value itself; of a date the days, and of a timestamp the microseconds since 1970
year, month, day  since 1970, of a date or a timestamp, in UTC
hour              since 1970, of a timestamp, in UTC
bucket[N]         the value's hash, modulo N
truncate[W]       a number rounded down to a multiple of W (of a decimal's last digit), the first W
                  characters of a text, or the first W bytes
================  ==================================================================================

A key is a text, as in `spark_eos.pipelines.tables.files.DataFile.partition_values`: of decimal digits, the string
itself, or bytes in hexadecimal digits. Null is the key of null; unlike in Delta, the empty string is one of its own.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.errors import invalid_option
from spark_eos.pipelines.tables.partitions import Coded, NoPartition, Partition, is_partition_type, split

_DAY_US, _HOUR_US = 24 * 3600 * 1_000_000, 3600 * 1_000_000
_INT32 = np.iinfo(np.int32)
#: The years 1 to 9999, which all readers of a table know, in days and in microseconds since 1970.
DAYS = -719_162, 2_932_896
MICROSECONDS = -719_162 * _DAY_US, 2_932_897 * _DAY_US - 1
#: A transform, as Iceberg writes it.
_TRANSFORM = re.compile(r"identity|year|month|day|hour|(?P<name>bucket|truncate)\[(?P<size>[1-9][0-9]{0,8})\]")
#: A column, or a transform of one, as Spark's SQL writes it.
_OPTION = re.compile(r"(?:(?P<transform>[a-z]+)\((?:(?P<size>[0-9]{1,19})\s*,)?(?P<of>[^(),]+)\)|(?P<column>[^()]+))")
#: Suffixes of partition fields' names, behind the name of the column.
_NAMES = {"truncate": "trunc"}


@dataclass(frozen=True)
class Key:
    """A partition field. ``name``: in the table's list of partition fields; ``column``: by whose values the key is
    computed; ``transform``: as Iceberg writes it, one of `is_known`."""

    name: str
    column: str
    transform: str = "identity"

    def fits(self, type_: pa.DataType) -> bool:
        """Return whether the key can be computed of a column of this type."""
        is_date, is_timestamp = pa.types.is_date32(type_), pa.types.is_timestamp(type_)
        if self.transform == "hour":
            return bool(is_timestamp)
        if self.transform in ("year", "month", "day"):
            return bool(is_timestamp or is_date)
        if self.transform == "identity":
            return is_partition_type(type_)
        of_bytes = pa.types.is_string(type_) or pa.types.is_binary(type_)
        of_numbers = pa.types.is_signed_integer(type_) or pa.types.is_decimal128(type_)
        return bool(of_bytes or of_numbers or (self._name == "bucket" and (is_date or is_timestamp)))

    def values(self, column: pa.Array) -> pa.Array:
        """Return the keys of a column's values. Raises NoPartition, also for a year that Python does not have:
        pyiceberg could not commit it."""
        if self._name == "bucket":
            return _bucket(column, self._size)
        if self._name == "truncate":
            return _truncated(column, self._size)
        if pa.types.is_date32(column.type):
            days = column.view(pa.int32())
            _check_range(days, *DAYS)
            return days if self.transform in ("identity", "day") else _units(days, self._of_days)
        if not pa.types.is_timestamp(column.type):
            return column
        numbers = column.view(pa.int64())
        _check_range(numbers, *MICROSECONDS)
        if self.transform == "identity":
            return numbers
        if self.transform == "hour":
            return _units(numbers, lambda moments: np.floor_divide(moments, _HOUR_US))
        # numpy rounds down, below 1970, too
        return _units(numbers, lambda moments: self._of_days(np.floor_divide(moments, _DAY_US)))

    def _of_days(self, days: np.ndarray) -> np.ndarray:
        """Convert days since 1970 to years, months or days since then."""
        return days.astype("datetime64[D]").astype(f"datetime64[{self.transform[0].upper()}]").astype(np.int64)

    @cached_property
    def _name(self) -> str:
        """Return ``bucket``, ``truncate``, or an empty text."""
        match = _TRANSFORM.fullmatch(self.transform)
        return (match["name"] if match else None) or ""

    @cached_property
    def _size(self) -> int:
        match = _TRANSFORM.fullmatch(self.transform)
        assert match is not None
        return int(match["size"])


def _check_range(numbers: pa.Array, first: int, last: int) -> None:
    low, high = pc.min_max(numbers).values()
    if low.is_valid and not first <= low.as_py() <= high.as_py() <= last:
        raise NoPartition("its year is not between 1 and 9999")


def is_known(transform: str) -> bool:
    """Return whether a key can be computed by this transform, as Iceberg writes it."""
    return _TRANSFORM.fullmatch(transform) is not None


def key_of(option: str) -> Key:
    """Parse a part of the option ``partitionBy``, such as ``topic``, ``day(timestamp)`` or ``bucket(16, id)``. Raises
    OptionError."""
    match = _OPTION.fullmatch(option)
    name = (match["transform"] or "identity") if match else ""
    transform = f"{name}[{int(match['size'])}]" if match and match["size"] else name
    if not match or not is_known(transform):
        raise invalid_option(
            "partitionBy",
            f"{option}, by which no files are written",
            "columns, and year, month, day and hour of a column, bucket(N, COLUMN) and truncate(WIDTH, COLUMN)",
        )
    column = (match["of"] or match["column"]).strip()
    return Key(column if name == "identity" else f"{column}_{_NAMES.get(name, name)}", column, transform)


# The transforms


def _units(numbers: pa.Array, units_of: Callable[[np.ndarray], np.ndarray]) -> pa.Array:
    """Convert numbers to 32 bits, null where there is none. Raises NoPartition for one that is too far from 1970."""
    units = units_of(pc.fill_null(numbers, 0).to_numpy())
    if len(units) and not (_INT32.min <= units.min() and units.max() <= _INT32.max):
        raise NoPartition("it is too far from 1970")
    return pa.array(units.astype(np.int32), mask=_nulls(numbers))


def _nulls(column: pa.Array) -> np.ndarray:
    nulls: np.ndarray = column.is_null().to_numpy(zero_copy_only=False)
    return nulls


def _truncated(column: pa.Array, width: int) -> pa.Array:
    type_ = column.type
    if pa.types.is_string(type_):
        return pc.utf8_slice_codeunits(column, 0, width)
    if pa.types.is_binary(type_):
        return pc.binary_slice(column, 0, width)
    try:
        if pa.types.is_decimal(type_):
            encoded = column.dictionary_encode()
            unscaled = map(_unscaled, encoded.dictionary.to_pylist())
            down = [_decimal(number - number % width, type_.scale) for number in unscaled]
            return pa.array(down, type_).take(encoded.indices)
        numbers = pc.fill_null(column.cast(pa.int64()), 0).to_numpy()
        down = numbers - np.mod(numbers, width)
        if not (down > numbers).any():
            return pa.array(down, mask=_nulls(column)).cast(type_)
    except pa.ArrowInvalid:
        pass
    raise NoPartition(f"rounded down to a multiple of {width}, it does not fit {type_}")


def _unscaled(value: Decimal) -> int:
    """Return the digits with their sign, independent of the decimal context's precision."""
    sign, digits, _ = value.as_tuple()
    number = int("".join(map(str, digits)))
    return -number if sign else number


def _decimal(unscaled: int, scale: int) -> Decimal:
    return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))


def _bucket(column: pa.Array, count: int) -> pa.Array:
    """Return Iceberg's hash of a value: Murmur3's of 32 bits, without its sign and modulo ``count``."""
    type_ = column.type
    if pa.types.is_date32(type_):
        hashes = _hashes_of_longs(column.view(pa.int32()))
    elif pa.types.is_timestamp(type_):
        hashes = _hashes_of_longs(column.view(pa.int64()))
    elif pa.types.is_signed_integer(type_):
        hashes = _hashes_of_longs(column)
    else:
        return _buckets_of_bytes(column, count)
    return pa.array((hashes & np.uint32(0x7FFFFFFF)).astype(np.int32) % np.int32(count), mask=_nulls(column))


def _buckets_of_bytes(column: pa.Array, count: int) -> pa.Array:
    from mmh3 import hash as murmur3  # of the extra that pyiceberg is of

    encoded = column.dictionary_encode()
    values: list[Any] = encoded.dictionary.to_pylist()
    if pa.types.is_decimal(column.type):
        values = [_shortest(_unscaled(value)) for value in values]
    buckets = pa.array([(murmur3(value) & 0x7FFFFFFF) % count for value in values], pa.int32())
    return buckets.take(encoded.indices)


def _shortest(number: int) -> bytes:
    """Return a number's two's complement, most significant byte first, in as few bytes as can be."""
    bits = (number + (number < 0)).bit_length() + 1
    return number.to_bytes((bits + 7) // 8, "big", signed=True)


def _hashes_of_longs(numbers: pa.Array) -> np.ndarray:
    """Return Murmur3's 32 bits of each number's eight bytes, least significant first."""
    longs = pc.fill_null(numbers.cast(pa.int64()), 0).to_numpy().view(np.uint64)
    hashes = np.zeros(len(longs), np.uint32)
    for half in ((longs & np.uint64(0xFFFFFFFF)).astype(np.uint32), (longs >> np.uint64(32)).astype(np.uint32)):
        mixed = _rotated(half * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)
        hashes = _rotated(hashes ^ mixed, 13) * np.uint32(5) + np.uint32(0xE6546B64)
    hashes ^= np.uint32(8)
    hashes = (hashes ^ hashes >> np.uint32(16)) * np.uint32(0x85EBCA6B)
    hashes = (hashes ^ hashes >> np.uint32(13)) * np.uint32(0xC2B2AE35)
    return hashes ^ hashes >> np.uint32(16)


def _rotated(numbers: np.ndarray, bits: int) -> np.ndarray:
    rotated: np.ndarray = numbers << np.uint32(bits) | numbers >> np.uint32(32 - bits)
    return rotated


# Rows by keys


def by_key(batch: pa.RecordBatch, keys: Sequence[Key]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Return the rows of each combination of keys in their order, with all columns. Raises NoPartition."""
    return split(batch, [_coded(key.values(batch.column(key.column))) for key in keys])


def without_key(rows: pa.RecordBatch, keys: Sequence[Key]) -> dict[int, str]:
    """Return index → reason for rows without a key: one of their values cannot be a partition value."""
    reasons: dict[int, str] = {}
    for key in keys:
        column, waiting = rows.column(key.column), [(0, rows.num_rows)]
        while waiting:
            begin, end = waiting.pop()
            try:
                key.values(column.slice(begin, end - begin))
            except NoPartition as error:
                if end - begin > 1:  # find the value by bisection
                    middle = (begin + end) // 2
                    waiting += [(middle, end), (begin, middle)]
                else:
                    reasons.setdefault(begin, f"column {key.column}: no value of a partition: {error}")
    return reasons


def _coded(column: pa.Array) -> Coded:
    encoded = column.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary.to_pylist()
    texts = [value.hex() if isinstance(value, bytes) else None if value is None else str(value) for value in values]
    return encoded.indices.to_numpy().astype(np.int64), texts


def value_of(text: str | None, type_: pa.DataType, transform: str) -> Any:  # noqa: ANN401
    """Return the key's value: the inverse of a key's text. ``type_``: of the column."""
    if text is None:
        return None
    keeps_type = transform == "identity" or transform.startswith("truncate")
    if not keeps_type or pa.types.is_date32(type_) or pa.types.is_timestamp(type_):
        return int(text)
    if pa.types.is_boolean(type_):
        return {"True": True, "False": False}[text]
    if pa.types.is_decimal(type_):
        return Decimal(text)
    if pa.types.is_binary(type_):
        return bytes.fromhex(text)
    return text if pa.types.is_string(type_) else int(text)
