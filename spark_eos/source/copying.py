"""Copies a range of one partition to one partition, by whole record batches where they can be passed on unchanged.

Other record batches are encoded anew: at the ends of the range, with gaps, with the broker's timestamps (LogAppendTime)
or a cleaner's mark, and small ones, several of which become one. Order, keys, values, headers, timestamps and
compression are the source's. Fetching, checking and sealing, and producing overlap; the batches in flight to the target
bound the memory.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import groupby

import numpy as np

from spark_eos.base.topic_partition import OffsetRange, TopicPartition
from spark_eos.errors import KafkaError
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.records.batches import RecordBatch
from spark_eos.kafka.records.columns import RecordGroup, read_tails
from spark_eos.kafka.records.encode import Rows, Tails
from spark_eos.kafka.records.passing import is_small, passes
from spark_eos.protocol.head import DIGEST_BITS
from spark_eos.source.decode import read_groups
from spark_eos.source.fetching import Fetching
from spark_eos.source.raw import FetchedBatches, read_batches
from spark_eos.source.task import resuming

_BATCH = struct.Struct(">qqqiI")


@dataclass(frozen=True)
class Copied:
    """Records that were copied. ``digest``: of `DIGEST_BITS` bits; ``oldest_ms``: the oldest timestamp with which a
    batch begins, None without rows; ``oldest_dated_ms``: the oldest one that is not negative, as -1 stands for none;
    ``runs``: (first offset, number) of the source's offsets that have a row, without gaps, in order."""

    rows: int
    digest: int
    oldest_ms: int | None
    runs: tuple[tuple[int, int], ...] = ()
    oldest_dated_ms: int | None = None


def copy_range(fetching: Fetching, range_: OffsetRange, target: TopicPartition, producer: ArrowProducer) -> Copied:
    """Hand the rows of a range to the producer, for the target's topic and partition, in order.

    ``producer`` has begun; the caller waits until it has written them (`flush`). Nothing is handed over where there are
    no rows. Raises the errors of `read_range` and of the producer's `write`.
    """
    copy = _Copy(range_, target, producer, fetching.max_decompressed_bytes)
    for piece in resuming(fetching, range_, read_batches):
        copy.take(piece)
    digest = copy.digest % (1 << DIGEST_BITS)
    return Copied(copy.rows, digest, copy.oldest_ms, tuple(copy.runs), copy.oldest_dated_ms)


class _Copy:
    """The copy of one range.

    The digest is the same whenever the same offsets of the same log are copied: a sum over record batches, each with
    its offset, its checksum, and the part of it that is read. It does not depend on how batches were fetched or written
    to the target, as that may change with another attempt, or another limit there.
    """

    def __init__(
        self, range_: OffsetRange, target: TopicPartition, producer: ArrowProducer, most_bytes: int | None = None
    ) -> None:
        self.rows = self.digest = 0
        self.oldest_ms: int | None = None
        self.oldest_dated_ms: int | None = None
        self.runs: list[tuple[int, int]] = []
        self._range, self._target, self._producer, self._most_bytes = range_, target, producer, most_bytes
        self._seed = blake2b(repr((range_.topic, range_.partition, *target)).encode(), digest_size=16).digest()

    def take(self, piece: FetchedBatches) -> None:
        self._range = piece.range  # less than was planned, where the log has lost the rest
        for whole, batches in self._runs(piece.batches):
            for batch in batches:
                self._count(batch)
            if whole:
                self._pass_on(piece.data, batches)
            else:
                self._encode_anew(piece.data, batches)

    def _runs(self, batches: Iterable[RecordBatch]) -> Iterator[tuple[bool, list[RecordBatch]]]:
        """Yield runs of adjacent batches, and whether they are passed on unchanged; small batches are only if they are
        alone."""
        start, end = self._range.start, self._range.end
        for whole, run in groupby(batches, lambda batch: passes(batch, start, end) and not is_small(batch)):
            own = list(run)
            yield whole or (len(own) == 1 and passes(own[0], start, end)), own

    def _count(self, batch: RecordBatch) -> None:
        first, stop = max(batch.base, self._range.start), min(batch.last + 1, self._range.end)
        self.digest += self._hash(_BATCH.pack(batch.base, first, stop, batch.count, batch.checksum))
        # A cleaner may have set `time` to its deletion horizon (KIP-534), which is later; `max_time` is of the records.
        self._note_ages([batch.time, batch.max_time] if batch.append_time is None else [batch.append_time])

    def _pass_on(self, data: bytearray, batches: Sequence[RecordBatch]) -> None:
        self._producer.write_whole(*self._target, data, batches)
        self.rows += sum(batch.count for batch in batches)
        for batch in batches:
            self._note_run(batch.base, batch.count)

    def _encode_anew(self, data: bytearray, batches: Sequence[RecordBatch]) -> None:
        for codec, same in groupby(batches, lambda batch: batch.codec):
            left = list(same)
            while left:
                left = self._encode_some(data, left, codec)

    def _encode_some(self, data: bytearray, batches: Sequence[RecordBatch], codec: int) -> list[RecordBatch]:
        """Encode batches anew, up to one that is too large when it is decompressed, and return the batches behind it.
        Such a batch is passed on unchanged, if possible; small ones come here only to be put together."""
        reached = -1

        def tails(group: RecordGroup) -> Tails:
            nonlocal reached
            group_tails = read_tails(group, self._range.start, self._range.end)
            reached = group.batches[-1].last
            return group_tails

        try:
            for rows in read_groups(data, batches, self._range, tails, self._most_bytes):
                self._write(rows, codec, rows.offsets)
        except KafkaError as error:
            large = next((batch for batch in batches if batch.base == error.parameters.get("offset")), None)
            is_large = error.condition == "EOS_SOURCE_BATCH_TOO_LARGE"
            if large is None or not is_large or not passes(large, self._range.start, self._range.end):
                raise
            between = [batch for batch in batches if reached < batch.base < large.base]
            self._encode_some(data, between, codec)
            self._pass_on(data, [large])
            return [batch for batch in batches if batch.base > large.base]
        return []

    def _write(self, rows: Rows | Tails, codec: int, offsets: np.ndarray) -> None:
        if len(rows):
            self._producer.write_rows(*self._target, rows, codec)
            self.rows += len(rows)
            for run in np.split(offsets, np.flatnonzero(np.diff(offsets) != 1) + 1):
                self._note_run(int(run[0]), len(run))

    def _note_run(self, first: int, count: int) -> None:
        """Note offsets that have a row; they follow all that were noted before."""
        if self.runs and sum(self.runs[-1]) == first:
            first, count = self.runs[-1][0], self.runs.pop()[1] + count
        self.runs.append((first, count))

    def _hash(self, data: bytes) -> int:
        return int.from_bytes(blake2b(data, digest_size=DIGEST_BITS // 8, key=self._seed).digest())

    def _note_ages(self, times_ms: Iterable[int]) -> None:
        for time in map(int, times_ms):
            self.oldest_ms = time if self.oldest_ms is None else min(self.oldest_ms, time)
            if time >= 0:
                self.oldest_dated_ms = time if self.oldest_dated_ms is None else min(self.oldest_dated_ms, time)
