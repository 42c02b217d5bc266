"""``spark-eos dead-letters``: counts the records of a dead-letter topic, prints some, and sends them again.

Dead letters are sent again by transactions of up to some thousand. Each transaction writes the records, and for each
partition of the dead-letter topic that it takes some from, a receipt in that partition with their offsets. So each is
sent once, however often the command runs or is killed: retention removes the oldest records first, compaction keeps a
record whose key no other has, and a receipt outlives its dead letters. A consumer group's offsets would not, as brokers
drop them after seven days.

A receipt names the log that its offsets are of. In a mirror or a copy of the topic, dead letters have other offsets,
and by receipts of another log nobody can tell which of them were sent. So the commands stop where they find one.
"""

from __future__ import annotations

import json
import time
from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from itertools import accumulate, islice
from operator import attrgetter
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
from spark_eos.kafka.config.librdkafka import IDEMPOTENT, librdkafka_config
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
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.ledger.own_topics import check_for_rows
from spark_eos.ops.answer import Answer, table, utc

#: Prefix of the transactional id with which dead letters of a topic are sent again.
_ID = "spark-eos-dead-letters"
#: The header of a receipt, which has JSON as its key and value: its log with the first offset, and ranges of offsets,
#: each as first and last + 1.
RECEIPT = "__spark_eos.resent"
#: The most dead letters in a transaction.
_AT_ONCE = 5000
#: Bytes of keys and values with which a transaction ends: they get through within its timeout at 300 kB/s.
_BYTES_AT_ONCE = 16 << 20
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
    **IDEMPOTENT,
    "message.max.bytes": "1000000000",  # the topic has the limit
    "partitioner": "murmur2_random",
    "transaction.timeout.ms": "60000",
    "delivery.timeout.ms": "45000",
}


@dataclass(frozen=True)
class DeadLetter:
    """A record of a dead-letter topic: a row that brokers refused, or input that did not parse or was rejected.

    ``headers``: all of them, in order; ``time_ms``: its timestamp, in milliseconds."""

    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    time_ms: int

    @classmethod
    def read(cls, message: Message) -> DeadLetter:
        (_, partition), headers = place_of(message), tuple(headers_of(message))
        return cls(partition, offset_of(message), message.key(), message.value(), headers, message.timestamp()[1])

    @cached_property
    def _own(self) -> int:
        """The number of the record's own headers, before the headers of a dead letter. They cannot be told by their
        names: the record may have been a dead letter before, or its producer may try to choose where it is sent."""
        names = [name for name, _ in self.headers]
        return len(names) - names[::-1].index(EXCEPTION) - 1 if EXCEPTION in names else len(names)

    @cached_property
    def _why(self) -> dict[str, str]:
        """The headers that make it a dead letter, by name."""
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
    def topic(self) -> str:
        """The topic to which the record belongs, as text."""
        return self.origin[0] if self.origin else "unknown"

    @property
    def cluster(self) -> str | None:
        """The id of the cluster that the record was read from; None where it is not known, or a broker refused it."""
        return None if TARGET_TOPIC in self._why else self._why.get(SOURCE_CLUSTER) or None

    @property
    def own_headers(self) -> list[tuple[str, bytes | None]]:
        """The headers that the record had before it was a dead letter, and any that others have added behind it."""
        added = [header for header in self.headers[self._own :] if not header[0].startswith(PREFIXES)]
        return [*self.headers[: self._own], *added]

    def record(self, *, back: bool) -> dict[str, Any]:
        """Return the arguments of `Producer.produce` for the original record. ``back``: to its original partition, else
        to the partition of its key."""
        record = {"value": self.value, "key": self.key, "headers": self.own_headers, "timestamp": self.time_ms}
        partition = self.origin[1] if back and self.origin else None
        return record if partition is None else record | {"partition": partition}

    def as_json(self) -> dict[str, Any]:
        def text(value: bytes | None) -> str | None:
            return None if value is None else excerpt(value, _SHOWN)

        return {
            "partition": self.partition,
            "offset": self.offset,
            "time": utc(self.time_ms),
            "reason": self.reason,
            "topic": self.topic,
            "key": text(self.key),
            "value": text(self.value),
            "headers": [[name, text(value)] for name, value in self.headers],
        }


def _as_text(row: dict[str, Any]) -> str:
    head = f"partition {row['partition']}, offset {row['offset']}, {row['time']}: {row['reason']}, topic {row['topic']}"
    fields = [*((name, row[name]) for name in ("key", "value")), *row["headers"]]
    return in_lines([head, *(f"  {name}: {value}" for name, value in fields)])


class SentOffsets:
    """The offsets of a partition whose dead letters were sent again."""

    def __init__(self, ranges: Iterable[tuple[int, int]] = ()) -> None:
        self._bounds = sorted(ranges)
        self._ends = list(accumulate((end for _, end in self._bounds), max))

    def has(self, offset: int) -> bool:
        before = bisect_right(self._bounds, (offset, 1 << 63))
        return before > 0 and offset < self._ends[before - 1]


@dataclass(frozen=True)
class PartitionLog:
    """The log of a partition. A mirror, a copy, or a topic that was created again has another log, with other records
    at its offsets."""

    cluster: str
    topic: str
    topic_id: str
    partition: int


class Receipt:
    """The dead letters of a partition that one transaction sends, as ranges of offsets. Consecutive ones are in one
    range, even if other records are between them."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.ranges: list[tuple[int, int]] = []
        self._in_a_row = False

    def passed(self, offset: int, *, sent: bool) -> None:
        """Add the next dead letter of the partition. ``sent``: whether the transaction sends it."""
        if sent and self._in_a_row:
            self.ranges[-1] = self.ranges[-1][0], offset + 1
        elif sent:
            self.ranges.append((offset, offset + 1))
        self._in_a_row = sent

    def record(self) -> dict[str, Any]:
        """Return the arguments of `Producer.produce`. No other record has its key, so that compaction keeps it."""
        key = {**asdict(self.log), "offset": self.ranges[0][0]}
        return {
            "partition": self.log.partition,
            "key": json.dumps(key).encode(),
            "value": json.dumps(self.ranges).encode(),
            "headers": [(RECEIPT, None)],
        }


def ranges_in(receipt: Message, log: PartitionLog) -> list[tuple[int, int]]:
    """Return the ranges of offsets in a receipt that was read from ``log``. Raises CommandError where it names another
    one, or none, or has lost its header, as a copy has, or has no ranges."""
    named, ranges = _json(receipt.key()), _json(receipt.value())
    is_ours = isinstance(named, dict) and asdict(log).items() <= named.items() and isinstance(ranges, list) and ranges
    is_whole = is_ours and all(isinstance(pair, list) and [*map(type, pair)] == [int, int] for pair in ranges)
    if not is_whole or RECEIPT not in dict(headers_of(receipt)):
        place = f"offset {offset_of(receipt)} of {log.topic}-{log.partition}"
        named = excerpt(receipt.key() or b"it has no key")
        raise stop("EOS_LETTER_UNSENDABLE.other_log", place=place, topic=log.topic, log=named)
    return [(first, end) for first, end in ranges]


def _is_receipt(message: Message) -> bool:
    """Return whether a record is a receipt. A record with the header of a reason is a dead letter, even if it has other
    headers. Programs that copy records may add headers to a receipt, or drop all: then its key tells."""
    names = {name for name, _ in headers_of(message)}
    if EXCEPTION in names or RECEIPT in names:
        return EXCEPTION not in names
    named = _json(message.key())
    return isinstance(named, dict) and named.keys() == {"offset", *(field.name for field in fields(PartitionLog))}


def _json(text: bytes | None) -> Any:  # noqa: ANN401  # JSON of any type
    """Return the value of a text in JSON; None for another text."""
    try:
        return json.loads(text or b"null")
    except (ValueError, RecursionError):
        return None


@dataclass(frozen=True)
class DeadLetters:
    """The dead letters of a topic, all or with one ``reason``. Every method raises EosError."""

    client: BrokerClient
    topic: str
    reason: str | None = None

    def has(self, letter: DeadLetter) -> bool:
        """Return whether it has the requested reason."""
        return self.reason in (None, letter.reason)

    def count(self) -> Answer:
        """Count dead letters by reason and topic, and how many of them were sent again."""
        counts: dict[tuple[str, str], list[int]] = {}
        with closing(_TopicReader(self)) as reader:
            for letter, was_sent in reader.letters():
                row = counts.setdefault((letter.reason, letter.topic), [0, 0, letter.time_ms, letter.time_ms])
                row[0] += 1
                row[1] += was_sent
                row[2:] = min(row[2], letter.time_ms), max(row[3], letter.time_ms)
        names = ("reason", "topic", "letters", "sent_again", "first", "last")
        rows = [
            dict(zip(names, (reason, topic, n, again, utc(first), utc(last)), strict=True))
            for (reason, topic), (n, again, first, last) in sorted(counts.items())
        ]
        heading = [name.replace("_", " ") for name in names]
        lines = table([heading, *([str(cell) for cell in row.values()] for row in rows)])
        return Answer(rows, in_lines(lines) if rows else f"There are no letters in {self.topic}.")

    def show(self, limit: int) -> Answer:
        """Print up to ``limit`` that were not sent again, the oldest of each partition first."""
        with closing(_TopicReader(self)) as reader:
            unsent = (letter.as_json() for letter, was_sent in reader.letters() if not was_sent)
            rows = list(islice(unsent, limit))
        return Answer(rows, "\n\n".join(map(_as_text, rows)) or f"There are no such letters in {self.topic}.")

    def resend(self, to: str | None, *, yes: bool) -> Answer:
        """Send dead letters that were not sent again: to the topic ``to``, or each to the topic where it belongs.
        Without ``yes``, only count them. After an error, the next run sends the rest."""
        if to == self.topic:
            raise stop("EOS_LETTER_UNSENDABLE.itself", topic=self.topic)
        if yes:
            counts = _resent(self, to)
        else:
            with closing(_TopicReader(self)) as reader:
                counts = reader.planned(to)
        total, verb = counts.total(), "Sent" if yes else "Would send"
        rows = [{"topic": topic, "letters": count} for topic, count in sorted(counts.items())]
        lines = [f"{verb} {total:,} letter(s) of {self.topic}{':' if total else '.'}"]
        lines += [f"  {row['letters']:,} to {row['topic']}" for row in rows]
        if total and not yes:
            lines.append("Nothing was sent. Add --yes to send them.")
        return Answer({"done": yes, "letters": rows}, in_lines(lines))


def _resent(letters: DeadLetters, to: str | None) -> Counter[str]:
    """Send the dead letters, when all of them can be sent; return how many went to each topic."""
    counts: Counter[str] = Counter()
    try:
        producer = _producer(letters)
        producer.init_transactions(_SILENCE_S)  # fences another run, which can add no receipt from now on
        with closing(_TopicReader(letters)) as reader:
            reader.planned(to)
            waiting = reader.targets(to)
            while some := _transaction(producer, reader, waiting, back=to is None):
                counts += some
    except KafkaException as error:
        raise _failed(letters.topic, error.args[0]) from None
    return counts


def _producer(letters: DeadLetters) -> Producer:
    ours = {**_WRITING, "transactional.id": f"{_ID}-{letters.topic}"}
    # The client takes no longer timeout than the transaction's.
    ours["socket.timeout.ms"] = str(int(1000 * letters.client.silence_s))
    return Producer(librdkafka_config(letters.client.properties, "producer", ours=ours))


def _transaction(
    producer: Producer, reader: _TopicReader, waiting: Iterator[tuple[DeadLetter, str | None]], *, back: bool
) -> Counter[str]:
    """Send the next dead letters by one transaction, if there are any; return how many went to each topic."""
    receipts: dict[int, Receipt] = {}
    counts: Counter[str] = Counter()
    size = 0
    refused: list[ClientError] = []
    try:
        for letter, target in waiting:
            receipt = receipts.setdefault(letter.partition, Receipt(reader.log(letter.partition)))
            receipt.passed(letter.offset, sent=target is not None)
            if target is not None:
                if not counts:
                    producer.begin_transaction()
                counts[target] += 1
                size += len(letter.key or b"") + len(letter.value or b"")
                _produce(producer, refused, target, letter.record(back=back))
            if counts.total() == _AT_ONCE or size >= _BYTES_AT_ONCE:
                break
        if counts:
            for receipt in filter(attrgetter("ranges"), receipts.values()):
                _produce(producer, refused, receipt.log.topic, receipt.record())
            reader.check_log()
            producer.commit_transaction(_SILENCE_S)
    except (KafkaException, EosError) as error:
        if counts:
            with suppress(KafkaException):  # a fenced producer cannot; otherwise the next run's producer fences it
                producer.abort_transaction(_SILENCE_S)
        if refused and isinstance(error, KafkaException):
            raise KafkaException(refused[0]) from None  # the cause of the client's later errors
        raise
    return counts


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


def _failed(topic: str, error: ClientError) -> EosError:
    return stop("EOS_LETTERS_FAILED.brokers", topic=topic, error_name=error.name(), error=error.str())


@dataclass(frozen=True)
class _Target:
    """A topic that dead letters are sent to."""

    partitions: int
    settings: dict[str, str]


class _TopicReader:
    """A consumer of a topic up to its end at the time when the reader is made, ``began_ms``. Close it. Raises
    TopicError, CommandError."""

    def __init__(self, letters: DeadLetters) -> None:
        self._letters, self._targets = letters, dict[str, _Target]()
        self.began_ms = int(time.time() * 1000)
        topic, client = letters.topic, letters.client
        client.reach()
        self.cluster = cluster_id(client)
        self._topic = describe_topics(client, [topic])[topic]
        partitions = {topic: range(self._topic.partitions)}
        #: High watermarks: receipts may be in transactions that are still open.
        self._ends = end_offsets(client, partitions, "read_uncommitted")[topic]
        self._begins = begin_offsets(client, partitions)[topic]
        self._consumer = Consumer(librdkafka_config(client.properties, "consumer", ours=_READING))

    def close(self) -> None:
        self._consumer.close()

    def log(self, partition: int) -> PartitionLog:
        """Return the log of a partition."""
        return PartitionLog(self.cluster, self._letters.topic, self._topic.id, partition)

    def check_log(self) -> None:
        """Raise CommandError where the topic is another one than when the reader was made."""
        topic = self._letters.topic
        now = describe_topics(self._letters.client, [topic], missing_ok=True).get(topic)
        if now is None or now.id != self._topic.id:
            why = f"{topic} was deleted or recreated meanwhile; nothing of the open transaction is visible"
            raise stop("EOS_LETTERS_FAILED.again", why=why)

    @cached_property
    def sent(self) -> dict[int, SentOffsets]:
        """The dead letters of each partition that were sent again, by their receipts. Raises CommandError for a receipt
        of another log."""
        ranges: dict[int, list[tuple[int, int]]] = {partition: [] for partition in self._ends}
        for message in filter(_is_receipt, self._messages()):
            partition = place_of(message)[1]
            ranges[partition] += ranges_in(message, self.log(partition))
        return {partition: SentOffsets(mine) for partition, mine in ranges.items()}

    def all(self) -> Iterator[tuple[DeadLetter, bool]]:
        """Yield every dead letter, and whether it was sent again, partition by partition, in order of offsets. Only one
        such iterator may be in use, as there is one consumer, which reads all receipts first."""
        sent = self.sent
        for message in self._messages():
            if not _is_receipt(message):
                letter = DeadLetter.read(message)
                yield letter, sent[letter.partition].has(letter.offset)

    def letters(self) -> Iterator[tuple[DeadLetter, bool]]:
        """Yield dead letters like `all`, but only with the requested reason."""
        return ((letter, was_sent) for letter, was_sent in self.all() if self._letters.has(letter))

    def planned(self, to: str | None) -> Counter[str]:
        """Count the dead letters to send to each topic. Raises as `targets`."""
        return Counter(target for _, target in self.targets(to) if target is not None)

    def targets(self, to: str | None) -> Iterator[tuple[DeadLetter, str | None]]:
        """Yield every dead letter, and the topic to send it to: None if it was sent before, or has another reason than
        the one asked for. Raises CommandError for one that cannot be sent where it belongs, or that would not stay
        there, and TopicError for a topic that is not there, or is not for rows."""
        topic = self._letters.topic
        for letter, was_sent in self.all():
            if was_sent or not self._letters.has(letter):
                yield letter, None
                continue
            place = f"offset {letter.offset} of {topic}-{letter.partition}"
            target, partition = (to, None) if to is not None else letter.origin or (None, None)
            if target is None or target == topic:
                raise stop("EOS_LETTER_UNSENDABLE.to", place=place, problem="does not say which topic it belongs to")
            if to is None and letter.cluster not in (None, self.cluster):
                raise stop("EOS_LETTER_UNSENDABLE.cluster", place=place, topic=target, cluster=letter.cluster)
            into = self._target(target)
            if partition is not None and partition >= into.partitions:
                problem = f"belongs to partition {partition} of {target}, which is not there any more"
                where = {"topic": target, "partition": partition}
                raise stop("EOS_LETTER_UNSENDABLE.to", place=place, problem=problem, **where)
            why, or_raise = self._unfit(into, letter, target)
            if why:
                values = {"topic": target, "time": utc(letter.time_ms), "why": why, "or_raise": or_raise}
                raise stop("EOS_LETTER_UNSENDABLE.timestamp", place=place, **values)
            yield letter, target

    def _unfit(self, into: _Target, letter: DeadLetter, target: str) -> tuple[str, str]:
        """Return why a dead letter's timestamp cannot stay in its topic, and how a setting helps; two empty texts if it
        can."""
        if letter.time_ms == 0 and into.settings.get("message.timestamp.type") != "LogAppendTime":
            return f"the client would send it to {target} with the time of now", ""
        setting = unfit_setting(into.settings, letter.time_ms, self.began_ms)
        if setting is None:
            return "", ""
        why = f"{target} has {setting}={into.settings[setting]}: it would refuse the record, or delete it at once"
        return why, f", or raise its {setting}"

    def _target(self, name: str) -> _Target:
        """Return a topic that dead letters are sent to, as it was at the first call. Raises TopicError where it is not
        there, or is not for rows."""
        if name not in self._targets:
            client = self._letters.client
            topics = describe_topics(client, [name])
            check_for_rows(client, topics)
            self._targets[name] = _Target(topics[name].partitions, topic_config(client, name))
        return self._targets[name]

    def _messages(self) -> Iterator[Message]:
        for partition, end in sorted(self._ends.items()):
            if self._begins[partition] < end:
                self._consumer.assign([Position(self._letters.topic, partition, self._begins[partition])])
                yield from self._up_to(partition, end)

    def _up_to(self, partition: int, end: int) -> Iterator[Message]:
        """Yield the committed records before ``end``. Waits for open transactions before it, as receipts may follow
        them."""
        heard = time.monotonic()
        while True:
            for message in self._consumer.consume(500, _LOOK_S):
                error = message.error()
                if error is not None and error.code() != ClientError._PARTITION_EOF:
                    if not error.retriable():
                        raise _failed(self._letters.topic, error)
                    continue
                if offset_of(message) >= end:
                    return  # also the end of the partition
                if error is None:
                    heard = time.monotonic()
                    yield message
            if time.monotonic() - heard > _SILENCE_S:
                where = f"{self._letters.topic}-{partition}"
                why = (
                    f"nothing more of {where} can be read before offset {end} for {int(_SILENCE_S)} s. A transaction "
                    "is open there ('spark-eos status' says whose), which may hide what was sent"
                )
                raise stop("EOS_LETTERS_FAILED.again", why=why)
