"""What every message of a consumer has, though its type says that it may not: it is also that of other messages."""

from __future__ import annotations

from confluent_kafka import Message

from spark_eos.topic_partition import TopicPartition


def offset_of(message: Message) -> int:
    """The offset of a row, or of a partition's end."""
    offset = message.offset()
    assert offset is not None
    return offset


def place_of(message: Message) -> TopicPartition:
    """Topic and partition of a row, or of a partition's end."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None and partition is not None
    return topic, partition


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """The headers in their order; a name may come twice."""
    found = message.headers()
    return found or []  # type: ignore[return-value]  # the same type stands for what a producer is given
