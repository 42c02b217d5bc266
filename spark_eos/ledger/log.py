"""Partitions of the ledger topic, and of other topics of spark-eos, read by ListOffsets and Fetch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator

from spark_eos.base.retry import retrying
from spark_eos.errors import EosError, stop
from spark_eos.kafka.admin.topics import (
    NO_TOPIC_ID,
    begin_offsets,
    describe_topics,
    end_offsets,
    topic_of_coordinator,
    topic_of_leader,
    topic_partitions,
)
from spark_eos.kafka.codes import FETCH_RETRIES, OK, name_of
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.records.batches import Damage, walk_batches
from spark_eos.kafka.records.rows import Row, read_dated_rows
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.ledger.reader import Fetched

READ_S = 60.0

#: Bytes of one Fetch.
LOG_FETCH_BYTES = 4 << 20
#: Enough to fetch one record: brokers send the first batch whole, however large it is.
_ONE_RECORD = 1 << 10


class KafkaLog:
    """The port ``LedgerLog`` of `LedgerReader`, for one topic."""

    def __init__(self, client: BrokerClient, topic: str) -> None:
        self.topic = topic
        self._client = client

    @property
    def seconds(self) -> float:
        return READ_S

    def partitions(self) -> int:
        return topic_partitions(self._client, [self.topic], READ_S)[self.topic]

    def topic_id(self, known_to: str | int | None = None) -> str:
        if isinstance(known_to, str):
            topic = topic_of_coordinator(self._client, self.topic, known_to, READ_S)
        elif known_to is not None:
            topic = topic_of_leader(self._client, self.topic, known_to, READ_S)
        else:
            topic = describe_topics(self._client, [self.topic], READ_S)[self.topic]
        return "" if topic.id == NO_TOPIC_ID else topic.id

    def begin(self, partition: int) -> int:
        return begin_offsets(self._client, {self.topic: [partition]}, READ_S)[self.topic][partition]

    def end(self, partition: int) -> int:
        """Return the end offset by ListOffsets, which a new leader answers only when it has all acknowledged records
        (KIP-207)."""
        asked = {self.topic: [partition]}
        return end_offsets(self._client, asked, "read_uncommitted", READ_S)[self.topic][partition]

    def fetch(self, partition: int, offset: int, max_bytes: int = LOG_FETCH_BYTES) -> Fetched | None:
        fetched = fetch_once(self._client, self.topic, partition, offset, max_bytes)
        if fetched is None:
            return None
        answer, data = fetched
        if answer.error != OK:
            return Fetched(answer.error)
        rows: list[Row] = []
        times: list[int] = []
        after = offset
        try:
            for batch in walk_batches(data, answer.size, answer.aborted):
                if batch.visible:
                    for time, row in read_dated_rows(data, batch):
                        if row[0] >= offset:
                            rows.append(row)
                            times.append(time)
                after = max(after, batch.last + 1)
        except Damage as damage:
            return Fetched(answer.error, damage=str(damage))
        return Fetched(answer.error, rows, after, times=times)

    def retrying(self) -> Iterator[None]:
        return retrying(READ_S)


class CommittedRecords(ABC):
    """Committed records of one partition, up to ``end``, the last stable offset of now. Errors as for
    `begin_offsets`."""

    def __init__(self, client: BrokerClient, topic: str, number: int) -> None:
        self.topic, self.number = topic, number
        self._log = KafkaLog(client, topic)
        self._begin = begin_offsets(client, {topic: [number]})[topic][number]
        self.end = end_offsets(client, {topic: [number]})[topic][number]

    def __iter__(self) -> Iterator[Row]:
        """Return all records, in the order of the log; a record without a value deletes the earlier ones of its key.
        Raises ConnectionFailed, and the errors of `unreadable`."""
        return self.since(self._begin)

    def since(self, offset: int) -> Iterator[Row]:
        """Yield the records from this offset on. Errors as for all records."""
        at = max(offset, self._begin)
        while at < self.end:
            fetched = self._fetch(at)
            yield from (row for row in fetched.rows if row[0] < self.end)
            at = fetched.after

    def record(self, at: int) -> Row | None:
        """Return the record at this offset; None if compaction has removed it. Errors as for all records."""
        rows = self._fetch(at, _ONE_RECORD).rows if at < self.end else ()
        return next((row for row in rows if row[0] == at), None)

    @abstractmethod
    def unreadable(self, offset: int, why: str) -> EosError:
        """Return the error for a partition that cannot be read from this offset on."""

    def _fetch(self, at: int, max_bytes: int = LOG_FETCH_BYTES) -> Fetched:
        log = self._log
        for _ in log.retrying():
            fetched = log.fetch(self.number, at, max_bytes)
            if fetched is not None and (fetched.damage or fetched.error not in FETCH_RETRIES | {OK}):
                raise self.unreadable(at, fetched.damage or name_of(fetched.error))
            if fetched is not None and fetched.error == OK and fetched.after > at:
                return fetched
        raise stop(
            "EOS_KAFKA_UNREACHABLE.coordinator",
            topic=log.topic,
            who=f"the leader of {log.topic}-{self.number}",
            waited_s=log.seconds,
            why="",
        )
