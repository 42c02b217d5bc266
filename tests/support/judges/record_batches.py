"""Record batches as brokers hold them, by an encoder that is not ours (kafka-python), and the rows that ours reads."""

from __future__ import annotations

import gzip
import struct
from collections.abc import Callable
from dataclasses import dataclass

import pyarrow as pa
from fastcrc.crc32 import iscsi as crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.source.decode import decode
from spark_eos.source.schema import arrow_schema

HEADER = struct.Struct(">qiibIhiqqqhii")
EVERYTHING = OffsetRange("t", 3, 0, 2**62)
TIME = 1_700_000_000_000


@dataclass(frozen=True)
class Record:
    offset: int
    time: int = TIME
    key: bytes | None = None
    value: bytes | None = b""
    headers: tuple[tuple[str, bytes | None], ...] = ()


@dataclass(frozen=True)
class Batch:
    """A record batch as a broker holds it; without records what compaction leaves of one, up to ``last``.
    ``horizon``: when a cleaner that has been there takes its tombstones."""

    records: tuple[Record, ...]
    base: int
    last: int
    codec: str = ""
    append_time: int | None = None
    producer: int = -1
    control: bool = False
    horizon: int | None = None


def xerial(data: bytes) -> bytes:
    """Snappy as Java writes it, here in blocks of 100 bytes."""
    blocks = [pa.compress(data[at : at + 100], codec="snappy", asbytes=True) for at in range(0, len(data), 100)]
    return b"\x82SNAPPY\0" + struct.pack(">ii", 1, 1) + b"".join(struct.pack(">i", len(b)) + b for b in blocks)


def stream(codec: str) -> Callable[[bytes], bytes]:
    """Frames that do not say how large their content is, as most clients write them."""

    def compress(data: bytes) -> bytes:
        sink = pa.BufferOutputStream()
        with pa.CompressedOutputStream(sink, codec) as out:
            out.write(data)
        return sink.getvalue().to_pybytes()

    return compress


CODECS: dict[str, tuple[int, Callable[[bytes], bytes]]] = {
    "": (0, bytes),
    "gzip": (1, gzip.compress),
    "snappy": (2, lambda data: pa.compress(data, codec="snappy", asbytes=True)),
    "xerial": (2, xerial),
    "lz4": (3, stream("lz4")),
    "zstd": (4, stream("zstd")),
    "zstd with size": (4, lambda data: pa.compress(data, codec="zstd", asbytes=True)),
}


def encode(batch: Batch) -> bytes:
    """The batch's bytes. Its records by kafka-python; its header, which a broker completes, here."""
    builder = DefaultRecordBatchBuilder(2, 0, False, -1, -1, -1, 2**31)
    if batch.horizon is not None:  # which times are relative to, as if it were that of a first record
        builder.append(0, batch.horizon, None, None, [])
    for r in batch.records:
        builder.append(r.offset - batch.base, r.time, r.key, r.value, list(r.headers))
    body = bytes(builder.build()[HEADER.size :])
    codec, compress = CODECS[batch.codec]
    records = compress(body if batch.horizon is None else body[1 + body[0] // 2 :])
    flags = codec | (batch.append_time is not None) << 3 | (batch.producer >= 0) << 4 | batch.control << 5
    flags |= (batch.horizon is not None) << 6
    times = [r.time for r in batch.records] or [TIME]
    last_time = max(times) if batch.append_time is None else batch.append_time
    first_time = times[0] if batch.horizon is None else batch.horizon
    writer = (batch.producer, 0, 0)
    header = (flags, batch.last - batch.base, first_time, last_time, *writer, len(batch.records))
    return seal(HEADER.pack(batch.base, 0, 7, 2, 0, *header) + records)


def seal(batch: bytes) -> bytes:
    """With its right length and checksum."""
    batch = bytearray(batch)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">I", batch, 17, crc32c(memoryview(batch)[21:]))
    return bytes(batch)


def plain(first: int, *values: bytes | None, **other: object) -> Batch:
    records = tuple(Record(first + i, value=value) for i, value in enumerate(values))
    return Batch(records, first, first + len(values) - 1, **other)


def marker(offset: int, producer: int, commit: bool) -> Batch:
    record = Record(offset, key=struct.pack(">hh", 0, commit), value=bytes(6))
    return Batch((record,), offset, offset, producer=producer, control=True)


def rows(data: bytes, range_: OffsetRange = EVERYTHING, aborted=(), with_headers: bool = False) -> list[dict]:
    """What is decoded, held to its schema and to Arrow's own checks."""
    result = []
    for batch in decode(data, range_, aborted, with_headers=with_headers).batches:
        assert batch.schema == arrow_schema(with_headers)
        batch.validate(full=True)
        assert batch.num_rows
        # Arrow's own timestamps: those of Python end in the year 9999
        millis = pa.compute.divide(batch["timestamp"].cast(pa.int64()), 1000).to_pylist()
        times = batch.schema.get_field_index("timestamp")
        result += [
            {**row, "timestamp": at} for row, at in zip(batch.remove_column(times).to_pylist(), millis, strict=True)
        ]
    return result


def expected(batches: list[Batch], range_: OffsetRange = EVERYTHING, with_headers: bool = False) -> list[dict]:
    return [
        {
            "key": r.key,
            "value": r.value,
            "topic": range_.topic,
            "partition": range_.partition,
            "offset": r.offset,
            "timestamp": r.time if batch.append_time is None else batch.append_time,
            "timestampType": int(batch.append_time is not None),
        }
        | ({"headers": [{"key": k, "value": v} for k, v in r.headers] or None} if with_headers else {})
        for batch in batches
        for r in batch.records
        if not batch.control and range_.start <= r.offset < range_.end
    ]


def values(data: bytes, range_: OffsetRange = EVERYTHING, aborted=()) -> list[bytes | None]:
    return [row["value"] for row in rows(data, range_, aborted)]
