"""``spark-eos dead-letters``: counts the letters of a dead-letter topic, prints some, and sends them again.

Letters are sent again by transactions of some thousand. Each has the letters' records, and for each partition of the
dead-letter topic that it takes letters from, a receipt in that partition with their offsets. So each letter is sent
once, however often the command runs or is killed: retention removes the oldest records first, compaction keeps a record
whose key no other has, and a receipt outlives its letters. A consumer group's offsets would not, as brokers drop them
after seven days.

A receipt names the log that its offsets are of. In a mirror or a copy of the topic, letters have other offsets, and
nobody can tell by receipts of another log which of them were sent. So the commands stop where they find one.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer
from confluent_kafka import KafkaError as ClientError
from confluent_kafka import TopicPartition as Position

from spark_eos.base.printable import excerpt, in_lines
from spark_eos.base.whole_numbers import whole_number
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.configs import topic_config
from spark_eos.kafka.admin.retention import unfit_setting
from spark_eos.kafka.admin.topics import begin_offsets, cluster_id, describe_topics, end_offsets
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.letter_headers import (
    EXCEPTION,
    PREFIXES,
    SOURCE_CLUSTER,
    SOURCE_PARTITION,
    SOURCE_TOPIC,
    TARGET_PARTITION,
    TARGET_TOPIC,
)
from spark_eos.kafka.messages import headers_of, offset_of, place_of
from spark_eos.kafka.net.client import broker_client
from spark_eos.ledger.own_topics import check_for_rows
from spark_eos.ops.answer import Answer, table, utc

#: Prefix of the transactional id with which letters of a topic are sent again.
_ID = "spark-eos-dead-letters"
#: The header of a receipt, which has JSON as its key and value: its log with the first offset, and ranges of offsets,
#: each as first and last + 1.
RECEIPT = "__spark_eos.resent"
#: The most letters in a transaction.
_AT_ONCE = 5000
#: Seconds without progress after which the command fails.
_SILENCE_S = 30.0
#: The client waits so long for a whole batch of records, also where the end of the partition is all that is left.
_LOOK_S = 0.05
#: Bytes of a key, value or header that are printed.
_SHOWN = 200

_READING = {
    "group.id": _ID,  # which it never joins
    "isolation.level": "read_committed",
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    "check.crcs": "true",
    "fetch.wait.max.ms": "20",  # by default, the end of each partition takes a second
}
_WRITING = {
    "message.max.bytes": "1000000000",  # what is too large is for the topic to say
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": "60000",
    "delivery.timeout.ms": "45000",
}


@dataclass(frozen=True)
class Letter:
    """A record of a dead-letter topic: a row that brokers refused, or input that did not parse or was rejected.

    ``headers``: all of them, in order; ``time_ms``: its timestamp, in milliseconds."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_ms: int

    @classmethod
    def of(cls, message: Message) -> Letter:
        (_, partition), headers = place_of(message), tuple(headers_of(message))
        return cls(partition, offset_of(message), message.key(), message.value(), headers, message.timestamp()[1])

    @cached_property
    def _own(self) -> int:
        """The number of headers before those that make it a letter. They are the record's own, whatever their names: it
        may be a letter that was read, or somebody's who wants to choose where it is sent."""
        names = [name for name, _ in self.headers]
        return len(names) - names[::-1].index(EXCEPTION) - 1 if EXCEPTION in names else len(names)

    @cached_property
    def _why(self) -> dict[str, str]:
        """The headers that make it a letter, by name."""
        return {name: value.decode(errors="replace") for name, value in self.headers[self._own :] if value is not None}

    @property
    def reason(self) -> str:
        """The exception's name without its package, such as RecordTooLargeException."""
        return self._why.get(EXCEPTION, "unknown").rpartition(".")[2]

    @property
    def origin(self) -> tuple[str, int | None] | None:
        """Topic and partition to which the record belongs: where a broker refused it, or where it was read."""
        for names in ((TARGET_TOPIC, TARGET_PARTITION), (SOURCE_TOPIC, SOURCE_PARTITION)):
            topic, partition = map(self._why.get, names)
            if topic:
                return topic, whole_number(partition or "")
        return None

    @property
    def cluster(self) -> str | None:
        """The id of the cluster that the record was read from; None where it is not known, or a broker refused it."""
        return None if TARGET_TOPIC in self._why else self._why.get(SOURCE_CLUSTER) or None

    @property
    def own_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers that the record had before it was a letter, and those that others have added behind it."""
        added = [header for header in self.headers[self._own :] if not header[0].startswith(PREFIXES)]
        return [*self.headers[: self._own], *added]


@dataclass(frozen=True)
class Letters:
    """The letters of a topic, or those with one ``reason``."""

    kafka: KafkaProperties
    topic: str
    reason: str | None = None

    def has(self, letter: Letter) -> bool:
        return self.reason is None or letter.reason == self.reason


class Sent:
    """The offsets of a partition whose letters were sent again."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._bounds = sorted(ranges)
        self._ends: list[int] = []
        for _, end in self._bounds:
            self._ends.append(max(end, self._ends[-1] if self._ends else end))

    def has(self, offset: int) -> bool:
        before = bisect_right(self._bounds, (offset, 1 << 63))
        return before > 0 and offset < self._ends[before - 1]


@dataclass(frozen=True)
class LetterLog:
    """The log of a partition: that of a mirror, of a copy, or of a topic that was created again is another one, with
    other letters at its offsets."""

    cluster: str
    topic: str
    topic_id: str
    partition: int


class Receipt:
    """The letters of a partition that one transaction sends, as ranges of offsets. Adjacent letters are in one range,
    whatever records are between them."""

    def __init__(self, log: LetterLog) -> None:
        self.log = log
        self.ranges: list[tuple[int, int]] = []
        self._in_a_row = False

    def passed(self, offset: int, *, sent: bool) -> None:
        """Add the next letter of the partition. ``sent``: whether the transaction sends it."""
        if sent and self._in_a_row:
            self.ranges[-1] = self.ranges[-1][0], offset + 1
        elif sent:
            self.ranges.append((offset, offset + 1))
        self._in_a_row = sent

    def record(self) -> dict[str, Any]:
        """The arguments of `Producer.produce`. No other record has its key, so that compaction keeps it."""
        key = {**asdict(self.log), "offset": self.ranges[0][0]}
        return {
            "partition": self.log.partition,
            "key": json.dumps(key).encode(),
            "value": json.dumps(self.ranges).encode(),
            "headers": [(RECEIPT, None)],
        }


def ranges_in(receipt: Message, log: LetterLog) -> list[tuple[int, int]]:
    """The ranges of offsets in a receipt that was read from ``log``. Raises CommandError where it names another one, or
    none, or has lost its header, as a copy has."""
    named, ranges = _json(receipt.key()), _json(receipt.value() or b"[]")
    is_ours = isinstance(named, dict) and asdict(log).items() <= named.items() and isinstance(ranges, list)
    if not is_ours or RECEIPT not in dict(headers_of(receipt)):
        place = f"offset {offset_of(receipt)} of {log.topic}-{log.partition}"
        found = excerpt(receipt.key() or b"it has no key")
        raise stop("EOS_LETTER_UNSENDABLE.other_log", place=place, topic=log.topic, log=found)
    return [(first, end) for first, end in ranges]


def _json(text: bytes | None) -> Any:  # noqa: ANN401  # whatever it is
    """The value of a text in JSON; None for another one."""
    try:
        return json.loads(text or b"null")
    except (ValueError, RecursionError):
        return None


def list_letters(letters: Letters) -> Answer:
    """Count the letters by reason and topic, and those of them that were sent again. Raises EosError."""
    found: dict[tuple[str, str], list[int]] = {}
    with closing(_Reader(letters)) as reader:
        sent = reader.sent()
        for letter in filter(letters.has, reader.letters()):
            row = found.setdefault((letter.reason, _topic_of(letter)), [0, 0, letter.time_ms, letter.time_ms])
            row[0] += 1
            row[1] += sent[letter.partition].has(letter.offset)
            row[2:] = min(row[2], letter.time_ms), max(row[3], letter.time_ms)
    rows = [
        {
            "reason": reason,
            "topic": topic,
            "letters": n,
            "sent_again": again,
            "first": utc(first),
            "last": utc(last),
        }
        for (reason, topic), (n, again, first, last) in sorted(found.items())
    ]
    heading = ["reason", "topic", "letters", "sent again", "first", "last"]
    lines = table([heading, *([str(cell) for cell in row.values()] for row in rows)])
    return Answer(rows, in_lines(lines) if rows else f"There are no letters in {letters.topic}.")


def show_letters(letters: Letters, limit: int) -> Answer:
    """Print up to ``limit`` letters that were not sent again, the oldest of each partition first. Raises EosError."""
    shown: list[Letter] = []
    with closing(_Reader(letters)) as reader:
        sent = reader.sent()
        for letter in filter(letters.has, reader.letters()):
            if len(shown) == limit:
                break
            if not sent[letter.partition].has(letter.offset):
                shown.append(letter)
    rows = [_as_json(letter) for letter in shown]
    return Answer(rows, "\n\n".join(map(_as_text, rows)) or f"There are no such letters in {letters.topic}.")


def resend_letters(letters: Letters, to: str | None, *, yes: bool) -> Answer:
    """Send the letters that were not sent again: to the topic ``to``, or each to the topic where it belongs. Without
    ``yes``, only count them. Raises EosError; letters that were sent before stay sent, and the next run sends the
    rest."""
    if to == letters.topic:
        raise stop("EOS_LETTER_UNSENDABLE.itself", topic=letters.topic)
    if yes:
        counts = _sent_again(letters, to)
    else:
        with closing(_Reader(letters)) as reader:
            counts = _planned(letters, reader, reader.sent(), to)
    total, verb = counts.total(), "Sent" if yes else "Would send"
    rows = [{"topic": topic, "letters": count} for topic, count in sorted(counts.items())]
    lines = [f"{verb} {total:,} letter(s) of {letters.topic}{':' if total else '.'}"]
    lines += [f"  {row['letters']:,} to {row['topic']}" for row in rows]
    if total and not yes:
        lines.append("Nothing was sent. Add --yes to send them.")
    return Answer({"done": yes, "letters": rows}, in_lines(lines))


def _planned(letters: Letters, reader: _Reader, sent: dict[int, Sent], to: str | None) -> Counter[str]:
    """How many letters are to be sent to each topic. Raises what `_targets` raises."""
    return Counter(target for _, target in _targets(letters, reader, sent, to) if target is not None)


def _sent_again(letters: Letters, to: str | None) -> Counter[str]:
    """Send the letters of `_targets`, when all of them can be sent; return how many went to each topic."""
    ours = {**_WRITING, "transactional.id": f"{_ID}-{letters.topic}"}
    counts: Counter[str] = Counter()
    try:
        producer = Producer(librdkafka_config(letters.kafka, "producer", ours=ours))
        producer.init_transactions(_SILENCE_S)  # fences another run, which can add no receipt from now on
        with closing(_Reader(letters)) as reader:
            sent = reader.sent()
            _planned(letters, reader, sent, to)
            waiting = _targets(letters, reader, sent, to)
            while some := _transaction(letters, producer, reader, waiting, to):
                counts += some
    except KafkaException as error:
        raise _failed(letters, error) from None
    return counts


def _transaction(
    letters: Letters,
    producer: Producer,
    reader: _Reader,
    waiting: Iterator[tuple[Letter, str | None]],
    to: str | None,
) -> Counter[str]:
    """Send the next letters by one transaction, if there are any; return how many went to each topic."""
    receipts: dict[int, Receipt] = {}
    counts: Counter[str] = Counter()
    refused: list[ClientError] = []
    try:
        for letter, target in waiting:
            receipt = receipts.setdefault(letter.partition, Receipt(reader.log(letter.partition)))
            receipt.passed(letter.offset, sent=target is not None)
            if target is not None:
                if not counts:
                    producer.begin_transaction()
                counts[target] += 1
                _produce(producer, refused, target, _record_of(letter, back=to is None))
            if counts.total() == _AT_ONCE:
                break
        if counts:
            for receipt in receipts.values():
                _produce_receipt(producer, refused, receipt)
            reader.check_log()
            producer.commit_transaction(_SILENCE_S)
    except (KafkaException, EosError) as error:
        if counts:
            _abort(producer)
        if refused and isinstance(error, KafkaException):
            raise KafkaException(refused[0]) from None  # the cause of the client's later errors
        raise
    return counts


def _produce_receipt(producer: Producer, refused: list[ClientError], receipt: Receipt) -> None:
    if receipt.ranges:
        _produce(producer, refused, receipt.log.topic, receipt.record())


def _abort(producer: Producer) -> None:
    """Abort the transaction, if possible: a fenced producer cannot, and otherwise the next run's producer fences it."""
    try:
        producer.abort_transaction(_SILENCE_S)
    except KafkaException:
        return


def _record_of(letter: Letter, *, back: bool) -> dict[str, Any]:
    """The arguments of `Producer.produce` for the letter's original record. ``back``: to its original partition, else
    to the partition of its key."""
    record = {"value": letter.value, "key": letter.key, "headers": letter.own_headers, "timestamp": letter.time_ms}
    origin = letter.origin
    if back and origin is not None and origin[1] is not None:
        record["partition"] = origin[1]
    return record


#: Errors of records that fall with another one of their transaction.
_PURGED = (ClientError._PURGE_QUEUE, ClientError._PURGE_INFLIGHT)


def _produce(producer: Producer, refused: list[ClientError], topic: str, record: dict[str, Any]) -> None:
    def delivered(error: ClientError | None, _: Message) -> None:
        if error is not None and error.code() not in _PURGED:
            refused.append(error)

    while True:
        try:
            return producer.produce(topic, **record, on_delivery=delivered)
        except BufferError:
            producer.poll(1.0)


def _targets(
    letters: Letters, reader: _Reader, sent: dict[int, Sent], to: str | None
) -> Iterator[tuple[Letter, str | None]]:
    """Every letter, and the topic to send it to: None if it was sent before, or is not among ``letters``. Raises
    CommandError for a letter that cannot be sent where it belongs, or that would not stay there, and TopicError for a
    topic that is not there, or is not for rows."""
    for letter in reader.letters():
        if sent[letter.partition].has(letter.offset) or not letters.has(letter):
            yield letter, None
            continue
        place = f"offset {letter.offset} of {letters.topic}-{letter.partition}"
        target, partition = (to, None) if to is not None else letter.origin or (None, None)
        if target is None or target == letters.topic:
            raise stop("EOS_LETTER_UNSENDABLE.to", place=place, problem="does not say which topic it belongs to")
        if to is None and letter.cluster not in (None, reader.cluster):
            raise stop("EOS_LETTER_UNSENDABLE.cluster", place=place, topic=target, cluster=letter.cluster)
        into = reader.target(target)
        if partition is not None and partition >= into.partitions:
            raise stop(
                "EOS_LETTER_UNSENDABLE.to",
                place=place,
                topic=target,
                partition=partition,
                problem=f"belongs to partition {partition} of {target}, which is not there any more",
            )
        unfit = unfit_setting(into.settings, letter.time_ms, reader.began_ms)
        if unfit is not None:
            fields = {"time": utc(letter.time_ms), "setting": unfit, "value": into.settings[unfit]}
            raise stop("EOS_LETTER_UNSENDABLE.timestamp", place=place, topic=target, **fields)
        yield letter, target


def _failed(letters: Letters, error: KafkaException) -> EosError:
    cause = error.args[0]
    return stop("EOS_LETTERS_FAILED.brokers", topic=letters.topic, error_name=cause.name(), error=cause.str())


@dataclass(frozen=True)
class _Target:
    """A topic that letters go to."""

    partitions: int
    settings: dict[str, str]


class _Reader:
    """A consumer of a topic up to its end at the time when the reader is made, ``began_ms``. Close it. Raises
    TopicError, CommandError."""

    def __init__(self, letters: Letters) -> None:
        self._letters, self._targets = letters, dict[str, _Target]()
        self.began_ms = int(time.time() * 1000)
        topic, client = letters.topic, broker_client(letters.kafka)
        client.reach()
        self._client, self.cluster = client, cluster_id(client)
        self._topic = describe_topics(client, [topic])[topic]
        partitions = {topic: range(self._topic.partitions)}
        #: High watermarks: receipts may be in transactions that are still open.
        self._ends = end_offsets(client, partitions, "read_uncommitted")[topic]
        self._begins = begin_offsets(client, partitions)[topic]
        self._consumer = Consumer(librdkafka_config(letters.kafka, "consumer", ours=_READING))

    def close(self) -> None:
        self._consumer.close()

    def log(self, partition: int) -> LetterLog:
        """The log of a partition."""
        return LetterLog(self.cluster, self._letters.topic, self._topic.id, partition)

    def check_log(self) -> None:
        """Raise CommandError where the topic is another one than when the reader was made."""
        topic = self._letters.topic
        now = describe_topics(self._client, [topic], missing_ok=True).get(topic)
        if now is None or now.id != self._topic.id:
            raise stop(
                "EOS_LETTERS_FAILED.again",
                why=f"{topic} was deleted or recreated meanwhile; nothing of the open transaction is visible",
            )

    def target(self, name: str) -> _Target:
        """A topic that letters go to, as it was at the first call. Raises TopicError where it is not there, or is not
        for rows."""
        if name not in self._targets:
            topics = describe_topics(self._client, [name])
            check_for_rows(self._client, topics)
            self._targets[name] = _Target(topics[name].partitions, topic_config(self._client, name))
        return self._targets[name]

    def sent(self) -> dict[int, Sent]:
        """The letters of each partition that were sent again, by their receipts. Raises CommandError for a receipt of
        another log."""
        ranges: dict[int, list[tuple[int, int]]] = {partition: [] for partition in self._ends}
        for message in self._messages():
            if _is_receipt(message):
                partition = place_of(message)[1]
                ranges[partition] += ranges_in(message, self.log(partition))
        return {partition: Sent(mine) for partition, mine in ranges.items()}

    def letters(self) -> Iterator[Letter]:
        """Every letter, partition by partition, in order of offsets."""
        return (Letter.of(message) for message in self._messages() if not _is_receipt(message))

    def _messages(self) -> Iterator[Message]:
        for partition, end in sorted(self._ends.items()):
            if self._begins[partition] < end:
                self._consumer.assign([Position(self._letters.topic, partition, self._begins[partition])])
                yield from self._up_to(partition, end)

    def _up_to(self, partition: int, end: int) -> Iterator[Message]:
        """The committed records before ``end``. Waits for open transactions before it, as receipts may follow them."""
        heard = time.monotonic()
        while True:
            for message in self._consumer.consume(500, _LOOK_S):
                error = message.error()
                if error is not None and error.code() != ClientError._PARTITION_EOF:
                    if not error.retriable():
                        raise _failed(self._letters, KafkaException(error))
                    continue
                if offset_of(message) >= end:
                    return  # also the end of the partition
                if error is None:
                    heard = time.monotonic()
                    yield message
            if time.monotonic() - heard > _SILENCE_S:
                where = f"{self._letters.topic}-{partition}"
                raise stop(
                    "EOS_LETTERS_FAILED.again",
                    why=(
                        f"nothing more of {where} can be read before offset {end} for {int(_SILENCE_S)} s. A "
                        "transaction is open there ('spark-eos status' says whose), which may hide what was sent"
                    ),
                )


def _is_receipt(message: Message) -> bool:
    """Whether the record is no letter, which says why it is one, whatever headers its record had. Programs that copy
    records may add headers to them, or drop all: then the key tells."""
    names = {name for name, _ in headers_of(message)}
    return EXCEPTION not in names and (RECEIPT in names or _is_key_of_receipt(message.key()))


def _is_key_of_receipt(key: bytes | None) -> bool:
    named = _json(key)
    return isinstance(named, dict) and named.keys() == {"offset", *(field.name for field in fields(LetterLog))}


def _topic_of(letter: Letter) -> str:
    return letter.origin[0] if letter.origin else "unknown"


def _text(value: bytes | None) -> str | None:
    """A value as printable text, shortened."""
    return None if value is None else excerpt(value, _SHOWN)


def _as_json(letter: Letter) -> dict[str, Any]:
    return {
        "partition": letter.partition,
        "offset": letter.offset,
        "time": utc(letter.time_ms),
        "reason": letter.reason,
        "topic": _topic_of(letter),
        "key": _text(letter.key),
        "value": _text(letter.value),
        "headers": [[name, _text(value)] for name, value in letter.headers],
    }


def _as_text(row: dict[str, Any]) -> str:
    head = f"partition {row['partition']}, offset {row['offset']}, {row['time']}: {row['reason']}, topic {row['topic']}"
    fields = [*((name, row[name]) for name in ("key", "value")), *row["headers"]]
    return in_lines([head, *(f"  {name}: {value}" for name, value in fields)])
