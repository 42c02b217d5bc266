"""Rows on disk, in buckets, so that memory does not grow with their number."""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc

#: Bytes of an id that are kept. Longer ids are replaced by a 128-bit digest: two of n such ids are confused with a
#: probability of n² / 2^129, which would report a doubled row or hide a lost one.
MAX_ID = 64
#: Begins an id that is made (`made_id`), and no id of a real row: these are text, or Kafka's bytes.
BY_VALUE = b"\0without an id\0"
#: Rows that are collected in memory before they are written together.
RUN_ROWS = 262_144
#: A run is larger where there are more buckets than this.
_RUN_BUCKETS = 1024


class Spill:
    """Rows of one schema in a file, which are read back bucket by bucket.

    ``run_rows`` of them are in memory at a time, and later one bucket. One file takes all buckets: rows are sorted by
    bucket within a run, and each run's share of a bucket is a record batch of its own.
    """

    def __init__(self, path: Path, schema: pa.Schema, run_rows: int = RUN_ROWS) -> None:
        self.rows = 0
        self.schema = schema
        self._path, self._run_rows = path, run_rows
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._batches: dict[int, list[int]] = {}
        self._written = 0
        self._writer = pa.ipc.new_file(pa.OSFile(str(path), "wb"), schema)
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def add(self, columns: Mapping[str, pa.Array], bucket: pa.Array) -> None:
        """Add rows, as columns of the schema, and the number of each row's bucket."""
        arrays = [columns[name] for name in self.schema.names]
        self._pending.append(pa.record_batch([*arrays, bucket], names=[*self.schema.names, "bucket"]))
        self.rows += len(bucket)
        self._pending_rows += len(bucket)
        # For each bucket some, as each run has a batch of each: otherwise the batches grow with the square of the rows.
        if self._pending_rows >= max(self._run_rows, self._run_rows // _RUN_BUCKETS * len(self._batches)):
            self._flush()

    def _flush(self) -> None:
        if not self._pending_rows:
            return
        run = pa.Table.from_batches(self._pending)
        self._pending, self._pending_rows = [], 0
        run = run.take(pc.sort_indices(run["bucket"])).combine_chunks()
        runs = pc.run_end_encode(run["bucket"].chunk(0))
        rows = run.drop_columns(["bucket"])
        start = 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            (batch,) = rows.slice(start, end - start).to_batches()
            self._writer.write_batch(batch)
            self._batches.setdefault(number, []).append(self._written)
            self._written += 1
            start = end

    def finish(self) -> Spill:
        """End writing; from now on rows can be read back."""
        self._flush()
        self._writer.close()
        self._reader = pa.ipc.open_file(pa.OSFile(str(self._path)))
        return self

    @property
    def buckets(self) -> list[int]:
        """Numbers of the buckets with rows, ascending."""
        return sorted(self._batches)

    def bucket(self, number: int) -> pa.Table:
        """Return all rows of one bucket, in the order in which each run had them."""
        assert self._reader is not None, "finish() first"
        batches = [self._reader.get_batch(index) for index in self._batches.get(number, ())]
        return pa.Table.from_batches(batches, self.schema).combine_chunks()


def buckets_of(ids: list[bytes], count: int) -> pa.Array:
    """Return the bucket of each id, out of ``count``, a power of two. Equal ids are in one bucket. Differs from process
    to process."""
    return pc.bit_wise_and(pa.array(list(map(hash, ids)), pa.int64()), count - 1)


def shortened(ids: list[bytes]) -> list[bytes]:
    """Return the ids, with a digest for each that is longer than `MAX_ID`."""
    if max(map(len, ids), default=0) <= MAX_ID:
        return ids
    return [id_ if len(id_) <= MAX_ID else _digest(id_) for id_ in ids]


def made_id(key: bytes | None, value: bytes | None) -> bytes:
    """Make an id for a row that has none: a digest of its value, or of its key if that is null, so that a row which
    passes unchanged, as into a dead-letter topic, has its pair."""
    kind, of = (b"null", key or b"") if value is None else (b"", value)
    return BY_VALUE + kind + blake2b(of, digest_size=16).digest()


def _digest(id_: bytes) -> bytes:
    return b"blake2b:" + blake2b(id_, digest_size=16).hexdigest().encode()
