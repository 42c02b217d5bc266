"""Reads partitions from begin to end with a plain consumer.

This shares no code with the source or the sink: a checker that shared their fetch path would share their bugs.
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Iterator

from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka import KafkaError as ClientError

from spark_eos.errors import EosError, stop
from spark_eos.kafka.config.librdkafka import librdkafka_config
from spark_eos.kafka.config.properties import Isolation, KafkaProperties
from spark_eos.kafka.messages import offset_of
from spark_eos.tools.verify.bounds import PartitionBounds

#: Seconds without a row, or the partition's end, after which reading fails.
STALL_S = 60.0
#: Errors that waiting does not help with: rows are gone, or the user may not read them.
_FINAL = {ClientError._AUTO_OFFSET_RESET, ClientError.OFFSET_OUT_OF_RANGE, ClientError.TOPIC_AUTHORIZATION_FAILED}
_POLL_ROWS = 8192
_POLL_S = 0.25

_TUNING = {
    # While messages are processed, the queue is full for a moment; by default, the next fetch then waits 1 s.
    "fetch.queue.backoff.ms": "2",
    "queued.max.messages.kbytes": "16384",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "fetch.wait.max.ms": "5",
    "check.crcs": "true",
}
_OURS = {
    "enable.partition.eof": "true",  # for an end with aborted or control records
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}


class RowReader:
    """Reads partitions from begin to end, one after the other. ``on_rows`` is called with each number of rows.
    Close it."""

    def __init__(self, kafka: KafkaProperties, isolation: Isolation, on_rows: Callable[[int], None]) -> None:
        ours = {**_OURS, "isolation.level": isolation}
        self._consumer = Consumer(librdkafka_config(kafka, "consumer", ours=ours, defaults=_TUNING))
        self._on_rows = on_rows

    def __enter__(self) -> RowReader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, bounds: PartitionBounds, end: int) -> Iterator[list[Message]]:
        """Yield the partition's rows from its begin up to ``end``, in order. Raises CommandError
        (EOS_VERIFY_IMPOSSIBLE)."""
        self._consumer.assign([TopicPartition(bounds.topic, bounds.partition, bounds.begin)])
        position, deadline, error = bounds.begin, time.monotonic() + STALL_S, None
        while position < end:
            messages = self._poll()
            if any(map(Message.error, messages)):
                messages, ended, errors = _rows_and_events(messages)
                position = max(position, ended)
                if errors:
                    error = errors[-1]
                    deadline = 0.0 if any(failure.code() in _FINAL for failure in errors) else deadline
            if messages:
                deadline = time.monotonic() + STALL_S
                position = max(position, offset_of(messages[-1]) + 1)  # they may include the end
                if offset_of(messages[-1]) >= end:
                    messages = [message for message in messages if offset_of(message) < end]
                self._on_rows(len(messages))
                yield messages
            if position < end and time.monotonic() > deadline:
                raise _stopped(bounds, position, end, error)
        self._consumer.unassign()

    def _poll(self) -> list[Message]:
        """Wait for one message, then take all that were received: `consume` alone waits for the full number."""
        collects = gc.isenabled()
        gc.disable()  # messages form no cycles; searching for cycles doubles the cost of a row
        try:
            first = self._consumer.poll(_POLL_S)
            return [] if first is None else [first, *self._consumer.consume(_POLL_ROWS, 0)]
        finally:
            if collects:
                gc.enable()


def _rows_and_events(messages: list[Message]) -> tuple[list[Message], int, list[ClientError]]:
    """Return the rows among the messages; the offset at which the partition ends, or -1 if they do not show it; the
    errors."""
    rows, ended, errors = [], -1, []
    for message in messages:
        error = message.error()
        if error is None:
            rows.append(message)
        elif error.code() == ClientError._PARTITION_EOF:
            ended = max(ended, offset_of(message))
        else:
            errors.append(error)
    return rows, ended, errors


def _stopped(bounds: PartitionBounds, position: int, end: int, error: ClientError | None) -> EosError:
    return stop(
        "EOS_VERIFY_IMPOSSIBLE.read",
        topic=bounds.topic,
        partition=bounds.partition,
        position=position,
        place=bounds,
        place_begin=bounds.begin,
        end=end,
        error=error.str() if error else f"the broker returned nothing for {STALL_S:.0f} s",
    )
