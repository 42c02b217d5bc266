"""One range of one partition, from the broker into Arrow by librdkafka's consumer, which reads every format.

Memory of a task: librdkafka's queue (16 MiB, plus one fetch of 4 MiB on its way) and one Arrow batch of 4,096 rows.
Cost: 1.6 core-µs per row of 100 bytes, librdkafka's threads included; 0.6 of it turn messages into Arrow.
"""

from __future__ import annotations

import contextlib
import gc
import os
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka import KafkaError as ClientError

from spark_eos.base.topic_partition import OffsetRange
from spark_eos.errors import EosError, stop
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.messages import headers_of, offset_of
from spark_eos.kafka.net.client import broker_client
from spark_eos.options.parse import Fetching
from spark_eos.source.decode import beyond_spark, too_large
from spark_eos.source.diagnosis import why_not
from spark_eos.source.nearest_replica import rack_here
from spark_eos.source.schema import ARROW_HEADERS, arrow_schema

#: Rows of an Arrow batch. More rows do not fit into the processor's caches between the passes over their fields.
BATCH_ROWS = 4096
#: Seconds without a row after which a task fails, if the broker has reported that its log ends before the range.
_SHORT_STALL_S = 5.0
_POLL_S = 0.25

#: Settings for reading a range that is known to exist; the user's own settings take precedence.
_TUNING = {
    # While messages are converted to Arrow, the queue is full for a moment; by default, the next fetch then waits 1 s.
    "fetch.queue.backoff.ms": "2",
    "queued.max.messages.kbytes": "16384",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    # There is nothing to fetch only at the end of a log; the sooner that is reported, the sooner the range is done.
    "fetch.wait.max.ms": "5",
    "check.crcs": "true",
}
_OURS = {
    "enable.partition.eof": "true",  # reported at the end of a range whose last records are aborted or control records
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}


def read_by_consumer(fetching: Fetching, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order, as batches of `arrow_schema`. Raises the errors of `why_not`."""
    with _borrowed_consumer(fetching) as consumer:
        progress = _Progress(range_, fetching)
        consumer.assign([TopicPartition(range_.topic, range_.partition, range_.start)])
        while not progress.done:
            with _without_gc():
                batch = progress.take(_poll(consumer, range_.end - progress.position))
            if batch is not None:
                _check_sizes(batch, range_, fetching.max_decompressed_bytes)
                yield batch
            elif progress.error is not None or progress.stalled:
                error = progress.error
                refusal = None if error is None else f"{error.str()} ({error.name()})"
                raise why_not(broker_client(fetching.kafka), range_, progress.position, refusal)


def _check_sizes(batch: pa.RecordBatch, range_: OffsetRange, most_bytes: int) -> None:
    """Raise KafkaError (EOS_SOURCE_BATCH_TOO_LARGE) for a record with more than ``most_bytes``.

    This does not bound memory: librdkafka has decompressed the record by then, and does not report record batches.
    """
    if batch.nbytes > most_bytes:
        sizes = [pc.fill_null(pc.binary_length(batch.column(name)), 0) for name in ("key", "value")]
        too_long = np.flatnonzero(np.asarray(pc.add(*sizes)).astype(np.int64) > most_bytes)
        if len(too_long):
            offset = batch.column("offset")[int(too_long[0])].as_py()
            raise too_large(range_, offset, offset, most_bytes)


def _poll(consumer: Consumer, wanted: int) -> list[Message]:
    """Wait for one message, then take those already received: `consume` alone waits for the full number."""
    first = consumer.poll(_POLL_S)
    if first is None:
        return []
    return [first, *consumer.consume(max(1, min(wanted, BATCH_ROWS) - 1), 0)]


class _Progress:
    """How far a range has been read. ``position``: the first offset not read yet."""

    def __init__(self, range_: OffsetRange, fetching: Fetching) -> None:
        self.range = range_
        self.position = range_.start
        self.error: ClientError | None = None
        self._headers = fetching.include_headers
        self._timeout_s = fetching.poll_timeout_s
        self._deadline = time.monotonic() + self._timeout_s

    @property
    def done(self) -> bool:
        return self.position >= self.range.end

    @property
    def stalled(self) -> bool:
        return time.monotonic() > self._deadline

    def take(self, messages: list[Message]) -> pa.RecordBatch | None:
        """The rows in the range among the messages, if any."""
        rows = messages
        events: list[tuple[Message, ClientError]] = []
        if any(map(Message.error, messages)):
            rows = [message for message in messages if message.error() is None]
            events = [(message, error) for message in messages if (error := message.error()) is not None]
        if rows:
            rows = self._advance(rows)
        for message, error in events:
            self._hear(message, error)
        return to_arrow(rows, self.range.topic, self.range.partition, self._headers) if rows else None

    def _advance(self, rows: list[Message]) -> list[Message]:
        """Register rows, and return those in the range."""
        if not self._is_of_range(rows[0]) or offset_of(rows[0]) < self.position:
            raise self._misplaced(rows[0])
        self._deadline = time.monotonic() + self._timeout_s
        last = offset_of(rows[-1])
        self.position = last + 1
        return rows if last < self.range.end else [row for row in rows if offset_of(row) < self.range.end]

    def _hear(self, message: Message, error: ClientError) -> None:
        if error.code() == ClientError._PARTITION_EOF:
            if not self._is_of_range(message):
                raise self._misplaced(message)
            self.position = max(self.position, offset_of(message))
            if not self.done:  # a new leader may lag behind for a moment; more will follow
                self._deadline = min(self._deadline, time.monotonic() + _SHORT_STALL_S)
        elif message.topic() is not None:  # errors of a broker or of the unused group pass, or end in a stall
            self.error = error

    def _is_of_range(self, message: Message) -> bool:
        return (message.topic(), message.partition()) == (self.range.topic, self.range.partition)

    def _misplaced(self, message: Message) -> EosError:
        """librdkafka drops messages of an earlier assignment; if it ever did not, rows could be skipped."""
        return stop(
            "EOS_SOURCE_FETCH.misplaced",
            topic=self.range.topic,
            partition=self.range.partition,
            offset=message.offset(),
            record_topic=message.topic(),
            record_partition=message.partition(),
            position=self.position,
        )


def to_arrow(messages: list[Message], topic: str, partition: int, include_headers: bool = False) -> pa.RecordBatch:
    """Messages without errors, of one partition, as a batch of `arrow_schema`. One pass per field, none per row.

    Raises KafkaError (EOS_SOURCE_TIMESTAMP).
    """
    count = len(messages)
    times = list(map(Message.timestamp, messages))  # (kind, milliseconds)
    millis = pa.array([at for _, at in times], pa.timestamp("ms", tz="UTC"))
    kinds = pa.array([kind for kind, _ in times], pa.int32())
    offsets = pa.array(list(map(Message.offset, messages)), pa.int64())
    try:
        micros = millis.cast(pa.timestamp("us", tz="UTC"))
    except pa.ArrowInvalid:
        raise beyond_spark(topic, partition, np.asarray(offsets), np.asarray(millis.view(pa.int64()))) from None
    columns = [
        pa.array(list(map(Message.key, messages)), pa.binary()),
        pa.array(list(map(Message.value, messages)), pa.binary()),
        pa.repeat(topic, count),
        pa.repeat(pa.scalar(partition, pa.int32()), count),
        offsets,
        micros,
        pc.subtract(kinds, pa.scalar(1, pa.int32())),  # librdkafka counts the kinds from 0, Spark from -1
    ]
    if include_headers:
        columns.append(_headers(messages))
    return pa.RecordBatch.from_arrays(columns, schema=arrow_schema(include_headers))


def _headers(messages: list[Message]) -> pa.Array:
    rows = [
        [{"key": key, "value": value} for key, value in found] if (found := headers_of(message)) else None
        for message in messages
    ]
    return pa.array(rows, ARROW_HEADERS.type)


@contextlib.contextmanager
def _without_gc() -> Iterator[None]:
    """There are thousands of messages and tuples without cycles; searching for cycles doubles the cost of a row."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


# Consumers

#: Idle consumers of this process. A worker reads one range at a time and is reused. An existing consumer gets its
#: first row after 9 ms, a new one after 22 ms.
_idle_consumers: dict[tuple[Fetching, int], Consumer] = {}
_MAX_IDLE = 2


@contextlib.contextmanager
def _borrowed_consumer(fetching: Fetching) -> Iterator[Consumer]:
    key = (fetching, os.getpid())
    consumer = _idle_consumers.pop(key, None)
    if consumer is None:
        broker_client(fetching.kafka).reach()
        consumer = Consumer(_config(fetching))
    try:
        yield consumer
    except BaseException:  # including GeneratorExit: a reader that stops early leaves a filled queue
        consumer.close()
        raise
    consumer.unassign()
    _idle_consumers[key] = consumer
    while len(_idle_consumers) > _MAX_IDLE:
        _idle_consumers.pop(next(iter(_idle_consumers))).close()


def _config(fetching: Fetching) -> dict[str, Any]:
    ours = {**_OURS, "isolation.level": fetching.isolation}
    if fetching.group_id is not None:  # it is not joined, but brokers may require permission to use it
        ours["group.id"] = fetching.group_id
    if "client.rack" in canonical(fetching.kafka):
        ours["client.rack"] = rack_here(fetching.kafka)
    return librdkafka_config(fetching.kafka, "consumer", ours=ours, defaults=_TUNING)
