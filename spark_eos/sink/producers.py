"""The producer of a task's transaction, as the task uses it: with whole record batches, or with librdkafka."""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping
from typing import Protocol

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import RowError, stop
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer.arrow import ArrowProducer, supports
from spark_eos.kafka.producer.librdkafka import LibrdkafkaProducer
from spark_eos.kafka.producer.refusals import DeadLetters
from spark_eos.protocol.head import Pair
from spark_eos.sink.rows import RowBatch, produce_all

_QUEUE_WAIT_S = 0.005
_QUEUE_KBYTES = 32 << 10


class TaskProducer(Protocol):
    """One transaction, which has its producer id and epoch. Every call may raise RowError, KafkaError or ProtocolStop;
    only `abort` and `close` may be called after that. ``endtxn_version``: the one that may end it."""

    endtxn_version: int

    def write_batch(self, rows: RowBatch, partitions: Mapping[str, int]) -> None:
        """Take the rows. ``partitions``: how many each of their topics has."""
        ...

    def flush(self) -> None:
        """Wait until every row is acknowledged."""
        ...

    def identity(self) -> Pair:
        """Transactional id, producer id and epoch. Raises ProtocolStop if they do not become known."""
        ...

    def firsts(self) -> Mapping[TopicPartition, int]:
        """After `flush`: the offset of the first record in each partition, (topic, number), as far as it is known."""
        ...

    def lasts(self) -> Mapping[TopicPartition, int]:
        """After `flush`: the sequence number of the last record in each partition; none where that is not known."""
        ...

    def empty(self) -> Collection[TopicPartition]:
        """After `flush`: partitions that may be in the transaction, though all rows for them were refused."""
        ...

    @property
    def refused(self) -> int:
        """After `flush`: how many rows are in the dead-letter topic."""
        ...

    def limit(self, topic: str, max_bytes: int) -> None:
        """Where there is a dead-letter topic: how large a batch this topic takes."""
        ...

    def abort(self) -> None:
        """Abort the transaction if that is possible; otherwise the coordinator's timeout does."""
        ...

    def close(self) -> None:
        """Release the client; an open transaction stays open."""
        ...


def check_two_phase_producer(client: BrokerClient) -> None:
    """Raise OptionError where rows go through librdkafka, which begins no transactions that never expire."""
    if not supports(client):
        raise stop("EOS_OPTION_CONFLICT.two_phase_librdkafka")


def begin(
    client: BrokerClient,
    name: str,
    timeout_ms: int,
    *,
    topic: str | None,
    partitioner: str,
    two_phase: bool = False,
    dead_letters: DeadLetters | None = None,
) -> TaskProducer:
    """A producer that has taken the transactional id. ``topic``: of all rows, if it is known; ``two_phase``: its
    transaction never expires; ``dead_letters``: where rows go that brokers refuse, with whole record batches only.
    Raises OptionError where that cannot be."""
    if two_phase:
        check_two_phase_producer(client)
    if supports(client):
        producer = RecordBatchProducer(
            client, name, timeout_ms, partitioner=partitioner, two_phase=two_phase, dead_letters=dead_letters
        )
        producer.init()
        return producer
    own = {"queue.buffering.max.kbytes": _QUEUE_KBYTES, "partitioner": partitioner}
    by_rows = RowProducer(client, name, timeout_ms, own)
    try:
        by_rows.warm_up(topic)
        by_rows.init()
        by_rows.identity()
        by_rows.begin()
    except BaseException:
        by_rows.close()
        raise
    return by_rows


class RecordBatchProducer(ArrowProducer):
    """Writes whole record batches."""

    def write_batch(self, rows: RowBatch, partitions: Mapping[str, int]) -> None:
        for topic, columns in rows.by_topic():
            self.write(topic, partitions[topic], **columns)


class RowProducer(LibrdkafkaProducer):
    """Writes row by row, with librdkafka; it knows no dead-letter topic."""

    refused = 0

    def write_batch(self, rows: RowBatch, partitions: Mapping[str, int]) -> None:
        try:
            produce_all(self.produce, self._make_room, rows)
        except RowError:
            self.flush()  # a row that the brokers refused before ends the transaction, and says why
            raise

    def empty(self) -> Collection[TopicPartition]:
        return ()

    def limit(self, topic: str, max_bytes: int) -> None:
        """There is no dead-letter topic."""

    def _make_room(self) -> None:
        """The queue is full: wait for the brokers, unless they have already refused a row."""
        if self.failed:
            self.flush()
        time.sleep(_QUEUE_WAIT_S)
