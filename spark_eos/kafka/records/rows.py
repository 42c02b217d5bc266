"""Offset, key and value of the records of one batch, for readers of few records. No I/O."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from spark_eos.kafka.records.batches import LAST_CODEC, RecordBatch, UnsupportedFormat, decompress
from spark_eos.kafka.records.fields import find_records, read_fields

#: Offset, key and value of a record.
Row = tuple[int, bytes | None, bytes | None]


def read_rows(data: bytes, batch: RecordBatch, most_bytes: int | None = None) -> Iterator[Row]:
    """Yield the records of a batch. Raises Damage, TooLargeBatch as `decompress`."""
    return (row for _, row in read_dated_rows(data, batch, most_bytes))


def read_dated_rows(data: bytes, batch: RecordBatch, most_bytes: int | None = None) -> Iterator[tuple[int, Row]]:
    """Yield the records of a batch, each with its timestamp in milliseconds since 1970. Raises Damage, TooLargeBatch as
    `decompress`."""
    if batch.codec > LAST_CODEC:
        raise UnsupportedFormat(f"compression codec {batch.codec}")
    records = decompress(data, batch, most_bytes) if batch.codec else bytes(memoryview(data)[batch.start : batch.stop])
    begins = find_records(records, 0, len(records), batch.count)
    fields = read_fields(np.frombuffer(records, np.uint8), begins, np.append(begins[1:], len(records)))
    keys = zip(fields.key_at.tolist(), fields.key_size.tolist(), strict=True)
    values = zip(fields.value_at.tolist(), fields.value_size.tolist(), strict=True)
    deltas = zip(fields.offset_delta.tolist(), fields.time_delta.tolist(), strict=True)
    for (delta, time_delta), key, value in zip(deltas, keys, values, strict=True):
        time = batch.time + time_delta if batch.append_time is None else batch.append_time
        yield time, (batch.base + delta, _piece(records, *key), _piece(records, *value))


def _piece(data: bytes, at: int, size: int) -> bytes | None:
    return None if size < 0 else data[at : at + size]
