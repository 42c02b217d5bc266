"""Fills topics with rows to read, spread evenly over the partitions: values of one size, which compression halves, or
small JSON with keys; compressed or not."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import cycle, islice
from random import Random

from confluent_kafka import KafkaError, Message, Producer

from bench.loop import client
from spark_eos.tools.devcluster import DevCluster

#: Different values; together more than LZ4 looks back.
_VALUES = 1024
_ROOM_S = 0.05
#: What librdkafka has by default.
_ROWS_IN_BATCH = 10_000
_FLUSH_S = 120


def fill(
    cluster: DevCluster, topic: str, rows: int, value_bytes: int, partitions: int, keys: int = 0, codec: str = "none"
) -> None:
    """Create the topic and write so many rows; returns when the broker has all of them. ``keys``: so many different
    ones, each beside JSON of about so many bytes."""
    cluster.create_topic(topic, partitions)
    made: Iterator[tuple[bytes | None, bytes]] = _with_keys(keys) if keys else without_keys(value_bytes)
    write_rows(cluster, topic, partitions, islice(made, rows), codec)


def write_rows(
    cluster: DevCluster,
    topic: str,
    partitions: int,
    rows: Iterable[tuple[bytes | None, bytes]],
    codec: str = "none",
    rows_in_batch: int = _ROWS_IN_BATCH,
) -> None:
    """Write keys and values to the topic's partitions in turns; returns when the broker has them all.
    ``rows_in_batch``: of a record batch, at most."""
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            **client(cluster.bootstrap_servers),
            "enable.idempotence": True,
            "linger.ms": 20,
            "compression.type": codec,
            "batch.num.messages": rows_in_batch,
            "delivery.report.only.error": True,
            "on_delivery": note,
        }
    )
    for row, (key, value) in enumerate(rows):
        while True:
            try:
                producer.produce(topic, value, key, partition=row % partitions)
                break
            except BufferError:
                producer.poll(_ROOM_S)
    if producer.flush(_FLUSH_S) or failures:
        raise RuntimeError(f"the broker did not take all rows of {topic}: {failures[:1]}")


def without_keys(value_bytes: int) -> Iterator[tuple[None, bytes]]:
    """Without end: values of which half is the same in all, the other half random."""
    chance, same = Random(1), bytes(i % 251 for i in range(value_bytes - value_bytes // 2))
    return cycle([(None, chance.randbytes(value_bytes // 2) + same) for _ in range(_VALUES)])


def _with_keys(keys: int) -> Iterator[tuple[bytes, bytes]]:
    """Without end: keys in a fixed, mixed order; values of 95 bytes, as long as there are fewer than a billion."""
    number = 0
    while True:
        number += 1
        key = b"customer-%06d" % (number * 7919 % keys)
        total = number * 104_729 % 1_000_000
        yield (
            key,
            b'{"customer":"%s","order":%09d,"total":%06d,"currency":"EUR","state":"paid"}'
            % (
                key,
                number,
                total,
            ),
        )
