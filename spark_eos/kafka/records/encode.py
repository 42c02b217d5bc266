"""Encodes rows as complete record batches (v2), without a Python object per row. No I/O.

A record consists of its length, one byte of attributes, the deltas of its timestamp and offset, key, value and headers,
which come encoded (`headers.py`). Numbers are zigzag varints; a length of -1 stands for null. The numbers before a key
or a value are encoded for all rows at once, and Arrow joins them with the columns, row by row: the buffer of the result
contains the records.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from fastcrc.crc32 import iscsi as crc32c

from spark_eos.kafka.config.properties import Codec
from spark_eos.kafka.records.varints import ragged, varints

#: Brokers and topics accept slightly more by default (max.message.bytes 1048588).
BATCH_BYTES = 1_000_000
#: Sequence numbers count up to this, exclusive, then from 0 again.
SEQUENCES = 1 << 31

#: First offset, length, leader epoch, magic | checksum | attributes, last offset delta, first and maximal timestamp,
#: producer id, epoch and sequence, number of records. Length and checksum are of all bytes behind them.
_BEGIN = struct.Struct(">qiib")
_CHECKSUM = struct.Struct(">I")
_CHECKED = struct.Struct(">hiqqqhii")
_BEFORE_LENGTH_ENDS = 12
HEADER_BYTES = _BEGIN.size + _CHECKSUM.size + _CHECKED.size
_NO_LEADER_EPOCH = -1
_MAGIC = 2
_TRANSACTIONAL = 0x10
#: Codecs in a batch's attributes.
NUMBERS: Mapping[Codec, int] = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}

#: Rows are encoded together up to this many bytes. Much more does not fit into the processor's caches.
_GROUP_BYTES = 2 * 1024 * 1024
_ATTRIBUTES = 1
_NO_HEADERS = b"\x00"

#: The framing of Java's clients: this, and behind the size of each, blocks of so many bytes before compression.
_SNAPPY_BEGIN = bytes.fromhex("82 534e41505059 00 00000001 00000001")
_SNAPPY_BLOCK = 32 * 1024
_LZ4_BLOCK = 64 * 1024
#: Version 1, independent blocks of at most 64 KiB, no checksums but that of these bytes.
_LZ4_BEGIN = bytes.fromhex("04224d18 60 40 82")
_LZ4_STORED = 1 << 31
_LZ4_END = bytes(4)


@dataclass(frozen=True)
class Rows:
    """n rows: ``key`` and ``value`` as binary, a null key column for rows without keys; ``time`` as n int64,
    milliseconds since 1970; ``headers`` as `encode_headers` makes them, None for rows without."""

    key: pa.BinaryArray | pa.NullArray
    value: pa.BinaryArray
    time: np.ndarray
    headers: pa.BinaryArray | None = None

    def __len__(self) -> int:
        return len(self.value)


@dataclass(frozen=True)
class Tails:
    """n rows as records of other batches: ``tail`` is a record from its key on, n binary; ``time`` as in `Rows`;
    ``offsets``: their offsets in the source, n int64."""

    tail: pa.BinaryArray
    time: np.ndarray
    offsets: np.ndarray

    def __len__(self) -> int:
        return len(self.tail)


@dataclass(frozen=True, slots=True)
class Sealed:
    """One complete record batch, except for fields that brokers set. ``sequence``: of the first of its ``count``
    rows."""

    data: bytes | memoryview
    sequence: int
    count: int


@dataclass(frozen=True)
class Encoder:
    """Encodes and seals the batches of one transaction. No batch has more than ``max_bytes`` before compression, except
    for a larger row, which gets its own batch. ``level``: of gzip or zstd, at most the codec's highest; None for its
    default. The others have one level."""

    producer_id: int
    epoch: int
    codec: Codec = "none"
    level: int | None = None
    max_bytes: int = BATCH_BYTES

    def encode(
        self, rows: Rows | Tails, counts: Sequence[int], sequences: Sequence[int]
    ) -> Iterator[tuple[int, Sealed]]:
        """Yield the batches for several partitions, each with its index in ``counts``.

        The first ``counts[0]`` rows go to one partition, where the first has sequence ``sequences[0]``; and so on.
        """
        sizes = _Sizes.of_rows(rows) if isinstance(rows, Rows) else _TailSizes.of_rows(rows)
        cuts, owners = _cut(sizes.most, counts, self.max_bytes - HEADER_BYTES)
        firsts = np.cumsum(counts) - counts
        for some in _groups(sizes.most, cuts):
            for number, begin, records, times in _encode_group(sizes, cuts[some.start : some.stop + 1]):
                owner = int(owners[some.start + number])
                sequence = int(sequences[owner] + begin - firsts[owner]) % SEQUENCES
                yield owner, Sealed(self._seal(records, times, sequence), sequence, len(times))

    def with_codec(self, number: int) -> Encoder:
        """Return a copy with the codec of this number in the attributes of batches, at its default level."""
        codec = next(name for name, own in NUMBERS.items() if own == number)
        return self if codec == self.codec else replace(self, codec=codec, level=None)

    def header(
        self, codec: int, times: tuple[int, int], sequence: int, count: int, records: pa.Buffer | bytes | memoryview
    ) -> bytes:
        """Return the batch header for ``count`` ``records``, compressed by this codec. ``times``: the first timestamp,
        to which the others are relative, and the latest, in milliseconds."""
        attributes = codec | _TRANSACTIONAL
        checked = _CHECKED.pack(attributes, count - 1, *times, self.producer_id, self.epoch, sequence, count)
        length = HEADER_BYTES - _BEFORE_LENGTH_ENDS + len(records)
        begin = _BEGIN.pack(0, length, _NO_LEADER_EPOCH, _MAGIC)
        return begin + _CHECKSUM.pack(crc32c(records, crc32c(checked))) + checked

    def _seal(self, records: pa.Buffer, times: np.ndarray, sequence: int) -> bytes:
        number, compress = _codec(self.codec, self.level)
        records = compress(records)
        span = int(times[0]), int(times.max())
        return b"".join((self.header(number, span, sequence, len(times), records), records))


@dataclass(frozen=True)
class _Sizes:
    """Bytes of keys and values, -1 for null, bytes of all other fields that are no numbers, and the maximum size of
    each record."""

    rows: Rows
    key: np.ndarray
    value: np.ndarray
    rest: np.ndarray
    most: np.ndarray

    @classmethod
    def of_rows(cls, rows: Rows) -> _Sizes:
        count = len(rows.value)
        key = np.full(count, -1) if rows.key.null_count == count else _lengths(rows.key)
        value = _lengths(rows.value)
        if rows.headers is None:
            rest = np.broadcast_to(np.int64(_ATTRIBUTES + len(_NO_HEADERS)), count)
        else:
            rest = _lengths(rows.headers) + _ATTRIBUTES
        body = np.maximum(key, 0) + np.maximum(value, 0) + rest
        span = _span(rows.time)
        # The widest numbers of a record: its length (64 is more than the numbers in it take), the differences of its
        # time, of either sign, and of its offset, and the lengths of key and value.
        largest = (body.max(initial=0) + 64, span, -span, count, key.max(initial=0), value.max(initial=0))
        numbers = varints(np.array(largest, np.int64))[1]
        return cls(rows, key, value, rest, body + int(numbers.sum() - numbers[1:3].min()))

    def records(self, some: slice, time_delta: np.ndarray, offset_delta: np.ndarray) -> pa.BinaryArray:
        rows = self.rows
        headers = _NO_HEADERS if rows.headers is None else rows.headers[some]
        part = replace(self, key=self.key[some], value=self.value[some], rest=self.rest[some])
        return _records(rows.key[some], rows.value[some], headers, part, time_delta, offset_delta)


def _span(times: np.ndarray) -> int:
    """Return the largest difference of two times, at most the largest int64: no varint is longer than that one's."""
    return min(int(times.max()) - int(times.min()), (1 << 63) - 1) if len(times) else 0


@dataclass(frozen=True)
class _TailSizes:
    """Bytes of each record from its key on, and the maximum size of all of it."""

    rows: Tails
    tail: np.ndarray
    most: np.ndarray

    @classmethod
    def of_rows(cls, rows: Tails) -> _TailSizes:
        tail = _lengths(rows.tail)
        span = _span(rows.time)
        numbers = varints(np.array((tail.max(initial=0) + 64, span, -span, len(tail)), np.int64))[1]
        return cls(rows, tail, tail + int(_ATTRIBUTES + numbers.sum() - numbers[1:3].min()))

    def records(self, some: slice, time_delta: np.ndarray, offset_delta: np.ndarray) -> pa.BinaryArray:
        numbers = [varints(n) for n in (time_delta, offset_delta)]
        body = self.tail[some] + _ATTRIBUTES
        for _, widths in numbers:
            body += widths
        return pc.binary_join_element_wise(
            ragged([varints(body), _attributes(len(body)), *numbers]), self.rows.tail[some], b""
        )


def _lengths(column: pa.BinaryArray) -> np.ndarray:
    lengths = pc.binary_length(column)
    if lengths.null_count:
        lengths = pc.fill_null(lengths, -1)
    return np.asarray(lengths).astype(np.int64)


def _cut(sizes: np.ndarray, counts: Sequence[int], most: int) -> tuple[np.ndarray, np.ndarray]:
    """Return where batches begin and the last one ends, and the partition of each, as an index into ``counts``."""
    cuts, owners, at = [0], [], 0
    ends = np.cumsum(sizes)
    for owner, stop in enumerate(np.cumsum(counts).tolist()):
        while at < stop:
            before = int(ends[at - 1]) if at else 0
            fitting = int(np.searchsorted(ends[at:stop], before + most, side="right"))
            at += max(1, fitting)
            cuts.append(at)
            owners.append(owner)
    return np.array(cuts), np.array(owners)


def _groups(sizes: np.ndarray, cuts: np.ndarray) -> Iterator[range]:
    """Yield batches to encode together, by their numbers."""
    ends = np.append(0, np.cumsum(sizes))[cuts]
    first = 0
    while first < len(cuts) - 1:
        last = int(np.searchsorted(ends, ends[first] + _GROUP_BYTES, side="right")) - 1
        yield range(first, max(first + 1, last))
        first = max(first + 1, last)


def _encode_group(sizes: _Sizes | _TailSizes, cuts: np.ndarray) -> Iterator[tuple[int, int, pa.Buffer, np.ndarray]]:
    """Yield, for each batch between the cuts, its number, its first row, its records, and the times of its rows."""
    start, stop, time = int(cuts[0]), int(cuts[-1]), sizes.rows.time
    some = slice(start, stop)
    counts, firsts = np.diff(cuts), cuts[:-1]
    offset_delta = np.arange(start, stop) - np.repeat(firsts, counts)
    time_delta = time[some] - np.repeat(time[firsts], counts)
    records = sizes.records(some, time_delta, offset_delta)
    data, ends = records.buffers()[2], np.frombuffer(records.buffers()[1], np.int32)
    for number, (begin, end) in enumerate(zip(cuts[:-1].tolist(), cuts[1:].tolist(), strict=True)):
        at, to = int(ends[begin - start]), int(ends[end - start])
        yield number, begin, data.slice(at, to - at), time[begin:end]


def _records(
    key: pa.Array,
    value: pa.Array,
    headers: pa.Array | pa.Scalar,
    sizes: _Sizes,
    time_delta: np.ndarray,
    offset_delta: np.ndarray,
) -> pa.BinaryArray:
    numbers = [varints(n) for n in (time_delta, offset_delta, sizes.key, sizes.value)]
    body = np.maximum(sizes.key, 0) + np.maximum(sizes.value, 0) + sizes.rest
    for _, widths in numbers:
        body += widths
    before = [varints(body), _attributes(len(body)), *numbers[:3]]
    if key.null_count == len(key):
        pieces = [ragged([*before, numbers[3]])]
    else:
        pieces = [ragged(before), _filled(key), ragged(numbers[3:])]
    return pc.binary_join_element_wise(*pieces, _filled(value), headers, b"")


def _attributes(count: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the attributes of records, of which none are in use: a byte of zero for each record."""
    return np.zeros((count, 1), np.uint8), np.ones(count, np.int8)


def _filled(column: pa.BinaryArray) -> pa.BinaryArray:
    return pc.fill_null(column, b"") if column.null_count else column


@cache
def _codec(codec: Codec, level: int | None) -> tuple[int, Callable[[pa.Buffer], pa.Buffer | bytes]]:
    """Return the codec's number in a batch's attributes, and its compressor."""
    if codec == "none":
        return NUMBERS[codec], lambda records: records
    if codec == "lz4":
        return NUMBERS[codec], _lz4
    if codec == "snappy":
        return NUMBERS[codec], _snappy
    usual = {"gzip": 6, "zstd": 3}[codec]  # like Java's clients; Arrow's defaults are 9 and 1
    # Like librdkafka, whose property has one range for all codecs.
    wanted = usual if level is None else min(level, pa.Codec.maximum_compression_level(codec))
    # One for each batch: Arrow's gzip keeps state while it compresses, so that threads would spoil one another's.
    return NUMBERS[codec], lambda records: pa.Codec(codec, compression_level=wanted).compress(records)


def _lz4(records: pa.Buffer) -> bytes:
    """Compress into one LZ4 frame. Java reads neither several frames nor, as Arrow writes them, blocks that depend on
    the previous one."""
    block = pa.Codec("lz4_raw")
    pieces = [_LZ4_BEGIN]
    for at in range(0, records.size, _LZ4_BLOCK):
        plain = records.slice(at, min(_LZ4_BLOCK, records.size - at))
        packed = block.compress(plain)
        shorter = packed.size < plain.size
        pieces.append(struct.pack("<I", packed.size if shorter else plain.size | _LZ4_STORED))
        pieces.append(packed if shorter else plain)
    return b"".join([*pieces, _LZ4_END])


def _snappy(records: pa.Buffer) -> bytes:
    block = pa.Codec("snappy")
    pieces = [_SNAPPY_BEGIN]
    for at in range(0, records.size, _SNAPPY_BLOCK):
        packed = block.compress(records.slice(at, min(_SNAPPY_BLOCK, records.size - at)))
        pieces += [struct.pack(">i", packed.size), packed]
    return b"".join(pieces)
