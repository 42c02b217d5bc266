"""Accessors for messages of confluent-kafka, whose types make every field optional."""

from __future__ import annotations

from confluent_kafka import Message

from spark_eos.topic_partition import TopicPartition


def offset_of(message: Message) -> int:
    """The offset of a record, or of the end of a partition."""
    offset = message.offset()
    assert offset is not None
    return offset


def place_of(message: Message) -> TopicPartition:
    """The topic and partition of a record, or of an end of partition."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None and partition is not None
    return topic, partition


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers in their order; names may repeat."""
    found = message.headers()
    return found or []  # type: ignore[return-value]  # the same type stands for what a producer is given
