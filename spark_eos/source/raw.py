"""One range of one partition, from the broker into Arrow by whole record batches: `read_range` without a consumer.

While a fetch is decoded the next one is under way, in the broker and in the sockets' buffers. Memory of a task: the
bytes of one fetch (`FETCH_BYTES`, or one record batch where that is larger) and one Arrow batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

import pyarrow as pa

from spark_eos.errors import KafkaError
from spark_eos.kafka.fetching import Answer, Fetching, connect, give_back
from spark_eos.kafka.metadata import Isolation, begin_offsets, end_offsets
from spark_eos.kafka.wire import OFFSET_OUT_OF_RANGE, OK, wire
from spark_eos.options import KafkaProperties
from spark_eos.patience import FIRST_WAIT, LONGEST_WAIT
from spark_eos.source.decode import Decoded, UnsupportedFormat, decode
from spark_eos.source.planning import OffsetRange, data_loss

T = TypeVar("T")

FETCH_BYTES = 1024 * 1024
_FEWEST_BYTES = 64 * 1024
#: How large a row is thought to be until the first rows have come.
_BYTES_PER_OFFSET = 1024.0
#: For the last record batch of a fetch, which would come cut off.
_MARGIN = 1.25
#: Only at the end of a log is there nothing to fetch.
_MAX_WAIT_MS = 100
#: Seconds without a step forward after which a task fails; and once the leader has answered that there is no more.
STALL_S = 60.0
_SHORT_STALL_S = 5.0
#: Seconds for which a leader that has been asked may be silent.
_SILENCE_S = 30.0

#: The leader moves, starts, or has not caught up: it, or another one, may give a better answer.
_PASSING = {
    OFFSET_OUT_OF_RANGE,
    3,  # UNKNOWN_TOPIC_OR_PARTITION
    5,  # LEADER_NOT_AVAILABLE
    6,  # NOT_LEADER_OR_FOLLOWER
    7,  # REQUEST_TIMED_OUT
    9,  # REPLICA_NOT_AVAILABLE
    13,  # NETWORK_EXCEPTION
    56,  # KAFKA_STORAGE_ERROR
    74,  # FENCED_LEADER_EPOCH
    75,  # UNKNOWN_LEADER_EPOCH
    78,  # OFFSET_NOT_AVAILABLE
}


def read_range_raw(
    kafka: KafkaProperties,
    range_: OffsetRange,
    isolation: Isolation = "read_committed",
    with_headers: bool = False,
) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order, as batches of `ARROW_SCHEMA`, with a column of headers where asked for.

    Raises DataLossError (EOS_SOURCE_DATA_LOSS) where the log does not hold the range any more, KafkaError
    (EOS_SOURCE_STALLED) where nothing comes for `STALL_S` seconds, (EOS_SOURCE_DAMAGED) on bytes that are not sound,
    (EOS_SOURCE_FETCH) on what else the leader refuses. Raises UnsupportedFormat on what only a consumer reads, from its
    ``position`` on: all rows before that have been given.
    """
    with _Fetches(kafka, range_, isolation) as fetches:
        while fetches.position < range_.end:
            yield from fetches.next(with_headers).batches


class _Fetches:
    """The fetches of a range, one always on its way. ``position``: the offset from which nothing has come yet."""

    def __init__(self, kafka: KafkaProperties, range_: OffsetRange, isolation: Isolation) -> None:
        self.position = range_.start
        self._kafka = kafka
        self._range = range_
        self._isolation = isolation
        self._bytes_per_offset = _BYTES_PER_OFFSET
        self._fetching: Fetching | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._fetching is not None:
            give_back(self._kafka, self._fetching)

    def next(self, with_headers: bool) -> Decoded:
        """The next rows; the fetch after them is on its way then. May have no rows, but always is a step forward."""
        began = time.monotonic()
        deadline, pause = began + STALL_S, FIRST_WAIT
        while True:
            answer = self._answer(deadline)
            if answer is not None and answer.error == OK and answer.size:
                decoded = self._decode(answer, with_headers)
                self._step(decoded.next_offset, answer.size)
                return decoded
            if answer is not None:
                self._check(answer)
                if answer.error == OK:
                    deadline = min(deadline, began + _SHORT_STALL_S)
                    self._try(self._send)
            if time.monotonic() + pause > deadline:
                raise self._stalled()
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_WAIT)

    def _answer(self, deadline: float) -> Answer | None:
        """What the leader says to the fetch that is on its way, or to a first one; None where it cannot be reached."""
        if self._fetching is None:
            self._try(self._connect)
        if self._fetching is None:
            return None
        silence = max(0.1, min(_SILENCE_S, deadline - time.monotonic()))
        return self._try(lambda: self._fetching.receive(silence))

    def _try(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except OSError:
            self._disconnect()
            return None

    def _connect(self) -> None:
        self._fetching = connect(self._kafka, self._range.topic, self._range.partition)
        self._send()

    def _disconnect(self) -> None:
        """The leader may be another one when it is needed again."""
        wire(self._kafka).forget_leader(self._range.topic, self._range.partition)
        if self._fetching is not None:
            self._fetching.close()
            self._fetching = None

    def _send(self) -> None:
        left = (self._range.end - self.position) * self._bytes_per_offset * _MARGIN
        self._fetching.send(
            self._range.topic,
            self._range.partition,
            self.position,
            isolation=self._isolation,
            max_bytes=int(min(FETCH_BYTES, max(_FEWEST_BYTES, left))),
            max_wait_ms=_MAX_WAIT_MS,
        )

    def _decode(self, answer: Answer, with_headers: bool) -> Decoded:
        unread = OffsetRange(self._range.topic, self._range.partition, self.position, self._range.end)
        data = self._fetching.buffer
        try:
            decoded = decode(data, unread, answer.aborted, size=answer.size, with_headers=with_headers)
        except UnsupportedFormat as unsupported:
            unsupported.position = self.position
            raise
        if decoded.next_offset <= self.position:
            raise self._error(
                "EOS_SOURCE_DAMAGED",
                "is less than one record batch, though the first one always comes whole.",
                hint="Look into the log of the partition's leader. A restart goes on here.",
            )
        return decoded

    def _step(self, position: int, size: int) -> None:
        self._bytes_per_offset = size / (position - self.position)
        self.position = position
        if position < self._range.end:
            self._try(self._send)

    def _check(self, answer: Answer) -> None:
        """Raise for an answer that will not get better."""
        r = self._range
        if answer.error != OK:
            self._disconnect()
        if answer.error == OFFSET_OUT_OF_RANGE:
            begin = begin_offsets(self._kafka, {r.topic: [r.partition]})[r.topic][r.partition]
            if begin > self.position:
                raise data_loss(r.topic, r.partition, self.position, begin, f"begins at {begin} now (retention)")
        elif answer.error != OK and answer.error not in _PASSING:
            raise self._error(
                "EOS_SOURCE_FETCH",
                f"is refused by the leader (Kafka's error {answer.error}).",
                hint="Grant Read on the topic if it is about authorization (29); otherwise look into the broker's log.",
            )

    def _stalled(self) -> KafkaError:
        """Why it does not go on. May raise ConnectionFailed."""
        r = self._range
        end = end_offsets(self._kafka, {r.topic: [r.partition]}, "read_uncommitted")[r.topic][r.partition]
        if end < r.end:
            return data_loss(r.topic, r.partition, self.position, end, f"ends at {end}, before {r.end}")
        return self._error(
            "EOS_SOURCE_STALLED",
            "has not come for a long time, though the log holds it.",
            hint="Check the partition's leader and its log. A restart goes on here.",
        )

    def _error(self, condition: str, what: str, *, hint: str) -> KafkaError:
        r = self._range
        return KafkaError(
            condition,
            f"What {r.topic}-{r.partition} holds at offset {self.position}, of {r.start} to {r.end}, {what}",
            hint=hint,
            topic=r.topic,
            partition=r.partition,
            position=self.position,
        )
