"""Offsets of the rows that a task has written into its transaction, while that is open."""

from __future__ import annotations

from collections.abc import Sequence

from spark_eos.base.retry import retrying
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import stop
from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.producer.arrow import ArrowProducer
from spark_eos.kafka.producer.partition_queue import UNKNOWN_OFFSET
from spark_eos.kafka.records.batches import Damage, walk_batches
from spark_eos.kafka.requests.describe_producers import describe_producers, open_begins
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.protocol.head import Pair

#: How long to look in the log for rows whose offsets no acknowledgement had.
_LOG_S = 30.0
_FETCH_BYTES = 1 << 20


def row_offsets(producer: ArrowProducer, topic: str, partition: int) -> Sequence[tuple[int, int]]:
    """Return, after `flush`, (first offset, number) of all rows of the producer's transaction in a partition, in order:
    by the acknowledgements or, where one of them had no offset, by the log. Raises the errors of `rows_in_log`."""
    runs = producer.runs(topic, partition)
    if all(first != UNKNOWN_OFFSET for first, _ in runs):
        return runs
    return rows_in_log(producer.client, producer.identity(), topic, partition, sum(count for _, count in runs))


def rows_in_log(client: BrokerClient, pair: Pair, topic: str, partition: int, rows: int) -> list[tuple[int, int]]:
    """Find all ``rows`` of a producer's open transaction in a partition, in order: (first offset, number) of each
    batch. All of them are acknowledged.

    Raises Unclear (EOS_TRANSACTION_NOT_FOUND) where the log does not have them.
    """
    runs: list[tuple[int, int]] = []
    at: int | None = None
    for _ in retrying(_LOG_S):
        if at is None:
            begins = open_begins(describe_producers(client, topic, partition))
            at = begins.get((pair.producer_id, pair.epoch))
        while at is not None and sum(count for _, count in runs) < rows:
            fetched = _fetch_batches(client, pair, (topic, partition), at)
            if fetched is None:
                break
            at, more = fetched
            runs += more
        if at is not None and sum(count for _, count in runs) >= rows:
            break
    if sum(count for _, count in runs) != rows:
        raise stop(
            "EOS_TRANSACTION_NOT_FOUND",
            transactional_id=pair.id,
            topic=topic,
            partition=partition,
            where=f"the log of {topic}-{partition} does not show its {rows} rows",
        )
    return runs


def _fetch_batches(
    client: BrokerClient, pair: Pair, partition: TopicPartition, at: int
) -> tuple[int, list[tuple[int, int]]] | None:
    """Return the offset to fetch next, and the producer's batches in this answer; None for an answer to discard and
    fetch again."""
    fetched = fetch_once(client, *partition, at, _FETCH_BYTES, isolation="read_uncommitted")
    if fetched is None or fetched[0].error != OK:
        return None
    after, runs = at, list[tuple[int, int]]()
    try:
        for batch in walk_batches(fetched[1], fetched[0].size, ()):
            own = (batch.producer_id, batch.epoch) == (pair.producer_id, pair.epoch) and not batch.control
            if own and batch.base >= at:
                runs.append((batch.base, batch.count))
            after = batch.last + 1
    except Damage:
        return None
    return (after, runs) if after > at else None
