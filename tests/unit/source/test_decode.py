"""Records of a Fetch response into Arrow, against an encoder and a decoder that are not ours: those of kafka-python."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import KafkaError
from spark_eos.kafka.records import columns
from spark_eos.source.decode import decode
from tests.support.judges.conditions import raises
from tests.support.judges.record_batches import (
    CODECS,
    EVERYTHING,
    TIME,
    Batch,
    Record,
    encode,
    expected,
    marker,
    plain,
    rows,
    seal,
)

#: Milliseconds that are microseconds in 64 bits.
LAST_TIME = (2**63 - 1) // 1000

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
    uncommitted = (r.offset for b in batches[:whole] if not b.control for r in b.records)
    assert [at for batch in decode(section, range_).batches for at in batch["offset"].to_pylist()] == [
        offset for offset in uncommitted if range_.start <= offset < range_.end
    ]


# Formats that are not known


@pytest.mark.parametrize(
    ("at", "byte", "named"), [(16, 0, "messages of format v0"), (16, 1, "format v1"), (22, 5, "compression codec 5")]
)
def test_what_comes_before_another_format_is_decoded(at, byte, named):
    """Wherever an answer is cut, the error names the same offset: of the first batch that cannot be read."""
    strange = bytearray(encode(plain(2, b"c")))
    strange[at] = byte
    before, strange = encode(plain(0, b"a", b"b")), seal(bytes(strange))
    decoded = decode(before + strange + encode(plain(3, b"d")), EVERYTHING)
    assert [row for batch in decoded.batches for row in batch["value"].to_pylist()] == [b"a", b"b"]
    assert decoded.next_offset == 2
    for data in (before + strange, strange, strange[:25] if at == 16 else strange):
        with pytest.raises(KafkaError, match=rf"EOS_SOURCE_FETCH.*from offset 2 on.*{named}") as caught:
            decode(data, replace(EVERYTHING, start=2))
        assert caught.value.entry == "EOS_SOURCE_FETCH.format" and not caught.value.restart_helps


# Which rows


@pytest.mark.parametrize("time", [TIME * 1_000_000, LAST_TIME + 1, -LAST_TIME - 1])
def test_a_timestamp_that_spark_cannot_hold(time):
    """Microseconds in 64 bits end in the year 294247; nanoseconds, taken for milliseconds, are later. Only what is
    asked for counts: so a query can begin behind the record, and end before it."""
    records = (Record(4), Record(5, LAST_TIME), Record(6, time), Record(7, -LAST_TIME), Record(8, time))
    data = encode(plain(0, b"a", b"b")) + encode(Batch(records, 4, 8))
    with raises("EOS_SOURCE_TIMESTAMP") as caught:
        rows(data)
    assert not caught.value.restart_helps
    assert caught.value.parameters == {"topic": "t", "partition": 3, "offset": 6, "timestamp": time}
    assert [row["offset"] for row in rows(data, OffsetRange("t", 3, 0, 6))] == [0, 1, 4, 5]
    assert [row["timestamp"] for row in rows(data, OffsetRange("t", 3, 7, 8))] == [-LAST_TIME]


def test_a_key_of_a_header_that_is_not_utf_8():
    """It is read with a sign for each byte that is wrong."""
    data = encode(Batch((Record(0, headers=(("a", b"1"), ("ü", b""))),), 0, 0))
    (row,) = rows(seal(data.replace("ü".encode(), b"\xff\xfe")), with_headers=True)
    assert [header["key"] for header in row["headers"]] == ["a", "��"]


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


@pytest.mark.parametrize("codec", ["gzip", "lz4", "xerial", "zstd"])
def test_little_is_decompressed_at_a_time(codec, monkeypatch):
    """Batches that are small only as they are compressed are not decoded together; each is decompressed once, when it
    is its turn."""
    decompressed = []
    whole = columns.decompress
    monkeypatch.setattr(columns, "decompress", lambda *batch: decompressed.append(batch) or whole(*batch))
    log = [plain(at, b"%d" % at * 700_000, codec=codec) for at in range(9)]
    came = []
    for batch in decode(b"".join(map(encode, log)), EVERYTHING).batches:
        came += batch["value"].to_pylist()
        assert batch.num_rows <= 2
        assert len(decompressed) == len(came)
    assert came == [b"%d" % at * 700_000 for at in range(9)]


def counted(data: bytes, most_bytes: int) -> int:
    return sum(batch.num_rows for batch in decode(data, EVERYTHING, most_bytes=most_bytes).batches)


@pytest.mark.parametrize("codec", sorted(set(CODECS) - {""}))
@pytest.mark.parametrize("records", [(bytes(5000),), (bytes(10),) * 500], ids=["one record", "many"])
def test_a_batch_that_is_too_large_when_it_is_decompressed_is_named(codec, records):
    """By its offsets; a restart would not help, nor another replica. Batches before it are read, and together they may
    be as large as they like; a batch that is not compressed has its own size."""
    data = encode(plain(0, b"a", codec=codec)) + encode(plain(1, *records, codec=codec))
    decoded = decode(data, EVERYTHING, most_bytes=4000)
    with raises("EOS_SOURCE_BATCH_TOO_LARGE", "maxDecompressedBytes") as caught:
        list(decoded.batches)
    assert not caught.value.restart_helps
    assert (caught.value.parameters["offset"], caught.value.parameters["last"]) == (1, len(records))
    assert f"offsets 1 to {len(records)} of t-3 has more than 4,000 bytes" in caught.value.message
    both = encode(plain(0, *records, codec=codec)) + encode(plain(len(records), *records, codec=codec))
    assert counted(both, most_bytes=9_500) == 2 * len(records)
    assert counted(encode(plain(0, *records)), most_bytes=10) == len(records)
