"""Accessors for messages of confluent-kafka, whose types make every field optional."""

from __future__ import annotations

from operator import methodcaller

from confluent_kafka import Message

from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import stop


def offset_of(message: Message) -> int:
    """Return the offset of a record, or of the end of a partition."""
    offset = message.offset()
    assert offset is not None
    return offset


def place_of(message: Message) -> TopicPartition:
    """Return the topic and partition of a record, or of an end of partition."""
    topic, partition = message.topic(), message.partition()
    assert topic is not None and partition is not None
    return topic, partition


#: Unlike a call in Python that has run often, it looks whether an error was left behind the result.
_headers = methodcaller("headers")


def headers_of(message: Message) -> list[tuple[str, bytes | None]]:
    """Return the headers in their order; names may repeat. librdkafka cuts a name at a NUL. Raises KafkaError
    (EOS_SOURCE_HEADER_KEY) for a name that is not UTF-8."""
    try:
        given = _headers(message)
    except (SystemError, UnicodeError):
        topic, partition = place_of(message)
        raise stop("EOS_SOURCE_HEADER_KEY", topic=topic, partition=partition, offset=offset_of(message)) from None
    return given or []
