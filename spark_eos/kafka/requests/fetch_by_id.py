"""Fetch of one partition in its flexible versions: for `FetchConnection`.

Version 13 names the topic by its id. A broker answers with records of the log that has this id, or with an error,
whatever topic has the name by then: it compares the id with that of its log, not only with its metadata. Since Kafka
3.1. Version 12 names it by its name. Since Kafka 2.7.

Both tell the broker the leader epoch of the record before the offset, as followers do (KIP-595). Where its log has no
record of that epoch up to there, it answers without records, and says where its log is another one. It does so before
it reads, under the same lock.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from spark_eos.kafka.codes import OK
from spark_eos.kafka.net.schema import INT8, INT32, INT64, STRING, UUID, FieldReader, FieldType, array, record, text

BY_NAME_VERSION, BY_ID_VERSION = 12, 13

_PARTITION = record(
    partition=INT32,
    current_leader_epoch=INT32,
    fetch_offset=INT64,
    last_fetched_epoch=INT32,
    log_start_offset=INT64,
    partition_max_bytes=INT32,
)


def _asks(topic: FieldType[Any]) -> FieldType[Any]:
    return record(
        replica_id=INT32,
        max_wait_ms=INT32,
        min_bytes=INT32,
        max_bytes=INT32,
        isolation_level=INT8,
        session_id=INT32,
        session_epoch=INT32,
        topics=array(record(topic=topic, partitions=array(_PARTITION))),
        forgotten_topics_data=array(record(topic=topic, partitions=array(INT32))),
        rack_id=STRING,
    )


#: The topic as its encoded name, or as its id.
_ASKS = {BY_NAME_VERSION: _asks(FieldType(bytes, FieldReader.text)), BY_ID_VERSION: _asks(UUID)}

#: Of the answer: its size and the request's number; no tags; throttle time, error, session, one topic …
_BEGIN = struct.Struct(">iiBihiB")
#: … of this name or id, and one partition: number, error, high watermark, last stable offset, log start
_PLACE = struct.Struct(">Bihqqq")
#: An aborted transaction, and no tags.
_ABORTED = struct.Struct(">qqB")
_REPLICA = struct.Struct(">i")
#: None and one of something, as counts are written.
_NONE, _ONE = 1, 2
#: Behind the records: the tags of partition, topic and answer. Newer brokers say there who leads.
_MOST_BEHIND = 1 << 16

#: The number of the tagged field of a partition in which a broker says where its log is another one.
_DIVERGING = 0
_EPOCH_AND_END = struct.Struct(">iq")

Take = Callable[[int], bytes]


def topic_of(name: str, topic_id: bytes) -> tuple[int, bytes]:
    """The version, and the topic as its requests and answers have it: by its id where there is one."""
    return (BY_ID_VERSION, topic_id) if topic_id else (BY_NAME_VERSION, text(name))


def body(
    topic: tuple[int, bytes],
    partition: int,
    offset: int,
    last_epoch: int,
    *,
    committed: bool,
    max_bytes: int,
    max_wait_ms: int,
    rack: str,
) -> bytes:
    """The request, behind its header. ``last_epoch``: of the record before the offset, -1 where it is not known."""
    version, name = topic
    place = {
        "partition": partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": last_epoch,
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
        "topics": [{"topic": name, "partitions": [place]}],
        "forgotten_topics_data": [],
        "rack_id": rack,
    }
    return _ASKS[version].write(asks)


def take_head(take: Take, number: int, topic: bytes, partition: int) -> tuple[tuple[Any, ...], int] | int:
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
    name = take(len(topic))
    partitions, found, error, high_watermark, stable, begin = _PLACE.unpack(take(_PLACE.size))
    left = size + 4 - _BEGIN.size - len(topic) - _PLACE.size
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
    if (name, partitions, found) != (topic, _ONE, partition) or not 3 <= behind <= _MOST_BEHIND:
        raise OSError("the broker's answer is not one to this request")
    return (error, records, aborted, begin, stable, high_watermark, preferred), behind


def read_end(data: bytes) -> tuple[int, int] | None:
    """The bytes behind the records, which are the tags of partition, topic and answer: epoch and offset at which the
    broker's log begins to be another one than that of the request, None where it is the same. Raises OSError for
    anything else."""
    fields, whole, diverging = FieldReader(data), False, None
    with suppress(IndexError, struct.error):
        tags = fields.tags()
        if _DIVERGING in tags:
            diverging = _EPOCH_AND_END.unpack_from(tags[_DIVERGING])
        fields.skip_tags()
        fields.skip_tags()
        whole = not fields.left
    if not whole:
        raise OSError("the broker's answer is not one to this request")
    return None if diverging is None or diverging[0] < 0 else diverging


def _varint(take: Take) -> tuple[int, int]:
    """A number, and its size."""
    number = 0
    for i in range(5):
        (byte,) = take(1)
        number |= (byte & 0x7F) << 7 * i
        if byte < 0x80:
            return number, i + 1
    raise OSError("the broker's answer has a number that is none")
