"""The partition of each row, chosen as librdkafka's default partitioner ``consistent_random`` does."""

from __future__ import annotations

import random
from zlib import crc32

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc


class Partitioner:
    """For one topic with ``count`` partitions.

    A key determines the partition by its CRC-32. Rows with a null or empty key may go to any partition. Those of one
    call go to the same partition, which makes large batches; the next call uses the next partition.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self._next = random.randrange(count)

    def choose(self, key: pa.Array | None, given: pa.Array | None, rows: int) -> np.ndarray:
        """The partitions of n ``rows``, as int32. ``given``: int32, the user's choice, or null."""
        if given is not None and not given.null_count:
            return np.asarray(given)
        chosen = self._by_key(key, rows)
        if given is not None and given.null_count < rows:
            wanted = pc.fill_null(given, -1).to_numpy()
            chosen = np.where(wanted < 0, chosen, wanted)
        return chosen

    def _by_key(self, key: pa.Array | None, rows: int) -> np.ndarray:
        self._next = (self._next + 1) % self.count
        if key is None or key.null_count == rows or self.count == 1:
            return np.full(rows, self._next, np.int32)
        keys = (pc.fill_null(key, b"") if key.null_count else key).to_pylist()
        hashes = np.fromiter(map(crc32, keys), np.uint32, rows)
        chosen = (hashes % np.uint32(self.count)).astype(np.int32)
        chosen[pc.equal(pc.binary_length(key), 0).fill_null(True).to_numpy(zero_copy_only=False)] = self._next
        return chosen
