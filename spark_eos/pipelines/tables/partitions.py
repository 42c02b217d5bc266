"""Partition values as texts, for a table's log and for names of directories.

=========================  ==================================================
boolean                    ``true``, ``false``
integers                   decimal digits
decimal(p, s)              with all ``s`` digits after the point
string                     as it is; the empty string is null, as in Delta
date                       ``2024-05-01``
timestamp                  ``2024-05-01T12:30:00.000000Z``, in UTC
timestamp without a zone   ``2024-05-01 12:30:00.000000``
=========================  ==================================================
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa

#: The name of null in directories, which no string may have.
NULL = "__HIVE_DEFAULT_PARTITION__"
#: The longest name of a directory in bytes.
LONGEST_NAME = 255
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-")
_EPOCH = datetime(1970, 1, 1)
_MICROSECOND = timedelta(microseconds=1)


class NoPartition(Exception):
    """A value cannot be a partition value. The message has the reason, not the value."""


#: A partition of a table: the text of each partition column, None for null.
Partition = tuple[str | None, ...]

#: For each row the index of its text, and the texts, without duplicates.
Coded = tuple[np.ndarray, list[str | None]]


def is_partition_type(type_: pa.DataType) -> bool:
    """Return whether a column of this type may be a partition column. Floating point may not be, as NaN equals nothing
    and text is not exact; nor may bytes, which have no text."""
    return bool(
        pa.types.is_boolean(type_)
        or pa.types.is_signed_integer(type_)
        or pa.types.is_decimal128(type_)
        or pa.types.is_string(type_)
        or pa.types.is_date32(type_)
        or pa.types.is_timestamp(type_)
    )


def text_of(value: Any, type_: pa.DataType) -> str | None:  # noqa: ANN401  # any value of the column's type
    """Return the text of a Python value; of a timestamp as microseconds since 1970. Raises NoPartition."""
    if value is None or value == "":
        return None
    text = _text(value, type_)
    if value_of(text, type_) != value:  # readers cannot open a table with a text that they cannot parse
        raise NoPartition("its text would be read as another value")
    return text


def _text(value: Any, type_: pa.DataType) -> str:  # noqa: ANN401
    if pa.types.is_string(type_):
        if value == NULL:
            raise NoPartition("readers take it for null")
        return str(value)
    if pa.types.is_boolean(type_):
        return "true" if value else "false"
    if pa.types.is_timestamp(type_):
        try:
            moment = _EPOCH + value * _MICROSECOND
        except OverflowError:
            raise NoPartition("its year is not between 1 and 9999") from None
        return f"{moment.isoformat('T', 'microseconds')}Z" if type_.tz else moment.isoformat(" ", "microseconds")
    return format(value, "f") if isinstance(value, Decimal) else str(value)


def value_of(text: str, type_: pa.DataType) -> Any:  # noqa: ANN401
    """Return the value that readers parse from a text; the inverse of `text_of`. Raises NoPartition for a text that
    they cannot parse, with which they could no longer open the table."""
    try:
        return _parser(type_)(text)
    except (ValueError, ArithmeticError, KeyError):
        raise NoPartition(f"no text of {type_}") from None


def _parser(type_: pa.DataType) -> Callable[[str], Any]:
    if pa.types.is_boolean(type_):
        return {"true": True, "false": False}.__getitem__
    if pa.types.is_signed_integer(type_):
        return lambda text: _integer(text, type_.bit_width)
    if pa.types.is_decimal(type_):
        return lambda text: _decimal(text, type_.precision, type_.scale)
    if pa.types.is_date(type_):
        return date.fromisoformat
    if pa.types.is_timestamp(type_):
        return lambda text: _microseconds(text.removesuffix("Z") if type_.tz else text)
    return str


def _microseconds(text: str) -> int:
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is not None:
        raise ValueError(text)
    return (moment - _EPOCH) // _MICROSECOND


def _integer(text: str, bits: int) -> int:
    number = int(text)  # which takes 1_000, too
    if "_" in text or not text.isascii() or not -(1 << bits - 1) <= number < 1 << bits - 1:
        raise ValueError(text)
    return number


def _decimal(text: str, precision: int, scale: int) -> Decimal:
    number = Decimal(text)
    exponent = number.as_tuple().exponent
    if exponent != -scale or len(number.as_tuple().digits) > precision:
        raise ValueError(text)
    return number


def directory_of(names: Sequence[str], partition: Partition) -> str:
    """Return the directory of a partition, ``p=x/q=y/``; empty for a table without partition columns.

    Bytes other than letters, digits and ``_.-`` are escaped, as ``%20``. Not so spaces and letters of any alphabet in
    the name of a column, which polars looks for in the directory as it is. Raises NoPartition for a name that is too
    long.
    """
    parts = [
        f"{''.join(char if char.isalnum() or char == ' ' else _escaped(char) for char in name)}="
        f"{NULL if text is None else _escaped(text)}/"
        for name, text in zip(names, partition, strict=True)
    ]
    if any(len(part.encode()) > LONGEST_NAME + 1 for part in parts):
        raise NoPartition(f"its directory would have a name of more than {LONGEST_NAME} bytes")
    return "".join(parts)


def _escaped(text: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode())


def by_partition(batch: pa.RecordBatch, names: Sequence[str]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Return the rows of each partition in their order, without the partition columns. Raises NoPartition."""
    return split(batch.drop_columns(list(names)), [_coded(batch.column(name)) for name in names])


def split(rows: pa.RecordBatch, columns: Sequence[Coded]) -> Iterator[tuple[Partition, pa.RecordBatch]]:
    """Yield the rows of each combination of texts in their order."""
    if not rows.num_rows:
        return
    numbers = np.zeros(rows.num_rows, np.int64)
    partitions: list[Partition] = [()]
    for codes, texts in columns:
        numbers = numbers * len(texts) + codes
        # Only combinations that occur are kept, so that numbers stay small.
        there, numbers = np.unique(numbers, return_inverse=True)
        partitions = [(*partitions[one // len(texts)], texts[one % len(texts)]) for one in there.tolist()]
    if len(partitions) == 1:
        yield partitions[0], rows
        return
    order = np.argsort(numbers, kind="stable")
    ends = np.cumsum(np.bincount(numbers)).tolist()
    for partition, begin, end in zip(partitions, [0, *ends], ends, strict=False):
        yield partition, rows.take(pa.array(order[begin:end]))  # a copy: a slice would keep the whole batch in memory


def _coded(column: pa.Array) -> Coded:
    encoded = column.dictionary_encode(null_encoding="encode")
    values = encoded.dictionary
    if pa.types.is_timestamp(column.type):
        values = values.cast(pa.int64())
    texts = [text_of(value, column.type) for value in values.to_pylist()]
    numbers = {text: number for number, text in enumerate(dict.fromkeys(texts))}  # null and the empty string are one
    codes = np.array([numbers[text] for text in texts], np.int64)[encoded.indices.to_numpy()]
    return codes, list(numbers)
