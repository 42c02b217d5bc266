"""Digests of rows: sums of one hash a row, so that they depend neither on the order of rows nor on how they are cut.
The digest of a transformed copy is a sum of one hash a chunk, as the source's log gives order and chunks there.

They are there to notice a plan that is not deterministic, not to detect forged rows. The ledger says
with each decision which one was used, as a replay is compared with it: none of them may ever change.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import blake2b
from itertools import pairwise
from typing import TYPE_CHECKING, Any
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastcrc.crc32 import iscsi as crc32c
from fastcrc.crc32 import iso_hdlc

from spark_eos.protocol.head import DIGEST_BITS, Digest

if TYPE_CHECKING:
    from spark_eos.sink.rows import RowBatch

#: Stands for a null until its hash is replaced.
_ABSENT = b""
#: Bytes of a field from which a view of it costs less than a copy.
_WORTH_A_VIEW = 400


def digest(rows: RowBatch, by: Digest) -> int:
    """Return the sum, of `DIGEST_BITS` bits, over everything that the user gave."""
    return _WAYS[by](rows) % (1 << DIGEST_BITS)


#: Stands for null, and for a column that is not there: no CRC, partition or time in microseconds is that large.
_NULL = np.uint64(0xD6E8FEB86659FD93)
_ODD = 0x9E3779B97F4A7C15
#: A factor for each column, so that the digest differs when two columns swap fields.
_FACTORS = [np.uint64(pow(_ODD, power, 1 << DIGEST_BITS)) for power in (1, 3, 5, 7, 9, 11)]


def _sum_of_rows(rows: RowBatch) -> int:
    """Sum 64-bit hashes of rows: a CRC of each field, times its column's factor, added and mixed.

    Mixing is not linear, so that rows that swap fields do not make up for each other; a sum of plain CRCs misses one
    such swap in some thousands, as a CRC is affine. Headers are taken as they stand in records.
    """
    columns = (
        _of_topics(rows),
        _of_fields(rows.key, crc32),
        _of_numbers(rows.partition_column),
        _of_numbers(rows.timestamp_column),
        _of_headers(rows),
        _of_fields(rows.value, crc32c),
    )
    hashes = np.zeros(1, np.uint64)
    for column, factor in zip(columns, _FACTORS, strict=True):
        column *= factor
        # A value that all rows have in common stays one number until a column has one for each.
        hashes = np.add(hashes, column, out=column if len(column) >= len(hashes) else hashes)
    hashes ^= hashes >> np.uint64(32)
    return int(hashes.sum()) if len(hashes) == rows.rows else int(hashes[0]) * rows.rows


def _chunked(rows: RowBatch) -> int:
    """Hash a whole chunk, with the position of its first row, at a tenth of the cost of a hash for each row: for rows
    that are always cut into the same chunks (`spark_eos.pipelines.copy.transforming`)."""
    names = pa.array([rows.topic or ""] if rows.topics is None else rows.topics, pa.string())
    topics = names.unique()
    columns = (
        (topics if len(topics) == 1 else names).cast(pa.binary()),
        rows.key,
        rows.partition_column,
        rows.timestamp_column,
        _encoded_headers(rows),
        rows.value,
    )
    place = b"" if rows.places is None else rows.places[:1].astype(">u8").tobytes()
    summary = repr([place, rows.rows, *map(_sums, columns)])
    return int.from_bytes(blake2b(summary.encode(), digest_size=DIGEST_BITS // 8).digest())


def _encoded_headers(rows: RowBatch) -> pa.Array | None:
    """Return the encoded headers; null where a row has no list of headers, which is not an empty list."""
    encoded = rows.encoded_headers
    if rows.headers_column is None or encoded is None or not rows.headers_column.null_count:
        return encoded
    # Not by if_else, which before Arrow 24 takes wrong bytes where the array is a slice of another.
    absent = rows.headers_column.is_null().to_numpy(zero_copy_only=False)
    return encoded.take(pa.array(np.arange(len(absent)), mask=absent))


def _sums(column: pa.Array | None) -> tuple[int, ...]:
    """Return two CRCs of a column's contents; none if it has only nulls."""
    if column is None or column.null_count == len(column):
        return ()
    if not (pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type)):
        numbers = column if pa.types.is_integer(column.type) else column.cast(pa.int64())
        bits = np.packbits(column.is_null().to_numpy(zero_copy_only=False))
        return _both(bits.data) + _both(numbers.fill_null(0).to_numpy(zero_copy_only=False).astype("<i8").data)
    sizes = pc.fill_null(pc.binary_length(column), -1).to_numpy(zero_copy_only=False).astype("<i8")
    filled = column.fill_null(b"") if column.null_count else column
    bounds = _bounds(filled)
    return _both(sizes.data) + _both(memoryview(filled.buffers()[2] or b"")[bounds[0] : bounds[-1]])


def _both(data: memoryview) -> tuple[int, ...]:
    plain = data.cast("B")
    return crc32c(plain), iso_hdlc(plain)


def _of_headers(rows: RowBatch) -> np.ndarray:
    if rows.headers_column is None or rows.encoded_headers is None:
        return _nulls()
    hashes = _crcs(crc32c, _present(rows.encoded_headers), rows.rows)
    return _with_nulls(rows.headers_column, hashes)


def _of_topics(rows: RowBatch) -> np.ndarray:
    if rows.topics is None:
        return np.array([_crc_of_text(rows.topic or "")], np.uint64)
    names = pa.array(rows.topics, pa.string()).dictionary_encode()
    hashes = np.array([_crc_of_text(name) for name in names.dictionary.to_pylist()], np.uint64)
    of_rows: np.ndarray = hashes[names.indices.to_numpy()]
    return of_rows


def _of_fields(column: pa.Array | None, crc: Callable[[Any], int]) -> np.ndarray:
    """Return a CRC of each field. ``crc``: crc32 takes half the time for a few bytes, crc32c for many."""
    if column is None or column.null_count == len(column):
        return _nulls()
    return _with_nulls(column, _crcs(crc, _present(column), len(column)))


def _of_numbers(column: pa.Array | None) -> np.ndarray:
    """Return the digest of a column of int32, or of times in microseconds."""
    if column is None or column.null_count == len(column):
        return _nulls()
    numbers = column if pa.types.is_integer(column.type) else column.cast(pa.int64())
    hashes = numbers.fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64).view(np.uint64)
    return _with_nulls(column, hashes)


def _crcs(crc: Callable[[Any], int], fields: Iterable[bytes | memoryview], count: int) -> np.ndarray:
    return np.fromiter(map(crc, fields), np.int64, count).view(np.uint64)  # numpy takes int64 fastest


def _nulls() -> np.ndarray:
    return np.array([_NULL])


def _with_nulls(column: pa.Array, hashes: np.ndarray) -> np.ndarray:
    if column.null_count:
        hashes[column.is_null().to_numpy(zero_copy_only=False)] = _NULL
    return hashes


def _present(column: pa.Array) -> Sequence[bytes | memoryview]:
    """Return the column's fields, with bytes instead of null. Large fields are not copied."""
    if column.nbytes < _WORTH_A_VIEW * len(column):
        fields: list[Any] = column.to_pylist()
        return [_ABSENT if field is None else field for field in fields] if column.null_count else fields
    whole = memoryview(column.buffers()[2])
    views = [whole[begin:end] for begin, end in pairwise(_bounds(column).tolist())]
    if not column.null_count:
        return views
    return [view if valid else _ABSENT for view, valid in zip(views, column.is_valid().to_pylist(), strict=True)]


def _bounds(column: pa.Array) -> np.ndarray:
    """Return where the fields of a column of bytes lie in its buffer, each up to the beginning of the next one."""
    width = np.int64 if pa.types.is_large_binary(column.type) else np.int32
    return np.frombuffer(column.buffers()[1], width)[column.offset : column.offset + len(column) + 1]


def _crc_of_text(text: str) -> int:
    return crc32c(text.encode())


_WAYS: Mapping[Digest, Callable[[RowBatch], int]] = {Digest.ROWS: _sum_of_rows, Digest.CHUNKS: _chunked}
