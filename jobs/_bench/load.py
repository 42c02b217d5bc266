"""Fills topics with rows to read: values of one size, no keys, spread evenly over the partitions, uncompressed."""

from __future__ import annotations

from confluent_kafka import KafkaError, Message, Producer

from spark_eos.devcluster import DevCluster

_ROOM_S = 0.05
_FLUSH_S = 120


def fill(cluster: DevCluster, topic: str, rows: int, value_bytes: int, partitions: int) -> None:
    """Create the topic and write so many rows; returns when the broker has all of them."""
    cluster.create_topic(topic, partitions)
    failures: list[KafkaError] = []

    def note(error: KafkaError | None, message: Message) -> None:
        if error is not None:
            failures.append(error)

    producer = Producer(
        {
            "bootstrap.servers": cluster.bootstrap_servers,
            "broker.address.family": "v4",
            "enable.idempotence": True,
            "linger.ms": 20,
            "delivery.report.only.error": True,
            "on_delivery": note,
            "log_level": 3,
        }
    )
    value = bytes(i % 251 for i in range(value_bytes))
    for row in range(rows):
        while True:
            try:
                producer.produce(topic, value, partition=row % partitions)
                break
            except BufferError:
                producer.poll(_ROOM_S)
    if producer.flush(_FLUSH_S) or failures:
        raise RuntimeError(f"the broker did not take all rows of {topic}: {failures[:1]}")
