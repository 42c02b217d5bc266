"""Counts what has arrived, as any reader would."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from confluent_kafka import Consumer, Message, TopicPartition

from bench.loop import client
from bench.source import PARTITIONS


def committed_rows(bootstrap_servers: str, topic: str) -> int:
    """Rows of the topic that a read_committed consumer sees."""
    return sum(map(len, _committed(bootstrap_servers, topic)))


def committed_values(bootstrap_servers: str, topic: str) -> Counter[bytes]:
    """How often a read_committed consumer sees each value of the topic."""
    values = Counter[bytes]()
    for messages in _committed(bootstrap_servers, topic):
        values.update(message.value() or b"" for message in messages)
    return values


def _committed(bootstrap_servers: str, topic: str) -> Iterator[list[Message]]:
    """The messages of all partitions up to their ends."""
    consumer = Consumer(
        {
            **client(bootstrap_servers),
            "group.id": "bench-count",  # asked for by the client; nothing is committed to it
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
            # By default it waits for a second whenever it has read ahead far enough.
            "fetch.queue.backoff.ms": 1,
            "fetch.message.max.bytes": 8 << 20,
            "queued.min.messages": 1_000_000,
        }
    )
    try:
        consumer.assign([TopicPartition(topic, p, 0) for p in range(PARTITIONS)])
        at_end: set[int | None] = set()
        while len(at_end) < PARTITIONS:
            messages = consumer.consume(2_000, 0.1)
            at_end.update(message.partition() for message in messages if message.error() is not None)
            yield [message for message in messages if message.error() is None]
    finally:
        consumer.close()
