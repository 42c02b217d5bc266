"""The source as Spark calls it, without Spark; and somebody who writes what it reads."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable

from confluent_kafka import Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from spark_eos.source.reader import EosKafkaStreamReader
from spark_eos.tools.devcluster import DevCluster
from tests.support.queries.transactions import LIFE_MS
from tests.support.waiting import TIMEOUT, wait_for


class Writer:
    """Writes to topics; transactional from `begin` to `commit` or `abort`."""

    def __init__(self, cluster: DevCluster, transactional: bool) -> None:
        config: dict = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
        config["max.in.flight.requests.per.connection"] = 1  # else a retry may change the order
        self.transactional_id = f"test-{uuid.uuid4()}"
        if transactional:
            config["transactional.id"] = self.transactional_id
            config["transaction.timeout.ms"] = LIFE_MS
        self.producer = Producer(config)
        if transactional:
            self.producer.init_transactions(TIMEOUT)

    def put(self, topic: str, *values: bytes | str | None, partition: int = 0, **record: object) -> None:
        """Returns when the broker has them. ``record``: key, timestamp, headers."""
        for value in values:
            self.producer.produce(topic, value, partition=partition, **record)
        assert self.producer.flush(TIMEOUT) == 0

    def commit(self, topic: str, *values: str, partition: int = 0) -> None:
        """One transaction."""
        self.producer.begin_transaction()
        self.put(topic, *values, partition=partition)
        self.producer.commit_transaction(TIMEOUT)

    def abort(self, topic: str, *values: str, partition: int = 0) -> None:
        """One transaction that comes to nothing, but takes up offsets."""
        self.producer.begin_transaction()
        self.put(topic, *values, partition=partition)
        self.producer.abort_transaction(TIMEOUT)


def run(reader: EosKafkaStreamReader, start: dict | None = None) -> tuple[list[list[dict]], dict]:
    """Run micro-batches as Spark does until nothing is left: the rows of each, and the last offset."""
    batches, at = [], start
    while True:
        previous = reader.initialOffset() if at is None else at
        end = json.loads(json.dumps(reader.latestOffset(previous, reader.getDefaultReadLimit())))
        if end == at:
            return batches, end
        batches.append(rows(reader, previous, end))
        at = end


def rows(reader: EosKafkaStreamReader, start: dict, end: dict) -> list[dict]:
    """One micro-batch, its tasks one after the other."""
    return [row for part in reader.partitions(start, end) for batch in reader.read(part) for row in batch.to_pylist()]


def topics(offset: dict) -> dict:
    """Without the topics' ids."""
    return {topic: partitions for topic, partitions in offset.items() if not topic.startswith("#")}


def values(batches: list[list[dict]]) -> list[str]:
    return [row["value"].decode() for batch in batches for row in batch]


def fresh(reader: EosKafkaStreamReader) -> EosKafkaStreamReader:
    """The reader of the next run of the query: nothing is left but its options."""
    return EosKafkaStreamReader(reader._options)


# Waiting: markers and metadata follow within milliseconds, but they follow


def until_topic_is_gone(admin: AdminClient, name: str) -> None:
    """Until brokers do not know a deleted topic any more."""
    wait_for(lambda: name not in admin.list_topics(timeout=TIMEOUT).topics, f"the end of topic {name}")


def anew(admin: AdminClient, cluster: DevCluster, name: str, partitions: int = 1) -> None:
    """Delete a topic and create it again."""
    admin.delete_topics([name])[name].result()
    until_topic_is_gone(admin, name)
    cluster.create_topic(name, partitions)


def until_ends(reader: EosKafkaStreamReader, name: str, end: int) -> None:
    """Until the reader's last stable offset of partition 0 is this one."""
    wait_for(lambda: reader._watch.ends()[name][0] == end, f"{name}-0 to be stable up to {end}")


def until_more(reader: EosKafkaStreamReader, at: dict) -> dict:
    """Until there is a micro-batch to plan, and its end. What the end was is remembered for 50 ms."""
    found = [at]

    def more() -> bool:
        found.append(reader.latestOffset(at, reader.getDefaultReadLimit()))
        return found[-1] != at

    wait_for(more, "a micro-batch to plan")
    return found[-1]


def until_stable(reader: Callable[..., EosKafkaStreamReader], name: str, end: int) -> None:
    """Until partition 0 is stable up to there: markers are written after a transaction's end is decided."""
    until_ends(reader(name), name, end)


def delete_before(admin: AdminClient, name: str, offset: int) -> None:
    """Delete the records of partition 0 below an offset, as retention does."""
    for future in admin.delete_records([TopicPartition(name, 0, offset)]).values():
        future.result()
