"""One attempt of one task from its first row on: rows into its transaction, which it hands over, open.

The rows come from Spark (`spark_eos.sink.task`), or from ranges of offsets (`spark_eos.pipelines.copy.task`).
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from spark_eos.base import failpoints
from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import stop
from spark_eos.kafka.admin.retention import check_age
from spark_eos.kafka.admin.topics import NO_TOPIC_ID, Topic, describe_topics
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.transactions import FENCING_END
from spark_eos.options.parse import SinkOptions
from spark_eos.protocol.end import VALID_MS
from spark_eos.protocol.head import DIGEST_BITS, Digest, Pair, Probe, Written
from spark_eos.protocol.task import (
    Assignment,
    TaskReport,
    check_begins,
    check_ends,
    check_held,
    check_owner,
)
from spark_eos.sink.dead_letters import limits
from spark_eos.sink.outputs import check_not_reserved
from spark_eos.sink.row_offsets import row_offsets
from spark_eos.sink.rows import RowBatch, check_partitions, check_topic_names

if TYPE_CHECKING:
    from spark_eos.sink.task import Task

#: Seconds for which leaders are tried that do not say where the transaction begins.
_LEADERS_S = 10.0

#: Seconds for which an answer from before the first row is used: partitions may have been added since.
AHEAD_S = 2.0

T = TypeVar("T")


@dataclass(frozen=True)
class WriteStats:
    """Rows that a producer has taken: how many, their digest, the earliest timestamp that one of them was given in
    milliseconds, and, where they are counted here, the bytes of their keys and values. ``beside``: number of records
    that are no rows, in the same transaction. ``letters``: how many of the rows are dead letters. Where a transform
    makes the rows, ``read``: number of records read; ``dropped``: how many of them it could not make into rows, and
    left out."""

    rows: int
    digest: int
    oldest_ms: int | None = None
    bytes: int = 0
    beside: int = 0
    letters: int = 0
    read: int = 0
    dropped: int = 0


class RowWriter:
    """Gives Arrow batches of the sink's columns to a producer. ``digest_by``: how rows are digested. ``client``: of the
    cluster that they go to. ``partitions`` and ``topic_ids``: of the topics, as they were before their first row."""

    def __init__(self, options: SinkOptions, producer: ArrowProducer, digest_by: Digest) -> None:
        self.client, self.producer, self._options, self._digest_by = producer.client, producer, options, digest_by
        self.partitions: dict[str, int] = {}
        self.topic_ids: dict[str, str] = {}
        self._ahead_at: float | None = None

    def ask_ahead(self) -> None:
        """Ask for the topic before there is a row, where it is that of all rows. Raises TopicError."""
        if self._options.topic is not None:
            self._ahead_at = time.monotonic()
            self._learn([self._options.topic])

    def look_up(self, topics: Iterable[str], *, missing_ok: bool = False) -> dict[str, Topic]:
        """Look up topics of which this was not done yet, before their first row. Raises TopicError."""
        described = describe_topics(self.client, {*topics} - self.partitions.keys(), missing_ok=missing_ok)
        self.partitions |= {name: topic.partitions for name, topic in described.items()}
        self.topic_ids |= {name: topic.id for name, topic in described.items() if topic.id != NO_TOPIC_ID}
        return described

    def write(self, rows: RowBatch) -> WriteStats:
        """Give the rows to the producer. Raises RowError, TopicError, and the errors of the producer's `write`."""
        self._check_topics(rows)
        check_partitions(rows, self.partitions)
        for topic, oldest_ms in rows.oldest_by_topic().items():
            self.check_age(topic, oldest_ms)
        for topic, fields in rows.by_topic():
            self.producer.write(topic, self.partitions[topic], **fields)
        return WriteStats(rows.rows, rows.digest(self._digest_by), rows.oldest_ms)

    def check_age(self, topic: str, oldest_ms: int | None) -> None:
        """Raise TopicError (EOS_ROWS_EXPIRED) for rows that the topic does not keep: see `kafka.admin.retention`."""
        check_age(self.client, topic, oldest_ms)

    def offsets(self, topic: str, partition: int) -> Sequence[tuple[int, int]]:
        """See `row_offsets`."""
        return row_offsets(self.producer, topic, partition)

    def _check_topics(self, rows: RowBatch) -> None:
        """Look topics up before their first row is written: the producer needs their numbers of partitions. Raises
        TopicError for one that does not exist."""
        if self._ahead_at is not None and time.monotonic() - self._ahead_at > AHEAD_S:
            self.partitions.clear()
            self.topic_ids.clear()
        self._ahead_at = None
        topics = [rows.topic] if rows.topics is None else rows.topics
        unknown = set(topics) - self.partitions.keys()
        if unknown:
            names = sorted(topic for topic in unknown if topic is not None)
            check_topic_names(names)
            self._learn(names)

    def _learn(self, topics: list[str]) -> None:
        letters = self._options.dead_letters  # where any row may go
        described = self.look_up(topics if letters is None else [*topics, letters])
        if self._options.topic is None:  # the driver has looked at the option's topic
            check_not_reserved(self.client, described, ledger=self._options.ledger_topic)
        for topic, max_bytes in limits(self.client, self._options, topics).items():
            self.producer.limit(topic, max_bytes)


class Attempt:
    """An attempt of a task from its first row on: writes into the transaction of ``writer``'s producer, and hands it
    over. ``aside``: topics of records that are no rows, and that may be compacted: so that the outcome of the
    transaction is looked up in others."""

    def __init__(
        self, task: Task, assignment: Assignment, writer: RowWriter, aside: frozenset[str] = frozenset()
    ) -> None:
        self.writer = writer
        self._job, self._session, self._identity = task.job, task.session, task.identity
        self._assignment, self._producer, self._aside = assignment, writer.producer, aside
        self._topics: tuple[str, ...] = ()

    def write(self, stats: Iterator[WriteStats]) -> TaskReport:
        """Write the rows into the transaction, which stays open, and report on it. ``stats``: gives rows to `writer` as
        it is read, and yields their stats. A failure aborts the transaction, and raises. Closes the producer in any
        case."""
        try:
            return self._write(stats)
        except BaseException:
            self._producer.abort()
            raise
        finally:
            self._producer.close()

    def _write(self, stats: Iterator[WriteStats]) -> TaskReport:
        """Write as `write` does. Without a record there is no transaction, as the coordinator knows of none."""
        began_ms = int(time.time() * 1000)
        failpoints.reach("prepare.begun")
        rows = digest = size = beside = letters = read = dropped = 0
        oldest_ms: int | None = None
        for part in stats:
            rows, digest, size = rows + part.rows, digest + part.digest, size + part.bytes
            beside, letters = beside + part.beside, letters + part.letters
            read, dropped = read + part.read, dropped + part.dropped
            if part.oldest_ms is not None:
                oldest_ms = part.oldest_ms if oldest_ms is None else min(oldest_ms, part.oldest_ms)
            failpoints.reach("prepare.wrote")
        partition, by = self._identity.partition, self._assignment.digest_by
        if not rows and not beside:
            return TaskReport(
                self._assignment.work, partition, 0, 0, digest_by=by, bytes=size, dropped=dropped, read=read
            )
        self._producer.flush()
        if self._job.options.dead_letters is not None and self._producer.refused:
            check_age(self._session.client, self._job.options.dead_letters, oldest_ms)  # they keep their timestamps
        failpoints.reach("prepare.flushed")
        self._check_owner()
        digest %= 1 << DIGEST_BITS
        written = self._hand_over(rows, letters, digest, began_ms)
        failpoints.reach("prepare.prepared")
        return TaskReport(
            self._assignment.work,
            partition,
            rows,
            digest,
            written,
            began_ms=began_ms,
            timeout_ms=self._job.facts.transaction_timeout_ms,
            digest_by=by,
            oldest_ms=oldest_ms,
            bytes=size,
            topics=self._topics,
            dropped=dropped,
            read=read,
        )

    def _check_owner(self) -> None:
        check_owner(self._session.ports.ledger.read(), self._identity.run, self._identity.batch, self._assignment.work)

    def _hand_over(self, rows: int, letters: int, digest: int, began_ms: int) -> Written:
        """Check that the brokers hold the transaction that this producer wrote, and return it for the report.

        Where the end of a transaction fences its producer, and the transaction is fresh, it is enough that it is open.
        Otherwise it may have been aborted, in a partition or as a whole, and begun again by a later record batch. A
        leader that is asked must have all that was acknowledged: an unclean election takes the newest records.
        """
        pair, version = self._producer.identity(), self._producer.endtxn_version
        described = self._session.coordinator.describe([pair.id]).get(pair.id)
        check_held(pair, described, two_phase=self._job.options.two_phase)
        assert described is not None
        fresh = int(time.time() * 1000) - began_ms < VALID_MS
        self._topics = tuple(sorted({topic for topic, _ in described.places}))
        empty = tuple(sorted(set(described.places) & set(self._producer.empty())))
        partitions = [partition for partition in described.places if partition not in empty]
        if version >= FENCING_END and fresh:
            probe, begins = self._opened(pair, partitions)
        else:
            probe, begins = self._checked_begin(pair, partitions)
        check_ends(pair, self._producer.lasts(), [probe, *begins])
        return Written(
            self._identity.partition,
            pair,
            rows,
            digest,
            self._identified(probe),
            endtxn_version=version,
            dead_letters=letters + self._producer.refused,
            empty=empty,
            begins=tuple(map(self._identified, begins)),
        )

    def _identified(self, probe: Probe) -> Probe:
        return replace(probe, topic_id=self.writer.topic_ids.get(probe.topic, ""))

    def _opened(self, pair: Pair, partitions: Collection[TopicPartition]) -> tuple[Probe, tuple[Probe, ...]]:
        """Return the transaction's start in one partition, and its starts in all. Asks one leader; all of them where
        the producer does not know the first record of each partition."""
        known, lasts = self._producer.firsts(), self._producer.lasts()
        if known.keys() >= set(partitions):
            probe = self._first_record(pair, partitions)
            at = probe.topic, probe.partition
            check_begins(pair, {at: known[at]}, {at: probe.offset})
            return probe, tuple(Probe(*each, known[each], lasts.get(each)) for each in sorted(partitions))
        begins = self._session.coordinator.begins(pair, partitions) or ()
        if len(begins) != len(set(partitions)):  # checks work without them, too: not worth waiting for every leader
            return self._first_record(pair, partitions), ()
        return self._probe(begins), tuple(begins)

    def _checked_begin(self, pair: Pair, partitions: Iterable[TopicPartition]) -> tuple[Probe, tuple[Probe, ...]]:
        """Return where the transaction begins in one of its partitions; in each of them, it begins with the first
        record that was acknowledged there."""
        firsts, coordinator = dict(self._producer.firsts()), self._session.coordinator
        every = {*partitions, *firsts}
        probes = _insist(lambda: coordinator.begins(pair, every), pair, every)
        begins = {(probe.topic, probe.partition): probe.offset for probe in probes}
        for at, offset in begins.items():
            # Where no answer had the first offset, the log tells whether this is the first batch of the producer there.
            if at not in firsts and _insist(partial(coordinator.is_first, pair, *at, offset), pair, [at]):
                firsts[at] = offset
        check_begins(pair, {at: firsts.get(at, -1) for at in every}, begins)
        return self._probe(probes), tuple(probes)

    def _probe(self, begins: Sequence[Probe]) -> Probe:
        lasting = set(self._lasting((probe.topic, probe.partition) for probe in begins))
        return next(probe for probe in begins if (probe.topic, probe.partition) in lasting)

    def _lasting(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Return the partitions whose first record stays, if there is a choice: compaction may take others."""
        every = list(partitions)
        return [partition for partition in every if partition[0] not in self._aside] or every

    def _first_record(self, pair: Pair, partitions: Iterable[TopicPartition]) -> Probe:
        lasting, ask = self._lasting(partitions), self._session.coordinator.first_record
        return _insist(lambda: ask(pair, lasting), pair, lasting)


def _insist(ask: Callable[[], T | None], pair: Pair, partitions: Iterable[TopicPartition]) -> T:
    """Ask leaders about the transaction until there is an answer. Raises Unclear."""
    for _ in retrying(_LEADERS_S):
        answer = ask()
        if answer is not None:
            return answer
    raise stop("EOS_TRANSACTION_NOT_FOUND", transactional_id=pair.id, where=f"no leader of {partitions} knows it")
