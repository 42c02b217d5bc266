"""Records of a Fetch response into Arrow, against an encoder and a decoder that are not ours: those of kafka-python."""

from __future__ import annotations

import gzip
import random
import struct
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise

import pyarrow as pa
import pytest
from crc32c import crc32c
from hypothesis import example, given, settings
from hypothesis import strategies as st
from kafka.record._crc32c import crc as slow_crc32c
from kafka.record.default_records import DefaultRecordBatchBuilder

from spark_eos.errors import KafkaError
from spark_eos.kafka.records.batches import UnsupportedFormat
from spark_eos.source.decode import decode
from spark_eos.source.planning import OffsetRange
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
    """A record batch as a broker holds it; without records what compaction leaves of one, up to ``last``."""

    records: tuple[Record, ...]
    base: int
    last: int
    codec: str = ""
    append_time: int | None = None
    producer: int = -1
    control: bool = False


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
    for r in batch.records:
        builder.append(r.offset - batch.base, r.time, r.key, r.value, list(r.headers))
    codec, compress = CODECS[batch.codec]
    records = compress(bytes(builder.build()[HEADER.size :]))
    flags = codec | (batch.append_time is not None) << 3 | (batch.producer >= 0) << 4 | batch.control << 5
    times = [r.time for r in batch.records] or [TIME]
    last_time = max(times) if batch.append_time is None else batch.append_time
    writer = (batch.producer, 0, 0)
    header = (flags, batch.last - batch.base, times[0], last_time, *writer, len(batch.records))
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


# Against the other encoder

SIZES = st.one_of(st.integers(0, 70), st.sampled_from([100, 127, 128, 8180, 8191, 8192, 70_000]))
BYTES = st.one_of(st.none(), st.binary(max_size=20), st.builds(lambda n, b: bytes([b]) * n, SIZES, st.integers(0, 255)))
TIMES = st.one_of(st.integers(TIME, TIME + 20_000), st.integers(-(2**53), 2**53))
HEADER_LISTS = st.lists(st.tuples(st.text(max_size=5), BYTES), max_size=3).map(tuple)


@st.composite
def batch_of_records(draw, base: int, producer: int) -> Batch:
    """Runs of records that differ in nothing but their offset, with gaps between them; gaps at both ends."""
    offset, records = base, []
    for _ in range(draw(st.integers(0, 4))):
        offset += draw(st.sampled_from([0, 0, 0, 1, 63, 10_000]))
        like = Record(0, draw(TIMES), draw(BYTES), draw(BYTES), draw(st.one_of(st.just(()), HEADER_LISTS)))
        for _ in range(draw(st.sampled_from([1, 1, 2, 70, 200])) if len(like.value or b"") < 1000 else 1):
            records.append(replace(like, offset=offset))
            offset += 1
    last = max(base, offset - 1) + draw(st.sampled_from([0, 0, 5]))
    append_time = draw(st.one_of(st.none(), st.just(TIME + 5)))
    return Batch(tuple(records), base, last, draw(st.sampled_from(sorted(CODECS))), append_time, producer)


@st.composite
def logs(draw) -> tuple[list[Batch], list[Batch], list[tuple[int, int]]]:
    """A log in which every transaction ends: all batches, those that are committed, the aborted transactions."""
    log: list[Batch] = []
    open_: dict[int, list[Batch]] = {}
    dead: list[Batch] = []
    aborted: list[tuple[int, int]] = []
    offset = draw(st.integers(0, 300))

    def end(producer: int, commit: bool) -> None:
        nonlocal offset
        log.append(marker(offset, producer, commit))
        written = open_.pop(producer)
        if not commit:
            dead.extend(written)
            aborted.append((producer, written[0].base))
        offset += 1

    for producer in draw(st.lists(st.sampled_from([-1, -1, 0, 1, 2]), max_size=8)):
        if producer in open_ and draw(st.booleans()):
            end(producer, draw(st.booleans()))
            continue
        batch = draw(batch_of_records(offset, producer))
        log.append(batch)
        if producer >= 0:
            open_.setdefault(producer, []).append(batch)
        offset = batch.last + 1 + draw(st.sampled_from([0, 0, 40]))
    for producer in list(open_):
        end(producer, draw(st.booleans()))
    return log, [batch for batch in log if batch not in dead], aborted


@settings(max_examples=100, deadline=None)
@given(logs(), st.data())
def test_what_another_encoder_wrote(log, data):
    """Any log, any range of it, cut off anywhere: its committed rows, and where to fetch on."""
    batches, committed, aborted = log
    top = batches[-1].last + 2 if batches else 1
    start = data.draw(st.one_of(st.just(0), st.integers(0, top)), label="start")
    range_ = OffsetRange("t", 1, start, data.draw(st.one_of(st.just(top), st.integers(start, top)), label="end"))
    encoded = [encode(batch) for batch in batches]
    whole = data.draw(st.one_of(st.just(len(batches)), st.integers(0, len(batches))), label="whole batches")
    cut = data.draw(st.integers(0, 200), label="bytes of the next") if whole < len(batches) else 0
    section = b"".join(encoded[:whole])
    section += encoded[whole][: min(cut, len(encoded[whole]) - 1)] if cut else b""
    with_headers = data.draw(st.booleans(), label="with headers")
    came = [batch for batch in batches[:whole] if batch in committed]
    assert rows(section, range_, aborted, with_headers) == expected(came, range_, with_headers)
    assert decode(section, range_, aborted).next_offset == max([start, *(b.last + 1 for b in batches[:whole])])
    assert (
        [row["offset"] for row in rows(section, range_)]
        == [  # read_uncommitted: nothing is dropped but markers
            r.offset
            for b in batches[:whole]
            if not b.control
            for r in b.records
            if range_.start <= r.offset < range_.end
        ]
    )


def test_the_checksum_is_the_one_of_kafka():
    """The library's and the one that kafka-python has for want of it; the known value of CRC-32C."""
    assert crc32c(b"123456789") == 0xE3069283
    assert crc32c(bytes(range(256))) == slow_crc32c(bytes(range(256)))


# Damage


def sound(seed: int) -> list[Batch]:
    """A log with all codecs; headers, nulls, equal and different lengths."""
    chance = random.Random(seed)
    log, offset = [], 10
    for codec in chance.sample(sorted(CODECS), 3):
        records = tuple(
            Record(
                offset + i,
                TIME + chance.randrange(100),
                chance.choice([None, b"", b"key"]),
                chance.choice([None, bytes(chance.randrange(90))]) if seed % 2 else bytes(80),
                (("h", b"x"), ("", None)) if chance.random() < 0.1 else (),
            )
            for i in range(chance.randrange(1, 150))
        )
        log.append(Batch(records, offset, records[-1].offset, codec))
        offset = records[-1].offset + 1
    return log


def outcome(data: bytes) -> list[dict] | None:
    """The rows, or None for one of the two errors; any other exception fails the test."""
    try:
        return rows(data, with_headers=True)
    except UnsupportedFormat:
        return None
    except KafkaError as error:
        assert error.condition == "EOS_SOURCE_DAMAGED"
        return None


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 7), st.integers(0, 2**32), st.integers(1, 255), st.booleans())
@example(0, 8, 0xFF, False)  # the length of the first batch is negative
@example(0, 11, 1, False)
@example(0, 16, 3, False)  # its format is v1
def test_a_flipped_byte_never_gives_a_wrong_row(seed, place, flip, truncate):
    """The named error, or whole batches from the start. First offsets have no checksum: those are left alone."""
    log = sound(seed)
    encoded = [encode(batch) for batch in log]
    data = bytearray(b"".join(encoded))
    place %= len(data)
    starts = [sum(map(len, encoded[:i])) for i in range(len(encoded))]
    if any(start <= place < start + 8 for start in starts):
        return
    data[place] ^= flip
    if truncate:
        del data[(place * 31) % len(data) :]
    got = outcome(bytes(data))
    prefixes = [expected(log[:i], with_headers=True) for i in range(len(log) + 1)]
    assert got is None or got in prefixes


def slowly(data: bytes) -> list[dict]:
    """The rows of one uncompressed batch, read byte by byte as the format says. Raises ValueError, IndexError."""
    base, _, _, _, _, flags, last, time, max_time, _, _, _, count = HEADER.unpack_from(data)
    at, result = HEADER.size, []

    def number() -> int:
        nonlocal at
        value = shift = 0
        while True:
            byte, at = data[at], at + 1
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                value &= 2**64 - 1
                return value >> 1 ^ -(value & 1)
            must(shift < 70)

    def field(end: int) -> bytes | None:
        nonlocal at
        size = number()
        must(-1 <= size <= end - at)
        start, at = at, at + max(size, 0)
        return data[start:at] if size >= 0 else None

    def header(end: int) -> dict:
        key = field(end)
        must(key is not None)
        return {"key": key.decode(errors="replace"), "value": field(end)}

    must(flags & ~0x7F == 0 and 0 <= count <= last + 1)
    if flags & 0x20 or not count:
        return []
    must(flags & 7 == 0)
    for _ in range(count):
        end = number() + at
        at += 1
        stamp = time + number()
        offset = base + number()
        must((result[-1]["offset"] + 1 if result else base) <= offset <= base + last)
        row = {"key": field(end), "value": field(end), "topic": "t", "partition": 3, "offset": offset}
        headers = number()
        must(headers >= 0)
        headers = [header(end) for _ in range(headers)]
        must(at == end)
        stamp = max_time if flags & 8 else stamp
        must(abs(stamp) <= (2**63 - 1) // 1000)
        result.append(row | {"timestamp": stamp, "timestampType": int(flags & 8 > 0), "headers": headers or None})
    must(at == len(data))
    return result


def must(true: bool) -> None:
    if not true:
        raise ValueError


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 7), st.lists(st.tuples(st.integers(0, 2**32), st.integers(0, 255)), min_size=1, max_size=3))
@example(1, [(1070, 13)])  # a length of -7 for 6
def test_damage_that_the_checksum_covers_up(seed, changes):
    """Records written wrongly in the first place: the named error, just where reading them one by one fails too."""
    batch = replace(sound(seed)[0], codec="")
    data = bytearray(encode(batch))
    for place, byte in changes:
        data[21 + place % (len(data) - 21)] = byte
    data = seal(data)
    try:
        asked = slowly(data)
    except (ValueError, IndexError):
        asked = None
    assert outcome(data) == asked


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {""}))
def test_compressed_bytes_that_are_damaged_under_a_right_checksum(codec):
    """Cut off, changed, or nonsense; and a record section longer than its records."""
    batch = encode(plain(0, *[b"%d" % i for i in range(500)], codec=codec))
    chance = random.Random(codec)
    for _ in range(50):
        data = bytearray(batch)
        data[chance.randrange(HEADER.size, len(data))] ^= chance.randrange(1, 256)
        outcome(seal(data))
    assert outcome(seal(batch[: HEADER.size + 20])) is None
    assert outcome(seal(batch[: HEADER.size] + b"\xff" * 40)) is None
    assert outcome(seal(batch[: HEADER.size] + CODECS[codec][1](b"\x00" * 99))) is None


@pytest.mark.parametrize(
    ("place", "form", "value"),
    [(8, ">i", 48), (8, ">i", -1), (16, "b", 3), (21, ">h", 0x80), (23, ">i", -1), (57, ">i", -1), (57, ">i", 3)],
)
def test_headers_of_batches_that_make_no_sense(place, form, value):
    """Length, format, unknown flags, last offset delta, number of records."""
    data = bytearray(encode(plain(5, b"a", b"b")))
    struct.pack_into(form, data, place, value)
    if place > 16:
        data = seal(data)
    with pytest.raises(KafkaError, match="t-3 from offset 0 on is damaged") as caught:
        rows(bytes(data))
    assert caught.value.condition == "EOS_SOURCE_DAMAGED"


def test_offsets_out_of_order():
    """Between batches and in one: what a checksum cannot know."""
    one, two = encode(plain(5, b"a", b"b")), encode(plain(7, b"c"))
    assert values(one + two) == [b"a", b"b", b"c"]
    for wrong in (two + one, one + one):
        with pytest.raises(KafkaError, match="comes after offset"):
            rows(wrong)
    for offsets in [(5, 5), (6, 5), (4, 5), (5, 8)]:
        records = tuple(Record(offset) for offset in offsets)
        with pytest.raises(KafkaError, match="out of order"):
            rows(encode(Batch(records, 5, 7)))


def test_records_that_do_not_fill_their_batch():
    """One less, one more than counted, and a rest."""
    batch = encode(plain(5, b"a", b"b", b"c"))
    for wrong in (batch[:-8], batch + batch[-8:], batch + b"\0"):
        with pytest.raises(KafkaError, match=r"records|lengths"):
            rows(seal(wrong))


# What only a consumer reads


@pytest.mark.parametrize("magic", [0, 1])
def test_old_message_formats(magic):
    """Even when the last of them is cut off."""
    with pytest.raises(UnsupportedFormat, match=f"v{magic}"):
        decode(struct.pack(">qiiB", 0, 100, 0, magic) + bytes(9), EVERYTHING)


def test_an_unknown_codec():
    """It may be a new one."""
    data = bytearray(encode(plain(0, b"a")))
    data[22] |= 5
    with pytest.raises(UnsupportedFormat, match="codec 5"):
        decode(seal(data), EVERYTHING)


# Which rows


def test_an_empty_response():
    """Nothing to read, nothing to move on to."""
    decoded = decode(b"", replace(EVERYTHING, start=7))
    assert list(decoded.batches) == []
    assert decoded.next_offset == 7


@pytest.mark.parametrize("codec", sorted(CODECS))
def test_a_batch_that_straddles_both_ends_of_the_range(codec):
    """With every codec; of other batches, nothing."""
    log = [plain(at, *[b"%d" % (at + i) for i in range(10)], codec=codec) for at in (0, 10, 20, 30)]
    data = b"".join(map(encode, log))
    assert values(data, OffsetRange("t", 0, 13, 17)) == [b"13", b"14", b"15", b"16"]
    assert values(data, OffsetRange("t", 0, 9, 21)) == [b"%d" % i for i in range(9, 21)]
    assert values(data, OffsetRange("t", 0, 40, 50)) == []


def test_null_and_empty_keys_and_values():
    """They differ."""
    pairs = [(None, None), (b"", b""), (b"k", None), (None, b"v"), (b"k", b"v")]
    log = Batch(tuple(Record(i, TIME, *pair) for i, pair in enumerate(pairs)), 0, 4)
    assert [(row["key"], row["value"]) for row in rows(encode(log))] == pairs


def test_both_kinds_of_timestamps():
    """The writer's, before and after that of the batch and before 1970, and the broker's, which is one for all."""
    times = (TIME, TIME - 5_000_000_000, -1, -(2**52), TIME + 1)
    records = tuple(Record(i, time) for i, time in enumerate(times))
    assert [(r["timestamp"], r["timestampType"]) for r in rows(encode(Batch(records, 0, 4)))] == [
        (time, 0) for time in times
    ]
    assert {(r["timestamp"], r["timestampType"]) for r in rows(encode(Batch(records, 0, 4, append_time=TIME + 9)))} == {
        (TIME + 9, 1)
    }


def test_a_timestamp_that_spark_cannot_hold():
    """Microseconds in 64 bits end in the year 294247; the time of another unit is later."""
    with pytest.raises(KafkaError, match="beyond what Spark can hold"):
        rows(encode(Batch((Record(0, TIME * 1_000_000),), 0, 0)))


def test_batches_that_compaction_left_without_records_move_the_position_on():
    """So do gaps in the offsets; they make no rows."""
    data = (
        encode(Batch((), 0, 9))
        + encode(Batch((Record(12), Record(90_000)), 10, 100_000))
        + encode(Batch((), 100_001, 100_004))
    )
    assert [row["offset"] for row in rows(data)] == [12, 90_000]
    assert decode(data, EVERYTHING).next_offset == 100_005


def test_a_tail_of_control_and_aborted_records_moves_the_position_on():
    """No row lies behind it."""
    data = b"".join(
        map(
            encode,
            [plain(0, b"a"), plain(1, b"dead", producer=4), marker(2, 4, commit=False), marker(3, 5, commit=True)],
        )
    )
    assert values(data, aborted=[(4, 1)]) == [b"a"]
    assert decode(data, EVERYTHING, [(4, 1)]).next_offset == 4


def test_aborted_transactions_of_one_producer():
    """Committed, aborted, committed again; another producer's and plain records between them stay."""
    log = [
        plain(0, b"first", producer=4),
        marker(1, 4, commit=True),
        plain(2, b"dead", producer=4),
        plain(3, b"other", producer=5),
        plain(4, b"plain"),
        plain(5, b"dead too", producer=4),
        marker(6, 4, commit=False),
        plain(7, b"again", producer=4),
        marker(8, 5, commit=True),
    ]
    data = b"".join(map(encode, log))
    assert values(data, aborted=[(4, 2)]) == [b"first", b"other", b"plain", b"again"]
    assert values(data, replace(EVERYTHING, start=5), [(4, 2)]) == [b"again"]
    # A fetch may begin after the transaction's first offset
    assert values(b"".join(map(encode, log[5:])), aborted=[(4, 2)]) == [b"again"]


def test_headers_are_null_where_there_are_none():
    """Several, twice the same key, null and empty values, a key that is not UTF-8; among records without any."""
    given = (("a", b"1"), ("a", None), ("ü", b""))
    records = (Record(0), Record(1, headers=given), Record(2, value=b"x" * 9000, headers=(("b", b"2"),)))
    data = encode(Batch(records, 0, 2))
    assert [row["headers"] for row in rows(data, with_headers=True)] == [
        None,
        [{"key": "a", "value": b"1"}, {"key": "a", "value": None}, {"key": "ü", "value": b""}],
        [{"key": "b", "value": b"2"}],
    ]
    assert "headers" not in rows(data)[0]
    broken = seal(data.replace("ü".encode(), b"\xff\xfe"))
    assert rows(broken, with_headers=True)[1]["headers"][2]["key"] == "��"


def test_many_rows_come_in_several_batches_of_the_right_rows():
    """Small record batches are put together, a large one is not cut."""
    log = [plain(at, *[b"%d" % i * (i % 7) for i in range(at, at + 500)]) for at in range(0, 30_000, 500)]
    log.append(plain(30_000, *[b"%d" % i for i in range(12_000)]))
    data = b"".join(map(encode, log))
    sizes = [batch.num_rows for batch in decode(data, EVERYTHING).batches]
    assert sum(sizes) == 42_000
    assert len(sizes) == 4
    assert rows(data) == expected(log)
    offsets = [row["offset"] for row in rows(data)]
    assert all(one < two for one, two in pairwise(offsets))
