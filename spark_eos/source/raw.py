"""One range of one partition, from the broker into Arrow by whole record batches, without an object per row.

While a fetch is decoded, the next one is in progress in the broker and in the sockets' buffers. Memory of a task: the
bytes of one fetch (``kafka.max.partition.fetch.bytes``, by default `FETCH_BYTES`, or one record batch if that is
larger), its decompressed records, and one Arrow batch.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

import pyarrow as pa

from spark_eos.errors import DataLossError
from spark_eos.kafka.codes import FETCH_RETRIES, OK, Code, name_of
from spark_eos.kafka.config.handshake import silence_seconds
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.librdkafka import is_for_librdkafka
from spark_eos.kafka.config.properties import KafkaProperties
from spark_eos.kafka.net.client import broker_client
from spark_eos.kafka.records.batches import UnsupportedFormat
from spark_eos.kafka.requests.fetch import FetchConnection, FetchResponse, connect, give_back, is_spoken
from spark_eos.options.parse import Fetching
from spark_eos.retry import FIRST_WAIT_S, LONGEST_WAIT_S
from spark_eos.source.decode import Decoded, damaged, decode
from spark_eos.source.diagnosis import why_not
from spark_eos.source.planning import OffsetRange

T = TypeVar("T")

#: Larger fetches gain nothing on loopback, and no longer fit into the processor's caches when they are decoded.
FETCH_BYTES = 1024 * 1024
_FEWEST_BYTES = 64 * 1024
#: Assumed size of a row until the first rows have arrived.
_BYTES_PER_OFFSET = 1024.0
#: For the last record batch of a fetch, which would be truncated.
_MARGIN = 1.25
#: There is nothing to fetch only at the end of a log.
_MAX_WAIT_MS = 100
#: Seconds without progress after which a task fails, if the leader has responded that there is no more.
_SHORT_STALL_S = 5.0


def read_raw(fetching: Fetching, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
    """The records of a range, in order, as batches of `arrow_schema`.

    Raises the errors of `why_not`, and KafkaError (EOS_SOURCE_DAMAGED) for damaged records, and UnsupportedFormat
    for formats that only librdkafka reads, from its ``position`` on: all rows before that were returned.
    """
    with _Fetches(fetching, range_) as fetches:
        while fetches.position < range_.end:
            yield from fetches.next().batches


def supports(kafka: KafkaProperties) -> bool:
    """Whether this reader and the brokers support all of the user's properties for connections and fetches.

    Raises ConnectionFailed if no broker responds.
    """
    return not is_for_librdkafka(kafka, "consumer") and is_spoken(kafka)


class _Fetches:
    """The fetches of a range, one of them always in progress. ``position``: the first offset not received yet."""

    def __init__(self, fetching: Fetching, range_: OffsetRange) -> None:
        self.position = range_.start
        self._options = fetching
        self._kafka = fetching.kafka
        self._range = range_
        user = canonical(fetching.kafka)
        self._most_bytes = int(user.get("max.partition.fetch.bytes", FETCH_BYTES))
        self._silence_s = silence_seconds(fetching.kafka)
        self._bytes_per_offset = _BYTES_PER_OFFSET
        self._connection: FetchConnection | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            give_back(self._kafka, self._connection)

    def next(self) -> Decoded:
        """The next rows; the following fetch is then in progress. There may be no rows, but always progress."""
        began = time.monotonic()
        deadline, pause = began + self._options.poll_timeout_s, FIRST_WAIT_S
        while True:
            answer = self._answer(deadline)
            if answer is not None and answer.error == OK and answer.size:
                decoded = self._decode(answer)
                self._step(decoded.next_offset, answer.size)
                return decoded
            if answer is not None:
                self._check(answer)
                deadline = min(deadline, self._deadline_after(answer, began))
                if answer.error == OK:
                    self._try(self._send)
            if time.monotonic() + pause > deadline:
                raise why_not(self._kafka, self._range, self.position)
            time.sleep(pause)
            pause = min(2 * pause, LONGEST_WAIT_S)

    def _deadline_after(self, answer: FetchResponse, began: float) -> float:
        """Until when to retry: a new leader may lag behind, but not for long."""
        short = answer.error in (OK, Code.OFFSET_OUT_OF_RANGE)
        return began + (_SHORT_STALL_S if short else self._options.poll_timeout_s)

    def _answer(self, deadline: float) -> FetchResponse | None:
        """The leader's response to the fetch in progress, or to a first one; None if it cannot be reached."""
        if self._connection is None:
            self._try(self._connect)
        connection = self._connection
        if connection is None:
            return None
        silence = max(0.1, min(self._silence_s, deadline - time.monotonic()))
        return self._try(lambda: connection.receive(silence))

    def _try(self, call: Callable[[], T]) -> T | None:
        try:
            return call()
        except OSError:
            self._disconnect()
            return None

    @property
    def _connected(self) -> FetchConnection:
        assert self._connection is not None
        return self._connection

    def _connect(self) -> None:
        self._connection = connect(self._kafka, self._range.topic, self._range.partition)
        self._send()

    def _disconnect(self) -> None:
        """Disconnect: the leader may have changed by the next fetch."""
        broker_client(self._kafka).forget_leader(self._range.topic, self._range.partition)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _send(self) -> None:
        left = (self._range.end - self.position) * self._bytes_per_offset * _MARGIN
        self._connected.send(
            self._range.topic,
            self._range.partition,
            self.position,
            isolation=self._options.isolation,
            max_bytes=int(min(self._most_bytes, max(_FEWEST_BYTES, left))),
            max_wait_ms=_MAX_WAIT_MS,
        )

    def _decode(self, answer: FetchResponse) -> Decoded:
        unread = OffsetRange(self._range.topic, self._range.partition, self.position, self._range.end)
        data, headers = self._connected.buffer, self._options.include_headers
        try:
            decoded = decode(data, unread, answer.aborted, size=answer.size, with_headers=headers)
        except UnsupportedFormat as unsupported:
            unsupported.position = self.position
            raise
        if decoded.next_offset <= self.position:
            raise damaged(
                unread, self.position, "they are less than one record batch, though the first one is always complete"
            )
        return decoded

    def _step(self, position: int, size: int) -> None:
        self._bytes_per_offset = size / (position - self.position)
        self.position = position
        if position < self._range.end:
            self._try(self._send)

    def _check(self, answer: FetchResponse) -> None:
        """Raise for a response that a retry cannot improve."""
        if answer.error != OK:
            self._disconnect()
        if answer.error == Code.OFFSET_OUT_OF_RANGE:
            cause = why_not(self._kafka, self._range, self.position)
            if isinstance(cause, DataLossError) and cause.parameters["found"] > self.position:
                raise cause
        elif answer.error != OK and answer.error not in FETCH_RETRIES:
            raise why_not(self._kafka, self._range, self.position, name_of(answer.error))
