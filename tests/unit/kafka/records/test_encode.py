"""Rows into record batches, read back by two decoders that know nothing of the encoder: kafka-python's and ours."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from kafka.record import MemoryRecords

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.config.values import INTEGERS
from spark_eos.kafka.records.batches import walk_batches
from spark_eos.kafka.records.columns import groups, read_records
from spark_eos.kafka.records.encode import BATCH_BYTES, HEADER_BYTES, SEQUENCES, Encoder, Rows, Sealed, Tails
from spark_eos.kafka.records.headers import encode_headers
from spark_eos.source.decode import decode

TIME = 1_700_000_000_000
CODECS = ("none", "gzip", "lz4", "snappy", "zstd")


@dataclass(frozen=True)
class Row:
    key: bytes | None = None
    value: bytes | None = b""
    time: int = TIME
    headers: tuple[tuple[str, bytes | None], ...] = ()


HEADERS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))


def columns(rows: Sequence[Row]) -> Rows:
    keys = pa.array([row.key for row in rows], pa.binary())
    values = pa.array([row.value for row in rows], pa.binary())
    headers = None
    if any(row.headers for row in rows):  # in a slice, as Arrow's own batches may be; and no headers as null
        lists = [[{"key": key, "value": value} for key, value in row.headers] or None for row in rows]
        headers = encode_headers(pa.array([[{"key": "before", "value": b"it"}], *lists], HEADERS).slice(1))
    return Rows(keys, values, np.array([row.time for row in rows], np.int64), headers)


def seal(rows: Sequence[Row], sequence: int = 0, **more: object) -> list[Sealed]:
    """For one partition."""
    return [sealed for _, sealed in Encoder(77, 5, **more).encode(columns(rows), [len(rows)], [sequence])]


def read_by_kafka_python(sealed: Sealed) -> list[Row]:
    """With every field of the header held to what it has to be."""
    records = MemoryRecords(sealed.data)
    batch = records.next_batch()
    assert records.next_batch() is None
    assert records.valid_bytes() == len(sealed.data)
    assert batch.validate_crc()
    assert (batch.magic, batch.base_offset, batch.leader_epoch) == (2, 0, -1)
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (77, 5, sealed.sequence)
    assert (batch.is_transactional, batch.is_control_batch, batch.timestamp_type) == (True, False, 0)
    rows = list(batch)
    assert [row.offset for row in rows] == list(range(sealed.count))
    assert batch.last_offset_delta == sealed.count - 1
    assert batch.first_timestamp == rows[0].timestamp
    assert batch.max_timestamp == max(row.timestamp for row in rows)
    return [Row(row.key, row.value, row.timestamp, tuple(row.headers)) for row in rows]


def read_by_decode(batches: Sequence[Sealed]) -> list[Row]:
    """As one Fetch response, with the offsets that a broker gives."""
    data, offset = bytearray(), 0
    for sealed in batches:
        data += struct.pack(">q", offset) + sealed.data[8:]
        offset += sealed.count
    decoded = decode(data, OffsetRange("t", 0, 0, offset), with_headers=True)
    assert decoded.next_offset == offset
    rows = []
    for batch in decoded.batches:
        millis = pa.compute.divide(batch["timestamp"].cast(pa.int64()), 1000).to_pylist()
        headers = [tuple((h["key"], h["value"]) for h in own or ()) for own in batch["headers"].to_pylist()]
        rows += map(Row, batch["key"].to_pylist(), batch["value"].to_pylist(), millis, headers)
    return rows


small = st.none() | st.binary(max_size=6) | st.sampled_from([b"v" * n for n in (62, 63, 64, 100, 8191, 8192, 9000)])
times = st.integers(0, 3).map(lambda step: TIME - step) | st.integers(0, 2**45)
headers = st.lists(st.tuples(st.text(max_size=3), small), max_size=3).map(tuple)
any_rows = st.lists(st.builds(Row, small, small, times, st.just(()) | headers), max_size=30)


@given(
    partitions=st.lists(any_rows, min_size=1, max_size=4),
    sequences=st.lists(st.sampled_from([0, 1, 7, SEQUENCES - 1, SEQUENCES - 10]), min_size=4, max_size=4),
    max_bytes=st.integers(HEADER_BYTES, 400) | st.integers(400, 20_000),
)
@example(partitions=[[Row()] * 70], sequences=[SEQUENCES - 65] * 4, max_bytes=20_000)
@example(partitions=[[], [Row(b"k", None)], []], sequences=[0] * 4, max_bytes=500)
def test_what_is_sealed_is_read_back(partitions, sequences, max_bytes):
    """Every row once, in its partition and in order; sequences follow one another, and wrap; sizes are kept."""
    every = [row for rows in partitions for row in rows]
    sealed = list(
        Encoder(77, 5, max_bytes=max_bytes).encode(columns(every), [len(rows) for rows in partitions], sequences)
    )
    for place, rows in enumerate(partitions):
        own = [batch for owner, batch in sealed if owner == place]
        expected = sequences[place]
        for batch in own:
            assert batch.sequence == expected
            expected = (expected + batch.count) % SEQUENCES
            assert len(batch.data) <= max_bytes or batch.count == 1
        assert [row for batch in own for row in read_by_kafka_python(batch)] == rows
        assert read_by_decode(own) == rows


@given(rows=any_rows.filter(bool), codec=st.sampled_from(CODECS), repeat=st.sampled_from([1, 1, 50]))
def test_every_codec_is_read_back(rows, codec, repeat):
    """By our own decoder, and where it has the codec by kafka-python; also more than one block of LZ4."""
    batches = seal(rows * repeat, codec=codec)
    assert read_by_decode(batches) == rows * repeat
    if codec in ("none", "gzip"):
        assert [row for batch in batches for row in read_by_kafka_python(batch)] == rows * repeat


@pytest.mark.parametrize("codec", CODECS)
def test_every_level_that_the_property_takes_is_written(codec):
    """``kafka.compression.level`` has one range for all codecs, as in librdkafka; a level above the codec's highest is
    that one."""
    rows = [Row(value=b"%d of many" % n) for n in range(200)]
    assert INTEGERS["compression.level"] == (-1, 12)
    batches = [seal(rows, codec=codec, level=level) for level in range(13)]
    assert all(read_by_decode(each) == rows for each in batches)
    assert codec != "gzip" or batches[10:] == batches[9:10] * 3


@pytest.mark.parametrize("codec", CODECS)
@pytest.mark.parametrize("fill", [b"\x00", None], ids=["dense", "random"])
def test_a_row_of_several_megabytes(codec, fill):
    """Has a batch of its own, between those of the small rows around it; also one that no codec makes smaller."""
    size = 3 * 1024 * 1024 + 17
    large = np.random.default_rng(1).bytes(size) if fill is None else fill * size
    rows = [Row(b"a", b"1"), Row(b"b", large), Row(b"c", b"3"), Row(b"d", b"4")]
    batches = seal(rows, codec=codec)
    assert [batch.count for batch in batches] == [1, 1, 2]
    assert read_by_decode(batches) == rows


@pytest.mark.parametrize("codec", CODECS)
def test_threads_do_not_disturb_one_another(codec):
    """Several queries of one process may write at the same time, and Arrow's gzip keeps state while it compresses."""
    texts = [[b"thread %d row %d" % (thread, row) * 20 for row in range(200)] for thread in range(8)]

    def sealed(values: list[bytes]) -> list[list[Sealed]]:
        return [seal([Row(value=value) for value in values], codec=codec) for _ in range(8)]

    with ThreadPoolExecutor(len(texts)) as pool:
        for values, times in zip(texts, pool.map(sealed, texts), strict=True):
            assert [row.value for row in read_by_decode(times[0])] == values
            assert all(batches == times[0] for batches in times)


@pytest.mark.parametrize(
    ("count", "row"),
    [(3000, lambda i: Row(b"k%d" % i, b"v" * (i % 9000), TIME + i)), (150_000, lambda _: Row())],
    ids=["large", "empty"],
)
def test_many_rows_are_few_batches(count, row):
    """Almost as large as they may be; the varints of lengths and offsets take up to three bytes."""
    rows = [row(i) for i in range(count)]
    batches = seal(rows)
    assert all(len(batch.data) <= BATCH_BYTES for batch in batches)
    assert len(batches) > 1
    assert all(len(batch.data) > 0.7 * BATCH_BYTES for batch in batches[:-1])
    assert read_by_decode(batches) == rows
    assert sum(len(read_by_kafka_python(batch)) for batch in batches[-1:]) == batches[-1].count


def test_slices_of_columns():
    """As Spark hands them over: an Arrow array that begins in the middle of its buffers, with nulls."""
    rows = [Row(None if i % 3 else b"k%d" % i, None if i % 5 else b"v%d" % i, TIME + i) for i in range(100)]
    whole = columns(rows)
    part = Rows(whole.key[10:90], whole.value[10:90], whole.time[10:90])
    (sealed,) = (batch for _, batch in Encoder(77, 5).encode(part, [80], [0]))
    assert read_by_kafka_python(sealed) == rows[10:90]


def test_rows_without_a_key_column():
    """A column of type null."""
    rows = [Row(None, b"v%d" % i) for i in range(10)]
    whole = columns(rows)
    (sealed,) = (batch for _, batch in Encoder(77, 5).encode(Rows(pa.nulls(10), whole.value, whole.time), [10], [3]))
    assert read_by_kafka_python(sealed) == rows


@pytest.mark.parametrize("times", [[2**63 - 1, -1], [-1, 2**63 - 1, 5], [2**63 - 1, -(2**63)]])
def test_times_that_are_as_far_apart_as_can_be(times):
    """Such as -1, Kafka's word for none, beside the latest of all."""
    tails = Tails(pa.array([b"\x01\x01\x00"] * len(times), pa.binary()), np.array(times), np.arange(len(times)))
    read: list[int] = []
    for _, sealed in Encoder(1, 0).encode(tails, [len(times)], [0]):
        data = bytes(sealed.data)
        for group in groups(data, walk_batches(data, len(data), ())):
            read += read_records(group).times_ms()[0].tolist()
    assert read == times
