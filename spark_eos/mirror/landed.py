"""Where the rows of an open transaction lie, by the log: for those of which no acknowledgement told the offset."""

from __future__ import annotations

from spark_eos.errors import stop
from spark_eos.kafka.codes import OK
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.records.batches import Damage, UnsupportedFormat, walk_batches
from spark_eos.kafka.requests.describe_producers import describe_producers, open_begins
from spark_eos.kafka.requests.fetch import fetch_once
from spark_eos.protocol.head import Pair
from spark_eos.retry import retrying
from spark_eos.topic_partition import TopicPartition

_FETCH_BYTES = 1 << 20
_WAIT_S = 30.0


def landed(kafka: KafkaProperties, pair: Pair, topic: str, partition: int, rows: int) -> list[tuple[int, int]]:
    """(first offset, number) of all ``rows`` that the producer has in the partition, in order. All are acknowledged.

    Raises Unclear (EOS_TRANSACTION_NOT_FOUND) where the log does not have them.
    """
    runs: list[tuple[int, int]] = []
    at: int | None = None
    for _ in retrying(_WAIT_S):
        if at is None:
            begins = open_begins(describe_producers(broker_client(kafka), topic, partition))
            at = begins.get((pair.producer_id, pair.epoch))
        while at is not None and sum(count for _, count in runs) < rows:
            found = _read(kafka, pair, (topic, partition), at)
            if found is None:
                break
            at, more = found
            runs += more
        if at is not None and sum(count for _, count in runs) >= rows:
            break
    if sum(count for _, count in runs) != rows:
        raise stop(
            "EOS_TRANSACTION_NOT_FOUND.mirror", transactional_id=pair.id, topic=topic, partition=partition, rows=rows
        )
    return runs


def _read(
    kafka: KafkaProperties, pair: Pair, place: TopicPartition, at: int
) -> tuple[int, list[tuple[int, int]]] | None:
    """The offset to read on from after the next answer, and what is the producer's in it; None for one to ask again, of
    which nothing counts."""
    fetched = fetch_once(broker_client(kafka), *place, at, _FETCH_BYTES, isolation="read_uncommitted")
    if fetched is None or fetched[0].error != OK:
        return None
    after, runs = at, list[tuple[int, int]]()
    try:
        for batch in walk_batches(fetched[1], fetched[0].size, ()):
            mine = (batch.producer_id, batch.epoch) == (pair.producer_id, pair.epoch) and not batch.control
            if mine and batch.base >= at:
                runs.append((batch.base, batch.count))
            after = batch.last + 1
    except (Damage, UnsupportedFormat):
        return None
    return (after, runs) if after > at else None
