"""Rows that brokers refuse for good: each one is written or refused, once, whatever befalls the requests.

The brokers are the model of `test_sender`, with real record batches. They look at a batch's size before anything else,
as Kafka does, and their limit may be lowered while the batches are under way.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pyarrow as pa
import pytest
from fastcrc.crc32 import iscsi as crc32c
from hypothesis import example, given
from hypothesis import strategies as st

from spark_eos.errors import EosError, KafkaError, RowError, TopicError
from spark_eos.kafka.producer.partition_queue import PartitionQueue
from spark_eos.kafka.producer.refusals import Refusals, Splitting
from spark_eos.kafka.records.batches import find_batches
from spark_eos.kafka.records.encode import HEADER_BYTES, SEQUENCES, Encoder, Rows, Sealed
from spark_eos.kafka.records.fields import read_headers
from spark_eos.kafka.records.headers import encode_headers
from spark_eos.kafka.records.resealing import halves, later, rows_of
from tests.unit.kafka.producer import test_sender as model
from tests.unit.kafka.producer.test_arrow import Producer
from tests.unit.kafka.producer.test_sender import NODES, Brokers, fates

TOO_LARGE, INVALID, UNKNOWN = 10, 87, 3
LETTERS = "letters"
ENCODER = Encoder(7, 3)
#: Bytes of the model's small and large rows: a small one always fits.
SMALL, LARGE = 20, 2000
LIMIT = 500


@dataclass
class Partition(model.Partition):
    """``free``: how many batches it takes before it looks at their sizes."""

    free: int = 0

    def append(self, sealed: Sealed) -> int:
        self.free -= 1
        if self.free < 0 and len(sealed.data) > LIMIT:
            return TOO_LARGE
        return super().append(sealed)


class _Parsed(dict[bytes, Sealed]):
    def __missing__(self, data: bytes) -> Sealed:
        (sequence, count) = struct.unpack_from(">ii", data, 53)
        return Sealed(data, sequence, count)


def seal(values: list[bytes], sequence: int, encoder: Encoder = ENCODER) -> Sealed:
    """One batch."""
    rows = Rows(pa.nulls(len(values), pa.binary()), pa.array(values, pa.binary()), np.zeros(len(values), np.int64))
    ((_, sealed),) = encoder.encode(rows, [len(values)], [sequence])
    return sealed


def values_of(batches: list[Sealed]) -> Iterator[bytes]:
    """Those that `deliver` writes, as they stand in batches that are not compressed."""
    for sealed in batches:
        yield from re.findall(rb"\d\.\d{3}x+", sealed.data[HEADER_BYTES:])


@dataclass
class Delivered:
    """What is in the log of each partition, what was refused, and what was added."""

    brokers: Brokers
    refused: dict[int, list[bytes]]
    added: dict[int, list[bytes]]
    empty: frozenset[tuple[str, int]]

    def check(self) -> None:
        """Each row is in one place, in order; also when the last copies of requests have come."""
        while self.brokers.zombies:
            self.brokers.append(*self.brokers.zombies.popleft())
        for number, added in self.added.items():
            written = list(values_of(self.brokers.partitions["t", number].log))
            refused = set(self.refused.get(number, []))
            assert written == [value for value in added if value not in refused]
            assert len(refused) == len(self.refused.get(number, []))
            assert (("t", number) in self.empty) == (not written)


def deliver(
    brokers: Brokers,
    batches: list[tuple[int, list[bool]]],
    frees: list[int],
    every: int = 100,
    refusals: Splitting | None = None,
) -> Delivered:
    """Send batches of small and large rows to these partitions, which take any size for their first ``frees``."""
    refusals = refusals or Refusals(LETTERS, ENCODER)
    brokers.known = _Parsed()
    added: dict[int, list[bytes]] = {}
    with brokers.sender() as sender:
        sender.refusals = refusals
        for count, (number, larges) in enumerate(batches, 1):
            brokers.partitions.setdefault(("t", number), Partition(number % NODES, free=frees[number]))
            own = added.setdefault(number, [])
            values = [
                b"%d.%03d" % (number, len(own) + i) + b"x" * (LARGE if large else SMALL)
                for i, large in enumerate(larges)
            ]
            sender.add(("t", number), seal(values, len(own)))
            own += values
            if count % every == 0:
                sender.wait_until_below(1)
        sender.wait_until_below(0)
    assert sender.size == 0
    refused: dict[int, list[bytes]] = {}
    for letter in refusals.letters():
        (value,) = letter.value.to_pylist()
        refused.setdefault(int(value.partition(b".")[0]), []).append(value)
    assert refusals.rows == sum(map(len, refused.values()))
    return Delivered(brokers, refused, added, sender.empty)


BATCHES = st.lists(st.tuples(st.integers(0, 2), st.lists(st.booleans(), min_size=1, max_size=5)), max_size=20)
FREES = st.lists(st.integers(0, 12), min_size=3, max_size=3)


@given(batches=BATCHES, frees=FREES, every=st.sampled_from([1, 3, 100]))
@example(batches=[(0, [False])] + [(0, [True])] * 7, frees=[0, 0, 0], every=100)
@example(batches=[(0, [True])] * 3, frees=[0, 0, 0], every=100)
def test_where_all_is_answered_only_large_rows_are_refused(batches, frees, every):
    """In the middle of a partition, several at once, or all; and all others are written, in order."""
    delivered = deliver(Brokers(), batches, frees, every)
    delivered.check()
    assert all(len(value) > LARGE for values in delivered.refused.values() for value in values)


@given(fates=fates, batches=BATCHES, frees=FREES, every=st.sampled_from([1, 3, 100]))
@example(fates=[("works", 0), ("late", 0)], batches=[(0, [False]), (0, [True]), (0, [False])], frees=[1, 0, 0], every=9)
def test_whatever_befalls_the_requests(fates, batches, frees, every):
    """Rows are in one place, and the late copy of a request changes nothing; or the attempt has failed, by name."""
    try:
        delivered = deliver(Brokers(fates), batches, frees, every)
    except EosError as error:
        assert error.condition == "EOS_DELIVERY_FAILED"
        assert error.restart_helps
        assert fates
    else:
        delivered.check()


MANY = st.lists(st.tuples(st.integers(0, 2), st.lists(st.just(False), min_size=1, max_size=60)), max_size=12)


@given(fates=st.just([]) | fates, batches=MANY, frees=FREES, every=st.sampled_from([1, 3, 100]))
@example(fates=[], batches=[(0, [False] * 60)] * 9, frees=[2, 0, 0], every=100)
def test_batches_that_are_split(fates, batches, frees, every):
    """Without dead letters, what is too large goes in smaller batches, in order, over the same sequence numbers; or the
    attempt has failed, by name, where a copy of it may be under way."""
    try:
        delivered = deliver(Brokers(fates), batches, frees, every, Splitting(ENCODER))
    except EosError as error:
        assert error.condition == "EOS_DELIVERY_FAILED"
        assert fates
        return
    delivered.check()
    assert not delivered.refused
    for partition in delivered.brokers.partitions.values():
        at = 0
        for sealed in partition.log:
            assert sealed.sequence == at
            at += sealed.count


def test_a_single_row_that_is_too_large():
    """Without dead letters it is an error, with its size."""
    with pytest.raises(
        RowError, match=r"EOS_ROW_TOO_LARGE.*Partition 0 of topic t refused a batch of 1 row\(s\) and 2"
    ):
        deliver(Brokers(), [(0, [False, True, False])], [0, 0, 0], refusals=Splitting(ENCODER))


def test_other_refusals_are_not_split():
    """Smaller batches would not do: a row is at fault, and the error says so."""
    with pytest.raises(RowError, match=r"EOS_ROW_REFUSED.*INVALID_RECORD"):
        deliver(Brokers(take=lambda *_: INVALID), [(0, [False, False])], [0, 0, 0], refusals=Splitting(ENCODER))


def test_what_is_known_to_be_too_large_is_not_sent():
    """As far as it is known from the topic, or from a batch that was refused; a single row is tried all the same."""
    splitting = Splitting(ENCODER)
    small, large = seal([b"x", b"y"], 0), seal([b"x" * 500, b"y" * 500], 0)
    assert splitting.fits(("t", 0), large)
    assert len(splitting.take(("t", 0), large, TOO_LARGE)) == 2
    assert not splitting.fits(("t", 1), large)
    assert splitting.fits(("t", 0), small)
    assert splitting.fits(("other", 0), large)
    assert splitting.fits(("t", 0), seal([b"x" * 2000], 0))
    splitting.limits["other"] = 100
    assert not splitting.fits(("other", 0), large)


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
def test_halves_have_the_codec_of_the_batch(codec):
    """A batch from elsewhere may have another one than the producer."""
    sealed = seal([b"x" * 100, b"y" * 100], 0, Encoder(7, 3, codec))
    assert list(halves(sealed, Encoder(7, 3, "zstd", 19))) == list(
        halves(sealed, Encoder(7, 3, codec, 19 if codec == "zstd" else None))
    )
    assert {half.data[22] & 7 for half in halves(sealed, ENCODER)} == {sealed.data[22] & 7}


@pytest.mark.parametrize(
    ("fates", "batches", "free"),
    [
        ([("silent", 0)], [(0, [True])], 1),
        ([("works", 0), ("works", 0), ("never", 0)], [(0, [False]), (0, [True, False]), (0, [False, False])], 0),
    ],
    ids=["sent before", "behind a refused one"],
)
def test_a_refusal_that_leaves_a_doubt(fates, batches, free):
    """The first copy may be in the log, as the limit was lowered after it: nobody can tell. A copy of what comes behind
    could be taken later, under a sequence number that another row has by then."""
    with pytest.raises(EosError, match="EOS_DELIVERY_FAILED"):
        deliver(Brokers(fates), batches, frees=[free, 0, 0])


def test_a_retry_that_leaves_no_doubt():
    """The broker has said that it has not written the batch: its refusal afterwards counts."""
    answers = iter([19, 51])
    brokers = Brokers(take=lambda partition, sealed: next(answers, None) or partition.append(sealed))
    delivered = deliver(brokers, [(0, [True]), (0, [False])], frees=[0, 0, 0])
    delivered.check()
    assert len(delivered.refused[0]) == 1


def test_a_refusal_behind_a_retry_that_was_written():
    """What was in doubt is not any more: the refusal of a later batch counts."""
    delivered = deliver(Brokers([("silent", 0)]), [(0, [False]), (0, [True])], frees=[0, 0, 0], every=1)
    delivered.check()
    assert len(delivered.refused[0]) == 1


def test_a_record_that_is_invalid():
    """As one without a key in a compacted topic; the rest of its batch is written."""

    def look(partition: Partition, sealed: Sealed) -> int:
        return INVALID if any(len(value) > LARGE for value in values_of([sealed])) else partition.append(sealed)

    delivered = deliver(Brokers(take=look), [(0, [False, True, False, False]), (0, [True, False])], frees=[99, 0, 0])
    delivered.check()
    assert len(delivered.refused[0]) == 2


def test_a_dead_letter_that_is_refused():
    """Is an error, with its size."""
    refusals = Refusals(LETTERS, ENCODER)
    with pytest.raises(TopicError, match=r"EOS_DEAD_LETTER_TOPIC.*letters.*MESSAGE_TOO_LARGE"):
        refusals.take((LETTERS, 0), seal([b"x"], 0), TOO_LARGE)
    assert len(refusals.take((LETTERS, 0), seal([b"x", b"y"], 0), TOO_LARGE)) == 2


@pytest.mark.parametrize("codec", ["none", "gzip", "lz4", "snappy", "zstd"])
def test_batches_anew(codec):
    """The same rows in halves, and the same bytes as if they had been sealed so, also where the numbers begin anew."""
    encoder = Encoder(7, 3, codec)
    headers = encode_headers(
        pa.array(
            [[("a", b"1"), ("b", None)], None, []], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()}))
        )
    )
    key, value = pa.array([b"k", None, b""], pa.binary()), pa.array([b"a" * 100, None, b"c"], pa.binary())
    rows = Rows(key, value, np.array([1000, 5, 2000]), headers)

    def sealed(rows: Rows, sequence: int) -> Sealed:
        ((_, batch),) = encoder.encode(rows, [len(rows.value)], [sequence])
        return batch

    batch = sealed(rows, SEQUENCES - 2)
    again = rows_of(batch)
    assert (again.key, again.value, again.headers) == (key, value, headers)
    assert again.time.tolist() == [1000, 5, 2000]
    assert later(batch, 7) == sealed(rows, 5)
    assert later(later(batch, 7), -7) == batch
    parts = [Rows(key[some], value[some], rows.time[some], headers[some]) for some in (slice(1), slice(1, 3))]
    assert list(halves(batch, encoder)) == [sealed(parts[0], SEQUENCES - 2), sealed(parts[1], SEQUENCES - 1)]


def broken(sealed: Sealed) -> Sealed:
    """With a record of a length that there cannot be, and the checksum of that: a copy passes it on."""
    data = bytearray(sealed.data)
    data[61] = 0x7F
    struct.pack_into(">I", data, 17, crc32c(memoryview(data)[21:]))
    return replace(sealed, data=bytes(data))


@pytest.mark.parametrize("make", [lambda: Splitting(ENCODER), lambda: Refusals(LETTERS, ENCODER)])
def test_a_refused_batch_that_is_damaged(make):
    """It was copied as it is: no smaller batch can be made of it, and the error names where it comes from."""
    queue = PartitionQueue(("t", 3), 0.0)
    queue.sent.append(broken(seal([b"x" * 100, b"y" * 100], 0)))
    queue.refused = (queue.sent[0], TOO_LARGE)
    with pytest.raises(KafkaError, match=r"EOS_SOURCE_DAMAGED.*Partition 3 of topic t refused 2 rows.*is negative"):
        queue.replace_refused(make())


def test_a_batch_above_a_known_limit_that_is_damaged():
    """It is split before it is sent."""
    producer = Producer()
    producer.limit("t", 150)
    data = bytearray(broken(seal([b"x" * 100, b"y" * 100], 0)).data)
    (batches, _) = find_batches(data, len(data), 0, 2, ())
    with pytest.raises(KafkaError, match=r"EOS_SOURCE_DAMAGED.*Partition 3 of topic t.*is negative"):
        producer.write_whole("t", 3, data, batches)


def test_a_row_that_is_damaged_is_no_dead_letter():
    """As nobody knows what it was."""
    refusals = Refusals(LETTERS, ENCODER)
    assert refusals.take(("t", 3), broken(seal([b"x"], 0)), TOO_LARGE) == []
    with pytest.raises(KafkaError, match=r"EOS_SOURCE_DAMAGED.*Partition 3 of topic t refused 1 rows.*is negative"):
        refusals.letters()


def test_a_refused_batch_that_is_too_large_to_be_sent_in_parts(monkeypatch):
    """It is sound: nobody is sent to look for damage."""
    monkeypatch.setattr("spark_eos.kafka.records.batches._MOST_BYTES", 300_000)
    queue = PartitionQueue(("t", 3), 0.0)
    queue.sent.append(seal([bytes(200_000), bytes(200_000)], 0, Encoder(7, 3, "lz4")))
    queue.refused = (queue.sent[0], TOO_LARGE)
    with pytest.raises(KafkaError, match=r"EOS_SOURCE_BATCH_TOO_LARGE.*refused a record batch of 2 rows.*max\.message"):
        queue.replace_refused(Splitting(ENCODER))


def test_what_a_dead_letter_says():
    """The row as it was, its own headers first; why it was refused, and where."""
    headers = encode_headers(
        pa.array([[("own", b"1")]], pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})))
    )
    rows = Rows(pa.array([b"k"], pa.binary()), pa.array([b"value"], pa.binary()), np.array([1234]), headers)
    ((_, sealed),) = ENCODER.encode(rows, [1], [0])
    refusals = Refusals(LETTERS, ENCODER)
    refusals.take(("t", 3), sealed, TOO_LARGE)
    (letter,) = refusals.letters()
    assert (letter.key.to_pylist(), letter.value.to_pylist(), letter.time_ms.to_pylist()) == (
        [b"k"],
        [b"value"],
        [1234],
    )
    encoded = letter.headers.to_pylist()[0]
    assert read_headers(encoded, 1, len(encoded), encoded[0] >> 1) == [
        ("own", b"1"),
        ("__streams.errors.exception", b"org.apache.kafka.common.errors.RecordTooLargeException"),
        (
            "__streams.errors.message",
            b"Partition 3 of topic t refused a batch of 1 row and %d bytes." % len(sealed.data),
        ),
        ("__spark_eos.target.topic", b"t"),
        ("__spark_eos.target.partition", b"3"),
    ]
    assert refusals.letters() == []
