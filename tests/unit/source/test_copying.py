"""A range on its way: what is handed to the producer, and what the copy says of it. Brokers are lists of batches."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import strategies as st

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.records.batches import RecordBatch, find_batches
from spark_eos.kafka.records.encode import Encoder, Rows, Sealed
from spark_eos.kafka.records.passing import reseal
from spark_eos.kafka.records.rows import read_dated_rows
from spark_eos.source import copying
from spark_eos.source.copying import Copied, copy_range
from spark_eos.source.fetching import Fetching
from spark_eos.source.raw import FetchedBatches
from tests.support.judges.conditions import raises
from tests.support.judges.record_batches import HEADER, TIME, Batch, Record, encode, expected, plain, rows, seal
from tests.support.runs.input_counts import inputs
from tests.unit.source.test_decode import logs

CLIENT = broker_client(KafkaProperties({"bootstrap.servers": "nobody"}))
TARGET = ("out", 2)


@dataclass
class Written:
    """A producer that keeps what it is given. ``ways``: w for a whole batch, r for rows."""

    encoder: Encoder = field(default_factory=lambda: Encoder(7, 1))
    batches: list[Sealed] = field(default_factory=list)
    ways: str = ""

    def write_whole(self, topic: str, partition: int, data: bytearray, batches: Sequence[RecordBatch]) -> None:
        assert (topic, partition) == TARGET
        self.batches += [reseal(data, batch, self.encoder, 0) for batch in batches]
        self.ways += "w" * len(batches)

    def write_rows(self, topic: str, partition: int, rows: Rows, codec: int) -> None:
        assert (topic, partition) == TARGET
        encoder = self.encoder.with_codec(codec)
        self.batches += [sealed for _, sealed in encoder.encode(rows, [len(rows)], [0])]
        self.ways += "r"

    @property
    def rows(self) -> list[tuple]:
        data, offset = bytearray(), 0
        for sealed in self.batches:
            data += struct.pack(">q", offset) + bytes(sealed.data[8:])
            offset += sealed.count
        return [without_place(row) for row in rows(bytes(data), with_headers=True)]


def without_place(row: dict) -> tuple:
    return row["key"], row["value"], row["timestamp"], row.get("headers")


def fetches(data: bytes, range_: OffsetRange, aborted, size: int) -> Iterator[FetchedBatches]:
    """As `read_batches`: answers of about so many bytes, and always one whole batch."""
    position, last = range_.start, 0
    while position < range_.end:
        begin, end = next(((at, end) for at, end, h in headers(data) if h[0] + h[6] >= position), (None, None))
        if begin is None:
            return
        answer = bytearray(data[begin : max(begin + size, end)])
        ending = [one for one in aborted if marker_of(data, *one) >= position]
        found, position = find_batches(answer, len(answer), position, range_.end, ending)
        assert position > last
        last = position
        if found:
            yield FetchedBatches(answer, found, position, range_)


def marker_of(data: bytes, producer: int, first: int) -> int:
    """The offset of what ends a transaction: a broker names only those that have not ended before what is fetched."""
    markers = (h[0] for _, _, h in headers(data) if h[0] >= first and h[9] == producer and h[5] & 0x20)
    return next(markers, 1 << 62)


def headers(data: bytes) -> Iterator[tuple[int, int, tuple]]:
    """Where each batch begins and ends, and its header: the base offset, the length behind that, and so on."""
    at = 0
    while at < len(data):
        header = HEADER.unpack_from(data, at)
        end = at + 12 + header[1]
        yield at, end, header
        at = end


@pytest.fixture(scope="module")
def copy():
    """``copy(data, start, end, …)``: what copying says, and the producer with what it was given. ``small``: bytes below
    which batches are put together; ``most``: of a batch, decompressed."""
    patch = pytest.MonkeyPatch()

    def run(data, start, end, *, aborted=(), size=1 << 20, topic="in", small=0, readable=None, most=1 << 27):
        range_ = OffsetRange(topic, 3, start, end)
        left = range_.cut(*(readable or (start, end)))
        patch.setattr(copying, "resuming", lambda *_: fetches(data, left, aborted, size))
        patch.setattr(copying, "is_small", lambda batch: batch.size < small)
        written = Written()
        return copy_range(Fetching(CLIENT, max_decompressed_bytes=most), range_, TARGET, written), written

    yield run
    patch.undo()


@inputs(
    log=logs(),
    edges=st.tuples(st.integers(0, 500), st.integers(1, 40_000)),
    cut=st.tuples(st.sampled_from([0, 1, 5, 20, 100]), st.sampled_from([0, 0, 1, 5, 39_950])),
    size=st.integers(1, 5000),
    small=st.sampled_from([0, 100, 1 << 20]),
    each=4,
)
def test_every_committed_row_that_is_left_of_the_range_once_and_in_order(copy, log, edges, cut, size, small):
    """However the answers are cut, and wherever the log begins and ends now; count and digest do not depend on that."""
    batches, committed, aborted = log
    start, end = edges[0], sum(edges)
    own = OffsetRange("in", 3, start, end).cut(start + cut[0], end - cut[1])
    data = b"".join(encode(batch) for batch in batches)
    said, written = copy(data, start, end, aborted=aborted, size=size, small=small, readable=(own.start, own.end))
    assert written.rows == [without_place(row) for row in expected(committed, own, with_headers=True)]
    assert said.rows == len(written.rows) == sum(sealed.count for sealed in written.batches)
    assert copy(data, own.start, own.end, aborted=aborted)[0] == said


@pytest.mark.parametrize("small", [0, 1 << 20], ids=["whole batches", "encoded anew"])
@pytest.mark.parametrize("readable", [(15, 40), (10, 15), (15, 35), (20, 40)])
def test_a_log_that_has_only_a_part_of_the_range(copy, small, readable):
    """After records were deleted, or a log was truncated, a broker still sends the batch that this has cut. A replay of
    the planned range has the digest of the part, wherever its limits are."""
    data = b"".join(encode(plain(base, *(b"%d" % (base + n) for n in range(10)))) for base in (10, 20, 30))
    said, written = copy(data, 10, 40, small=small, readable=readable)
    assert [value for _, value, *_ in written.rows] == [b"%d" % n for n in range(*readable)]
    assert said.runs == ((readable[0], readable[1] - readable[0]),)
    assert said.rows == readable[1] - readable[0]
    assert said.digest == copy(data, *readable)[0].digest


def test_nothing_in_the_range_hands_nothing_over(copy):
    """Of a range of aborted rows and gaps there is no transaction: its id would be found empty at every replay."""
    data = encode(plain(0, b"a", b"b", producer=5)) + encode(Batch((Record(9),), 5, 9))
    said, written = copy(data, 0, 8, aborted=[(5, 0)])
    assert (said.rows, written.ways) == (0, "")
    data = encode(plain(0, b"a", b"b", producer=5))
    assert copy(data, 0, 2, aborted=[(5, 0)])[0] == Copied(0, 0, None)


def test_only_what_may_not_pass_is_encoded_anew(copy):
    """Edges, gaps, append time; between them, whole batches, in order."""
    log = [
        plain(0, b"a", b"b"),
        plain(2, b"c", b"d"),
        Batch((Record(4), Record(6)), 4, 6),
        plain(7, b"e"),
        plain(8, b"f", append_time=TIME + 7),
        plain(9, b"g", codec="gzip"),
        plain(10, b"h", b"i"),
    ]
    said, written = copy(b"".join(map(encode, log)), 1, 11)
    assert written.ways == "rwrwrwr"
    assert [row[1] for row in written.rows] == [b"b", b"c", b"d", b"", b"", b"e", b"f", b"g", b"h"]
    assert said == replace(said, rows=9, oldest_ms=TIME, oldest_dated_ms=TIME)


def test_the_age_of_rows_is_theirs_where_a_cleaner_has_been(copy):
    """It puts the time at which it takes tombstones in the place of the first row's time, days ahead."""
    old = tuple(Record(n, time=TIME - 86_400_000 + n, value=b"v") for n in range(2))
    said, written = copy(encode(Batch(old, 0, 1, horizon=TIME + 86_400_000)), 0, 2)
    assert [row[2] for row in written.rows] == [record.time for record in old]
    assert said.oldest_ms <= old[0].time + 1  # the header has the newest one


def test_rows_without_a_timestamp_have_no_age_for_retention(copy):
    """Brokers keep them by the time of their file; a row of 1970 beside them has its own."""
    undated = encode(Batch((Record(0, time=-1), Record(1, time=-1)), 0, 1))
    said, _ = copy(undated, 0, 2)
    assert (said.oldest_ms, said.oldest_dated_ms) == (-1, None)
    said, _ = copy(undated + encode(Batch((Record(2, time=-1), Record(3, time=7)), 2, 3)), 0, 4)
    assert (said.oldest_ms, said.oldest_dated_ms) == (-1, 7)
    said, _ = copy(encode(plain(0, b"a")), 0, 1)
    assert said.oldest_ms == said.oldest_dated_ms == TIME


def test_small_batches_are_put_together(copy):
    """Those of a codec, where several follow one another; large ones and lone ones pass as they are."""
    log = [
        plain(0, b"a"),
        plain(1, b"b", b"c"),
        plain(3, b"d" * 1000),
        plain(4, b"e"),
        plain(5, b"f" * 1000),
        plain(6, b"g"),
        plain(7, b"h", codec="gzip"),
        plain(8, b"i", codec="gzip"),
    ]
    data = b"".join(map(encode, log))  # once: gzip notes the second, which the digest would tell
    said, written = copy(data, 0, 9, small=500)
    assert written.ways == "rwwwrr"
    assert [sealed.count for sealed in written.batches] == [3, 1, 1, 1, 1, 2]
    assert b"".join(row[1][:1] for row in written.rows) == b"abcdefghi"
    assert said == copy(data, 0, 9)[0]


@pytest.mark.parametrize("codec", ["", "gzip", "snappy", "lz4", "zstd"])
def test_rows_encoded_anew_keep_their_codec(copy, codec):
    """As the source has it, whatever the producer's own is."""
    _, written = copy(encode(plain(0, b"a", b"b", codec=codec)), 1, 2)
    (sealed,) = written.batches
    assert sealed.data[22] & 0x07 == ["", "gzip", "snappy", "lz4", "zstd"].index(codec)


LOG = [plain(0, b"a", b"b"), plain(2, b"c", b"d"), plain(4, b"e", b"f")]


@pytest.mark.parametrize(
    "other",
    [
        [plain(0, b"a", b"b"), plain(2, b"c", b"x"), plain(4, b"e", b"f")],
        [plain(0, b"c", b"d"), plain(2, b"a", b"b"), plain(4, b"e", b"f")],
        [plain(0, b"a", b"b"), plain(2, b"c"), plain(4, b"e", b"f")],
        [plain(0, b"a", b"b"), plain(4, b"e", b"f")],
        [plain(0, b"a", b"b"), plain(3, b"c", b"d"), plain(5, b"e", b"f")],
        [plain(0, b"a", b"b", producer=7), plain(2, b"c", b"d"), plain(4, b"e", b"f")],
    ],
    ids=["a value", "the order", "a row less", "a batch less", "other offsets", "another producer"],
)
def test_other_rows_have_another_digest(copy, other):
    """What a lost task is copied from again must be what it was copied from at first."""
    before, after = (copy(b"".join(map(encode, log)), 0, 6)[0].digest for log in (LOG, other))
    assert before != after


def test_the_digest_is_of_the_range_and_its_place(copy):
    """The same bytes, but less of them asked for, or those of another topic."""
    data = b"".join(map(encode, LOG))
    digests = [copy(data, 0, 6), copy(data, 1, 6), copy(data, 0, 5), copy(data, 0, 6, topic="other")]
    assert len({said.digest for said, _ in digests}) == 4


def test_ranges_add_up(copy):
    """Digests of ranges that meet between two batches add up to that of both: a sum over batches."""
    data = b"".join(map(encode, LOG))
    parts = [copy(data, 0, 2)[0].digest, copy(data, 2, 6)[0].digest]
    assert sum(parts) % (1 << 64) == copy(data, 0, 6)[0].digest


def test_records_that_are_damaged_are_not_copied(copy):
    """The checksum is right, but the records are not: the offset and the partition are named."""
    data = bytearray(encode(Batch((Record(4), Record(6)), 4, 6)))
    data[61] = 0x7F
    with raises("EOS_SOURCE_DAMAGED", "in-3 from offset 4"):
        copy(seal(bytes(data)), 0, 7)


def test_a_batch_that_is_too_large_to_be_encoded_anew(copy, monkeypatch):
    """It is named; as long as it passes as it is, its size does not matter."""
    monkeypatch.setattr("spark_eos.kafka.records.batches._MOST_BYTES", 300_000)
    data = encode(plain(0, b"a", b"b", codec="zstd")) + encode(plain(2, bytes(300_000), b"c", codec="zstd"))
    assert copy(data, 1, 4)[0].rows == 3
    with raises("EOS_SOURCE_BATCH_TOO_LARGE", "The record batch of offsets 2 to 3 of in-3"):
        copy(data, 1, 3)


def test_a_small_batch_that_is_large_decompressed_is_not_put_together_with_others(copy):
    """It passes between those that are, in order, though it would be smaller than a batch of its own should be."""
    bomb = encode(plain(4, bytes(300_000), b"x", codec="zstd"))
    assert len(bomb) < 1000
    others = [encode(plain(at, b"a", b"b", codec="zstd")) for at in (0, 2, 6, 8)]
    data = b"".join([*others[:2], bomb, *others[2:]])
    copied, written = copy(data, 0, 10, small=5000, most=300_000)
    assert copied.rows == 10
    assert copied.runs == ((0, 10),)
    assert written.ways == "rwr"
    with raises("EOS_SOURCE_BATCH_TOO_LARGE", "The record batch of offsets 4 to 5 of in-3"):
        copy(data, 0, 5, small=5000, most=300_000)


def test_timestamps_that_spark_cannot_hold_are_copied(copy):
    """As they are, in whole batches and in those that are encoded anew."""
    nanos = TIME * 1_000_000
    log = [Batch(tuple(Record(at + i, nanos + at + i) for i in range(2)), at, at + 1) for at in (0, 2)]
    _, written = copy(b"".join(map(encode, log)), 1, 4)
    assert written.ways == "rw"
    times = []
    for data in (bytes(sealed.data) for sealed in written.batches):
        ((batch,), _) = find_batches(data, len(data), 0, 9, ())
        times += [time for time, _ in read_dated_rows(data, batch)]
    assert times == [nanos + 1, nanos + 2, nanos + 3]
