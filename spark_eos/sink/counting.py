"""Bytes of the keys and values of rows, for metrics and for the log."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc


class CountingIterator(Iterator[pa.RecordBatch]):
    """Arrow batches on their way to a task; ``bytes``: the keys and values that have passed."""

    def __init__(self, batches: Iterator[pa.RecordBatch]) -> None:
        self._batches, self.bytes = batches, 0

    def __next__(self) -> pa.RecordBatch:
        batch = next(self._batches)
        self.bytes += size_of(batch)
        return batch


def size_of(rows: pa.RecordBatch) -> int:
    """Return the bytes of the keys and values of rows."""
    columns = [rows.column(name) for name in ("key", "value") if name in rows.schema.names]
    return sum(pc.sum(pc.binary_length(column)).as_py() or 0 for column in columns)
