"""Which letters a receipt names, and where a letter belongs."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import asdict, replace
from types import MappingProxyType, SimpleNamespace

import pytest
from confluent_kafka import KafkaError, Producer
from hypothesis import strategies as st

from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.letter_headers import PREFIXES, SOURCE_CLUSTER
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ops.dead_letters import (
    RECEIPT,
    DeadLetter,
    DeadLetters,
    PartitionLog,
    Receipt,
    SentOffsets,
    _as_text,
    _produce,
    _producer,
    _Target,
    _TopicReader,
    _transaction,
    ranges_in,
)
from tests.support.judges.conditions import raises
from tests.support.runs.input_counts import inputs
from tests.unit.base.test_printable import HOSTILE, is_plain

LOG = PartitionLog("cluster", "dead", "id", 0)
#: More than Python's parser of JSON takes.
DEEP = b"[" * 100_000
#: JSON that is no list of pairs of offsets.
NO_RANGES = (None, b"[]", b"[2]", b"[[2]]", b"[[2, 3, 4]]", b'[["2", 3]]', b"[[2, null]]", b"[[2, 3.5]]", b'["23"]')


def letter(*headers: tuple[str, bytes | None]) -> DeadLetter:
    return DeadLetter(0, 7, b"k", b"v", headers, 0)


@inputs(st.lists(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=12), max_size=4))
def test_what_several_receipts_name_is_what_was_sent(runs):
    """Of letters with gaps between them, whichever each run has sent; and no letter besides."""
    offsets = sorted({offset for run in runs for offset, _ in run})
    sent: set[int] = set()
    ranges: list[tuple[int, int]] = []
    for run in runs:
        wanted = {offset for offset, is_sent in run if is_sent}
        receipt = Receipt(LOG)
        for offset in offsets:
            receipt.passed(offset, sent=offset in wanted and offset not in sent)
        sent |= wanted
        ranges += ranges_in(read(receipt), LOG) if receipt.ranges else []
    found = SentOffsets(ranges)
    assert [offset for offset in offsets if found.has(offset)] == sorted(sent)


def test_letters_that_follow_one_another_are_one_range():
    """Whatever lies between them, such as markers of transactions."""
    receipt = Receipt(LOG)
    for offset, sent in ((2, True), (4, True), (9, True), (11, False), (12, True)):
        receipt.passed(offset, sent=sent)
    assert receipt.ranges == [(2, 10), (12, 13)]


WHY = ("__streams.errors.exception", b"org.apache.Some")


def test_a_letter_belongs_to_the_topic_that_refused_it_or_that_it_was_read_from():
    """To the partition as well, where the letter names one."""
    place = (("__spark_eos.target.topic", b"out"), ("__spark_eos.target.partition", b"3"))
    refused = letter(("mine", b"1"), WHY, *place)
    assert (refused.origin, refused.cluster) == (("out", 3), None)
    assert refused.own_headers == [("mine", b"1")]
    unparsed = letter(WHY, ("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"2"))
    assert (unparsed.origin, unparsed.cluster) == (("in", 2), None)
    assert letter(*unparsed.headers, ("__spark_eos.source.cluster", b"c")).cluster == "c"
    for number in (b"x", b"-1", "²".encode(), b"9" * 20):
        assert letter(WHY, ("__streams.errors.topic", b"in"), ("__streams.errors.partition", number)).origin == (
            "in",
            None,
        )
    assert letter(("mine", None)).origin is None
    assert letter(WHY).reason == "Some"
    assert letter().reason == "unknown"


OWN = st.sampled_from(
    (
        *PREFIXES,
        *(f"{one}{rest}" for one in PREFIXES for rest in ("exception", "topic", "partition")),
        RECEIPT,
        SOURCE_CLUSTER,
    )
)


@inputs(st.lists(st.tuples(OWN, st.one_of(st.none(), st.binary(max_size=3))), max_size=8))
def test_headers_of_the_record_itself_say_nothing_of_where_it_belongs(own):
    """It may be a letter that was read, or somebody's who wants to choose a topic."""
    place = (("__streams.errors.topic", b"in"), ("__streams.errors.partition", b"2"))
    found = letter(*own, WHY, *place, ("__spark_eos.source.cluster", b"c"))
    assert (found.origin, found.cluster, found.reason) == (("in", 2), "c", "Some")
    assert found.own_headers == own


def test_headers_that_others_add_behind_it_stay():
    """Such as the ids of a trace, by whatever has copied the letter."""
    found = letter(("a", b"1"), WHY, ("__streams.errors.topic", b"in"), ("trace", b"2"))
    assert found.own_headers == [("a", b"1"), ("trace", b"2")]


class Record:
    """As a client gives it, of partition 0."""

    def __init__(
        self,
        offset: int,
        headers: list[tuple[str, bytes | None]],
        value: bytes | None = None,
        key: bytes | None = None,
    ) -> None:
        self.offset, self.headers = lambda: offset, lambda: headers
        self.value, self.key = lambda: value, lambda: key
        self.topic, self.partition, self.timestamp = lambda: "dead", lambda: 0, lambda: (1, 0)


def read(receipt: Receipt, offset: int = 4, *added: tuple[str, bytes | None]) -> Record:
    """The receipt, as it is read again. ``added``: headers by whatever has copied it."""
    record = receipt.record()
    return Record(offset, [*record["headers"], *added], record["value"], record["key"])


def without_headers(record: Record) -> Record:
    """The record, as a program copies it that drops headers."""
    return Record(record.offset(), [], record.value(), record.key())


def sent_in(log: PartitionLog, offset: int) -> Receipt:
    """A receipt for one letter."""
    receipt = Receipt(log)
    receipt.passed(offset, sent=True)
    return receipt


class Reader(_TopicReader):
    """Of partition 0 of `LOG`, which has these records. ``settings``: those of the topics that letters go to."""

    def __init__(self, *records: Record, settings: Mapping[str, str] = MappingProxyType({})) -> None:
        self._letters, self.began_ms, self._ends = DeadLetters(None, "dead"), 1_000_000, {0: 9}
        self._records, self._settings = records, settings

    def log(self, partition: int) -> PartitionLog:
        return replace(LOG, partition=partition)

    def _messages(self) -> Iterator[Record]:
        return iter(self._records)

    def _target(self, name: str) -> _Target:
        return _Target(1, self._settings)


def test_only_a_receipt_says_what_was_sent():
    """A letter whose record had such a header is a letter."""
    forged = [Record(1, [(RECEIPT, b"[[0, 1000000]]"), WHY]), Record(2, [(RECEIPT, b"x"), WHY])]
    made = Reader(*forged, read(sent_in(LOG, 2)), read(sent_in(LOG, 3), 5, ("trace", b"1")))
    assert [letter.offset for letter, _ in made.all()] == [1, 2]
    assert [offset for offset in range(9) if made.sent[0].has(offset)] == [2, 3]


@pytest.mark.parametrize(
    ("record", "named"),
    [
        (read(sent_in(replace(LOG, cluster="away"), 2)), "away"),
        (read(sent_in(replace(LOG, topic="first"), 2)), "first"),
        (read(sent_in(replace(LOG, topic_id="before"), 2)), "before"),
        (read(sent_in(replace(LOG, partition=3), 2)), '"partition": 3'),
        (read(sent_in(replace(LOG, topic_id="before"), 2), 4, ("trace", b"1")), "before"),
        (Record(4, [(RECEIPT, b"[[0, 9]]")]), "it has no key"),
        (Record(4, [(RECEIPT, None)], b"[[0, 9]]", b"{"), "{"),
        (Record(4, [(RECEIPT, None)], b"[[0, 9]]", b"[]"), "[]"),
        (Record(4, [(RECEIPT, None)], b"[", json.dumps(asdict(LOG)).encode()), "dead"),
        *((Record(4, [(RECEIPT, None)], value, json.dumps(asdict(LOG)).encode()), "dead") for value in NO_RANGES),
        (Record(4, [(RECEIPT, None)], b"[]", DEEP), "[["),
        (without_headers(read(sent_in(replace(LOG, topic="first"), 2))), "first"),
        (without_headers(read(sent_in(LOG, 2))), "dead"),
    ],
    ids=[
        *("cluster", "topic", "recreated", "partition", "header added", "none", "no JSON", "no object", "cut"),
        *(*map(str, NO_RANGES), "deep"),
        *("header dropped", "header dropped here"),
    ],
)
def test_a_receipt_of_another_log_is_refused(record, named):
    """Whichever part of its name differs: its offsets are those of other letters."""
    with raises("EOS_LETTER_UNSENDABLE", "offset 4 of dead-0", named):
        _ = Reader(Record(1, [WHY]), record).sent


@pytest.mark.parametrize(
    "key", [None, b"k", b"\xff", b"{", b"{}", b'["cluster"]', json.dumps(asdict(LOG)).encode(), DEEP]
)
def test_a_letter_without_headers_is_a_letter(key):
    """Only a receipt has its key."""
    made = Reader(Record(1, [], b"[[0, 9]]", key))
    assert [letter.key for letter, _ in made.all()] == [key]
    assert not made.sent[0].has(1)


def test_no_two_receipts_of_a_log_have_the_same_key():
    """So that compaction keeps each of them; nor do those of two logs that were copied into one topic."""
    logs = (LOG, replace(LOG, topic="other"), replace(LOG, partition=1))
    keys = [sent_in(log, offset).record()["key"] for log in logs for offset in (1, 2)]
    assert len(set(keys)) == len(keys)


def test_a_letter_is_shown_on_its_own_lines():
    """Whatever its record has: a header must not forge another one, or a letter."""
    shown = letter((HOSTILE, HOSTILE.encode()), WHY, ("__streams.errors.topic", HOSTILE.encode()))
    lines = _as_text(shown.as_json()).split("\n")
    assert all(map(is_plain, lines)) and len(lines) == 3 + len(shown.headers)


#: What queries ignore, and an idempotent producer of librdkafka refuses.
OF_OTHERS = [
    {"acks": "1"},
    {"enable.idempotence": "false"},
    {"retries": "0"},
    {"max.in.flight": "10"},
    {"linger.ms": "400000"},
    {"queuing.strategy": "lifo"},
    {"request.timeout.ms": "120000"},
]


@pytest.mark.parametrize("more", OF_OTHERS)
def test_properties_that_are_for_other_producers(more: dict[str, str]):
    """A file of properties may be shared with them: letters are sent again all the same."""
    kafka = KafkaProperties({"bootstrap.servers": "127.0.0.1:1", **more})
    assert isinstance(_producer(DeadLetters(BrokerClient(kafka), "dead")), Producer)


def test_a_record_that_falls_with_another_one_is_not_the_cause():
    """Whichever of them the client tells of first."""

    class Client:
        def produce(self, topic: str, *, value: int, on_delivery) -> None:
            on_delivery(KafkaError(value), None)

    refused: list[KafkaError] = []
    for code in (KafkaError._PURGE_QUEUE, KafkaError.INVALID_RECORD, KafkaError._PURGE_INFLIGHT):
        _produce(Client(), refused, "t", {"value": code})
    assert [error.code() for error in refused] == [KafkaError.INVALID_RECORD]


def test_a_transaction_ends_at_so_many_bytes():
    """So that large letters, however many, are through before its timeout."""
    half = (8 << 20) - 1  # with its key of one byte
    written: list[int | None] = []
    producer = SimpleNamespace(begin_transaction=lambda: None, commit_transaction=lambda _: None)
    producer.produce = lambda topic, *, value, **_: written.append(len(value)) if topic == "t" else None
    reader = SimpleNamespace(log=lambda _: LOG, check_log=lambda: None)
    waiting = ((replace(letter(), offset=n, value=bytes(half)), "t" if n else None) for n in range(6))
    while _transaction(producer, reader, waiting, back=True):
        written.append(None)
    assert written == [half, half, None, half, half, None, half, None]


@pytest.mark.parametrize(
    ("settings", "time_ms", "says"),
    [
        ({}, 0, "is of 1970-01-01T00:00:00.000Z"),
        ({"message.timestamp.type": "LogAppendTime"}, 0, None),
        ({"retention.ms": "5"}, 5, "retention.ms=5"),
        ({"retention.ms": "5"}, -5, None),
    ],
)
def test_a_letter_of_a_time_that_would_not_stay_is_refused(settings, time_ms, says):
    """The client sends 0 as the time of now; before 1970, brokers go by the time of their file."""
    record = Record(1, [WHY])
    record.timestamp = lambda: (1, time_ms)
    targets = Reader(record, settings=settings).targets("out")
    if says is None:
        assert [target for _, target in targets] == ["out"]
    else:
        with raises("EOS_LETTER_UNSENDABLE.timestamp", "offset 1 of dead-0", says):
            next(targets)


@pytest.mark.parametrize(
    ("time_ms", "told"),
    [(0, "1970-01-01T00:00:00.000Z"), (-1, "1969-12-31T23:59:59.999Z"), (1 << 62, f"{1 << 62} ms"), (-(1 << 60), None)],
)
def test_a_time_that_no_calendar_has_is_told_as_its_number(time_ms, told):
    """A producer may give a record any; a letter with it can be looked at all the same."""
    shown = replace(letter(), time_ms=time_ms).as_json()
    assert shown["time"] == (told or f"{time_ms} ms")
