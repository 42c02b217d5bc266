"""Decodes columns of Avro datums. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pyarrow as pa

from spark_eos.pipelines.registry.avro.cursor import Cursor, DatumBytes, Verdicts, WholeCursor
from spark_eos.pipelines.registry.avro.resolve import resolve
from spark_eos.pipelines.registry.avro.schema import Schema

#: Bytes of datums that are decoded together, or one datum that is larger. This bounds memory: decoding an array's item
#: can take a hundred times its size, and a null among records of many fields takes as much as such a record.
_CHUNK_BYTES = 16 << 20
#: The largest datum in bytes: positions within a chunk have 32 bits.
_LONGEST_DATUM = (1 << 31) - 2 * _CHUNK_BYTES


@dataclass(frozen=True)
class DecodedValues:
    """Decoded values. ``rows``: n values of the reader's type; null where the value is null or bad. ``bad``: row → why
    it cannot be read."""

    rows: pa.Array
    bad: dict[int, str]


class Decoder:
    """Reads datums of a writer's schema as values of a reader's schema, of the Arrow type ``type``; several threads can
    use it. ``sized=False``: for a writer's schema that is ``bytes``, a datum is these bytes without their size. Raises
    SchemaError where the schemas do not match."""

    def __init__(self, writer: Schema, reader: Schema, *, sized: bool = True) -> None:
        self._reader = resolve(writer, reader)
        self._cursor = Cursor if sized else WholeCursor
        self.type: pa.DataType = self._reader.type

    def decode(self, values: pa.Array, begin: int | np.ndarray = 0) -> DecodedValues:
        """Decode n datums.

        ``values``: binary or large_binary. ``begin``: how many bytes of each value to skip, one number or n. A datum is
        bad if its bytes are not exactly a value of the writer's schema, or if the reader's schema cannot hold the
        value. A row's result does not depend on other rows.
        """
        at, end = _bounds(values)
        present = values.is_valid().to_numpy(zero_copy_only=False)
        verdicts = Verdicts(np.zeros(len(values), np.int32))
        at = at + begin
        lanes = np.flatnonzero(present)
        lanes = _marked(verdicts, lanes, (at > end)[lanes], "the value ends before the datum begins")
        lanes = _marked(verdicts, lanes, (end - at > _LONGEST_DATUM)[lanes], "the datum has about 2 GiB or more")
        parts = [self._part(values, at, end, chunk, verdicts) for chunk in _chunks(lanes, end)]
        column = parts[0] if len(parts) == 1 else pa.concat_arrays(parts) if parts else pa.nulls(0, self.type)
        bad = verdicts.codes > 0
        if len(lanes) < len(values) or bad.any():
            place = np.zeros(len(values), np.int64)
            place[lanes] = np.arange(len(lanes))
            column = column.take(pa.array(place, mask=bad | ~present))
        return DecodedValues(column, verdicts.by_row())

    def _part(
        self, values: pa.Array, at: np.ndarray, end: np.ndarray, rows: np.ndarray, verdicts: Verdicts
    ) -> pa.Array:
        """Return the values of these rows. Their datums are from ``at`` to ``end`` in the buffer of ``values``."""
        at, end = at[rows], end[rows]
        first, last = int(at.min()), int(end.max())
        data = DatumBytes(np.frombuffer(values.buffers()[2] or b"", np.uint8)[first:last])
        cursor = self._cursor(data, at - first, end - first, rows, verdicts)
        column = self._reader.read(cursor)
        left = cursor.at != cursor.end
        if left.any():
            cursor.fail(left, "bytes are left behind the datum")
        return column


def _bounds(values: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Return where each value begins and ends in the buffer, n int64 each."""
    width = np.int64 if pa.types.is_large_binary(values.type) else np.int32
    if not len(values):
        return np.empty(0, np.int64), np.empty(0, np.int64)
    ends = np.frombuffer(values.buffers()[1], width)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return ends[:-1], ends[1:]


def _marked(verdicts: Verdicts, rows: np.ndarray, wrong: np.ndarray, reason: str) -> np.ndarray:
    """Mark the rows that are wrong, and return the others."""
    if wrong.any():
        verdicts.mark(rows[wrong], reason)
        rows = rows[~wrong]
    return rows


def _chunks(rows: np.ndarray, end: np.ndarray) -> list[np.ndarray]:
    """Return the rows in chunks whose ends are within `_CHUNK_BYTES` of one another in the buffer."""
    if not len(rows):
        return []
    number = end[rows] // _CHUNK_BYTES
    return list(np.split(rows, np.flatnonzero(np.diff(number)) + 1))
