"""One range of one partition, from the broker into Arrow by whole record batches, without an object per row.

While a fetch is decoded, the next one is in progress in the broker and in the sockets' buffers. Memory of a task: the
bytes of one fetch (``kafka.max.partition.fetch.bytes``, by default `FETCH_BYTES`, or one record batch if that is
larger), the records of 1 MiB of it and one record batch, decompressed, and one Arrow batch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Self, TypeVar

import pyarrow as pa

from spark_eos.base import system
from spark_eos.base.retry import FIRST_WAIT_S, LONGEST_WAIT_S, Waiting
from spark_eos.base.topic_partition import OffsetRange, name_of_partition
from spark_eos.kafka.admin.topics import id_bytes
from spark_eos.kafka.codes import ANOTHER_TOPIC, FETCH_RETRIES, OK, Code, meaning_of, name_of
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.values import integer
from spark_eos.kafka.records.batches import Damage, OtherEpoch, RecordBatch, find_batches
from spark_eos.kafka.requests.fetch import (
    FetchConnection,
    FetchResponse,
    connect,
    give_back,
    is_supported_by_id,
)
from spark_eos.kafka.requests.offset_for_leader_epoch import UNKNOWN
from spark_eos.source.decode import DecodedRows, damaged, decode
from spark_eos.source.diagnosis import begins_later, check_epoch, check_id, why_not
from spark_eos.source.epochs import RangeEpochs
from spark_eos.source.fetching import Fetching
from spark_eos.source.losses import epoch_diverged
from spark_eos.source.nearest_replica import NearestReplica

T = TypeVar("T")
R = TypeVar("R", DecodedRows, "FetchedBatches")

#: Larger fetches gain nothing on loopback, and no longer fit into the processor's caches when they are decoded.
FETCH_BYTES = 1024 * 1024
#: Where whole batches are passed on: of each fetch, the part of a batch at its end is fetched again.
COPY_FETCH_BYTES = 4 * 1024 * 1024
_NO_LIMIT = 2**31 - 1
_FEWEST_BYTES = 64 * 1024
#: Assumed size of a row until the first rows have arrived.
_BYTES_PER_OFFSET = 1024.0
#: For the last record batch of a fetch, which would be truncated.
_MARGIN = 1.25
#: Seconds for which a replica that is not the leader may be silent, and may have less than the leader.
_REPLICA_SILENCE_S = 5.0
_REPLICA_BEHIND_S = 1.0
#: Seconds after which a task fails, from the first response of the leader that its log ends.
_SHORT_STALL_S = 5.0


def read_raw(fetching: Fetching, range_: OffsetRange) -> Iterator[pa.RecordBatch]:
    """Yield the records of a range, in order, as batches of `arrow_schema`.

    Raises the errors of `why_not`, and KafkaError for damaged records (EOS_SOURCE_DAMAGED) and for formats that this
    client does not know (EOS_SOURCE_FETCH): all rows before them were returned.
    """
    with _Fetches(fetching, range_, FETCH_BYTES) as fetches:
        while fetches.position < range_.end:
            yield from fetches.next(fetches.decode).batches
        fetches.check_end()


def read_batches(fetching: Fetching, range_: OffsetRange) -> Iterator[FetchedBatches]:
    """Yield the record batches that hold rows of a range, verified and in order; errors as for `read_raw`.

    The first and the last one may hold rows before and behind the range.
    """
    with _Fetches(fetching, range_, COPY_FETCH_BYTES) as fetches:
        while fetches.position < range_.end:
            fetched = fetches.next(fetches.verify)
            if fetched.batches:
                yield fetched
        fetches.check_end()


@dataclass(frozen=True)
class FetchedBatches:
    """Record batches with rows, and the bytes in which they lie, which belong to the caller. ``next_offset``:
    where the next fetch begins; ``range``: the range that is read. Rows outside of it are not wanted, though batches
    may hold some, also in a log from which records were deleted."""

    data: bytearray
    batches: list[RecordBatch]
    next_offset: int
    range: OffsetRange


def _why_waiting(answer: FetchResponse | None) -> str:
    if answer is None:
        return "no answer from its leader"
    return "its answers hold no rows" if answer.error == OK else meaning_of(answer.error)


class _Fetches:
    """The fetches of a range, one of them always in progress. ``position``: the first offset not received yet;
    ``most_bytes``: of a fetch, unless the user's properties limit it further."""

    def __init__(self, fetching: Fetching, range_: OffsetRange, most_bytes: int) -> None:
        self.position = range_.start
        self._epochs = RangeEpochs(range_)
        self._options = fetching
        self._client = fetching.client
        self._range = range_
        user = canonical(self._client.properties)
        each, all_ = integer(user, "max.partition.fetch.bytes", most_bytes), integer(user, "fetch.max.bytes", _NO_LIMIT)
        self._most_bytes = min(each, all_)
        self._silence_s = self._client.silence_s
        self._bytes_per_offset = _BYTES_PER_OFFSET
        self._connection: FetchConnection | None = None
        id_ = id_bytes(range_.topic_id)
        self._topic_id = id_ if id_ and is_supported_by_id(self._client) else b""
        self._nearest = NearestReplica(self._client.properties, range_.topic, range_.partition)
        self._at_replica = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._connection is not None:
            give_back(self._client, self._connection)

    def next(self, read: Callable[[FetchResponse], R]) -> R:
        """Return the result of ``read`` (`decode` or `verify`) for the next response; the following fetch is then in
        progress. The result may have no rows, but ``position`` has moved."""
        began = system.monotonic()
        deadline, pause_s = began + self._options.poll_timeout_s, FIRST_WAIT_S
        delay, partition = Waiting("reading"), name_of_partition((self._range.topic, self._range.partition))
        while True:
            answer = self._answer(deadline)
            if answer is not None and self._ask_another(answer, system.monotonic() - began):
                continue
            if answer is not None and answer.diverging is not None:
                self._check_log()
                self._epochs.last = UNKNOWN  # as in a log that was compacted
                if self._connection is not None:
                    self._try(self._send)
                continue
            if answer is not None and answer.error == OK and answer.size:
                result = self._reading(read, answer)
                delay.over(partition)
                self._step(result.next_offset, answer.size)
                return result
            if answer is not None and answer.throttle_ms:
                # The broker answers, and throttles: that time does not count as silence.
                throttled_s = answer.throttle_ms / 1000
                system.sleep(throttled_s)
                began, deadline = began + throttled_s, deadline + throttled_s
                self._try(self._send)
                continue
            if answer is not None:
                self._check(answer)
                deadline = min(deadline, self._deadline_after(answer))
                if answer.error == OK:
                    self._try(self._send)
            if system.monotonic() + pause_s > deadline:
                raise why_not(self._client, self._range, self.position)
            delay.note({partition: _why_waiting(answer)}, began)
            system.sleep(pause_s)
            pause_s = min(2 * pause_s, LONGEST_WAIT_S)

    def _deadline_after(self, answer: FetchResponse) -> float:
        """Return the time until which to retry: a new leader may lag behind, but not for long after its first
        response."""
        ends_here = answer.error == OK and answer.high_watermark <= self.position
        short = ends_here or answer.error == Code.OFFSET_OUT_OF_RANGE
        return system.monotonic() + (_SHORT_STALL_S if short else self._options.poll_timeout_s)

    def _answer(self, deadline: float) -> FetchResponse | None:
        """Return the leader's response to the fetch in progress, or to a first one; None if it cannot be reached."""
        if self._connection is None:
            self._try(self._connect)
        connection = self._connection
        if connection is None:
            return None
        silence = _REPLICA_SILENCE_S if self._at_replica else self._silence_s
        silence = max(0.1, min(silence + self._client.fetch_wait_ms / 1000, deadline - system.monotonic()))
        return self._try(lambda: connection.receive_one(silence))

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
        self._at_replica = self._nearest.node is not None
        self._connection = connect(self._client, self._range.topic, self._range.partition, self._nearest.node)
        self._send()

    def _disconnect(self) -> None:
        """Disconnect. The next fetch finds the leader anew, or goes to the leader instead of the replica."""
        if self._at_replica:
            self._nearest.leave()
            self._at_replica = False
        else:
            self._client.forget_leader(self._range.topic, self._range.partition)
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _renew(self) -> None:
        """Reconnect to the same broker, which requires a new authentication."""
        replica = self._nearest.node if self._at_replica else None
        self._connected.close()
        self._connection = connect(self._client, self._range.topic, self._range.partition, replica)

    def _ask_another(self, answer: FetchResponse, waited_s: float) -> bool:
        """Return whether the next fetch goes to another broker at once: to the replica that the leader names, or to the
        leader if the replica refuses, lags behind the leader, or has been used for long."""
        if answer.error == OK and answer.preferred >= 0 and answer.preferred != self._connected.node:
            self._nearest.prefer(answer.preferred)
        elif self._at_replica and (answer.error != OK or (not answer.size and waited_s > _REPLICA_BEHIND_S)):
            self._nearest.leave()
        return not answer.size and self._moved()

    def _moved(self) -> bool:
        """Return whether the next fetch goes to another broker than the last one; then there is no connection."""
        if self._at_replica == (self._nearest.node is not None):
            return False
        give_back(self._client, self._connected)
        self._connection = None
        return True

    def _send(self) -> None:
        if self._connected.due:
            self._renew()
        left = (self._range.end - self.position) * self._bytes_per_offset * _MARGIN
        self._connected.send(
            self._range.topic,
            self._range.partition,
            self.position,
            isolation=self._options.isolation,
            max_bytes=int(min(self._most_bytes, max(_FEWEST_BYTES, left))),
            max_wait_ms=self._client.fetch_wait_ms,
            rack=self._nearest.rack,
            topic_id=self._topic_id,
            last_epoch=self._epochs.last,
        )

    def decode(self, answer: FetchResponse) -> DecodedRows:
        """Return the rows of a response. They must be used before the next response is received."""
        return decode(
            answer.data,
            self._unread,
            answer.aborted,
            begin=answer.at,
            size=answer.size,
            with_headers=self._options.include_headers,
            see=self._epochs.see,
            most_bytes=self._options.max_decompressed_bytes,
        )

    def verify(self, answer: FetchResponse) -> FetchedBatches:
        """Return the record batches of a response, in memory of their own."""
        data, unread = self._connected.take_buffer(), self._unread
        try:
            batches, next_offset = find_batches(
                data, answer.size, unread.start, unread.end, answer.aborted, self._epochs.see, answer.at
            )
        except Damage as damage:
            raise damaged(unread, unread.start, damage) from damage
        return FetchedBatches(data, batches, next_offset, self._range)

    @property
    def _unread(self) -> OffsetRange:
        return replace(self._range, start=self.position)

    def _reading(self, read: Callable[[FetchResponse], R], answer: FetchResponse) -> R:
        try:
            result = read(answer)
        except OtherEpoch as other:
            raise epoch_diverged(self._range.topic, self._range.partition, self.position, other) from other
        if result.next_offset <= self.position:
            raise damaged(
                self._unread,
                self.position,
                "they are less than one record batch, though the first one is always complete",
            )
        return result

    def _step(self, position: int, size: int) -> None:
        self._bytes_per_offset = size / (position - self.position)
        self.position = position
        if position < self._range.end and not self._moved():
            self._try(self._send)

    def check_end(self) -> None:
        """Raise DataLossError (EOS_SOURCE_LOG_DIVERGED) after the last offset if the log is not the one for which the
        range was planned. Only a request can tell that if no batch had the last offset, as in a compacted log."""
        if not self._epochs.at_end:
            check_epoch(self._client, self._range, self._range.end, self._range.last_epoch)

    def _check_log(self) -> None:
        """Check the broker's claim that its log differs before the position. A compacted log may look so, and a replica
        that is not the leader may only lag behind."""
        if self._at_replica:
            self._nearest.leave()
            self._moved()
        check_epoch(self._client, self._range, self.position, self._epochs.last)

    def _check(self, answer: FetchResponse) -> None:
        """Raise the error of a response that a retry cannot improve."""
        if answer.error != OK:
            self._disconnect()
        if answer.error in ANOTHER_TOPIC:  # some brokers may not know of the topic yet, but others do
            check_id(self._client, self._range)
        elif answer.error == Code.OFFSET_OUT_OF_RANGE:
            loss = begins_later(self._client, self._range, self.position)
            if loss is not None:
                raise loss  # a log that ends early may only lag behind
        elif answer.error != OK and answer.error not in FETCH_RETRIES:
            raise why_not(self._client, self._range, self.position, name_of(answer.error))
