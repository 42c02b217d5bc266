"""Fetch of one partition, of a topic by its id: for `FetchConnection`.

A broker answers with records of the log that has this id, or with an error, whatever topic has the name by then: it
compares the id with that of its log, not only with its metadata. Since Kafka 3.1.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.schema import INT8, INT32, INT64, STRING, UUID, FieldReader, array, record

BY_ID_VERSION = 13

_PARTITION = record(
    partition=INT32,
    current_leader_epoch=INT32,
    fetch_offset=INT64,
    last_fetched_epoch=INT32,
    log_start_offset=INT64,
    partition_max_bytes=INT32,
)
_ASKS = record(
    replica_id=INT32,
    max_wait_ms=INT32,
    min_bytes=INT32,
    max_bytes=INT32,
    isolation_level=INT8,
    session_id=INT32,
    session_epoch=INT32,
    topics=array(record(topic_id=UUID, partitions=array(_PARTITION))),
    forgotten_topics_data=array(record(topic_id=UUID, partitions=array(INT32))),
    rack_id=STRING,
)

#: Of the answer: its size and the request's number; no tags; throttle time, error, session, one topic …
_BEGIN = struct.Struct(">iiBihiB")
#: … of this id, and one partition: number, error, high watermark, last stable offset, log start
_PLACE = struct.Struct(">16sBihqqq")
#: An aborted transaction, and no tags.
_ABORTED = struct.Struct(">qqB")
_REPLICA = struct.Struct(">i")
#: None and one of something, as counts are written.
_NONE, _ONE = 1, 2
#: Behind the records: the tags of partition, topic and answer. Newer brokers say there who leads.
_MOST_BEHIND = 1 << 16

Take = Callable[[int], bytes]


def body(
    topic_id: bytes, partition: int, offset: int, *, committed: bool, max_bytes: int, max_wait_ms: int, rack: str
) -> bytes:
    """The request, behind its header."""
    place = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": -1,
        "partition_max_bytes": max_bytes,
    }
    asks: dict[str, Any] = {
        "replica_id": -1,
        "max_wait_ms": max_wait_ms,
        "min_bytes": 1,
        "max_bytes": max_bytes,
        "isolation_level": int(committed),
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic_id": topic_id, "partitions": [place]}],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }
    return _ASKS.write(asks)


def take_head(take: Take, number: int, topic_id: bytes, partition: int) -> tuple[tuple[Any, ...], int] | int:
    """An answer up to its records: the fields of `FetchResponse`, in their order; and how many bytes are behind the
    records. Of a whole answer without a word of the topic the milliseconds for which the user is throttled. ``take``:
    the next so many bytes. Raises OSError for what is no answer to the request."""
    size, answers, _, throttle_ms, error, _, topics = _BEGIN.unpack(take(_BEGIN.size))
    if answers != number:
        raise OSError("the broker answers another request")
    if throttle_ms > 0 and (error, topics, size + 4) == (OK, _NONE, _BEGIN.size + 1):
        take(1)  # no tags
        return int(throttle_ms)
    if error or topics != _ONE:
        raise OSError(f"the broker refuses to fetch (error {error})")
    id_, partitions, found, error, high_watermark, stable, begin = _PLACE.unpack(take(_PLACE.size))
    left = size + 4 - _BEGIN.size - _PLACE.size
    count, used = _varint(take)
    transactions = max(count - 1, 0)
    if transactions * _ABORTED.size > left:
        raise OSError("the broker's answer is not one to this request")
    aborted = tuple(
        (producer, first) for producer, first, _ in _ABORTED.iter_unpack(take(transactions * _ABORTED.size))
    )
    (preferred,) = _REPLICA.unpack(take(_REPLICA.size))
    length, also_used = _varint(take)
    records = max(length - 1, 0)
    behind = left - used - transactions * _ABORTED.size - _REPLICA.size - also_used - records
    if (id_, partitions, found) != (topic_id, _ONE, partition) or not 3 <= behind <= _MOST_BEHIND:
        raise OSError("the broker's answer is not one to this request")
    return (error, records, aborted, begin, stable, high_watermark, preferred), behind


def check_end(data: bytes) -> None:
    """Raises OSError unless these bytes, which are behind the records, are the tags of partition, topic and answer."""
    fields, whole = FieldReader(data), False
    with suppress(IndexError):
        for _ in range(3):
            fields.skip_tags()
        whole = not fields.left
    if not whole:
        raise OSError("the broker's answer is not one to this request")


def _varint(take: Take) -> tuple[int, int]:
    """A number, and its size."""
    number = 0
    for i in range(5):
        (byte,) = take(1)
        number |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return number, i + 1
    raise OSError("the broker's answer has a number that is none")
