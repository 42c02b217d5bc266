"""A transactional producer of one transaction for Arrow columns, without threads or a Python object per row.

With transaction.version 2, the first batch to a partition adds it to the transaction; with 0 and 1, a request before
that batch does.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from spark_eos.base import system
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.errors import stop
from spark_eos.kafka.codes import Code
from spark_eos.kafka.config.java_names import canonical
from spark_eos.kafka.config.properties import Codec
from spark_eos.kafka.config.values import enumerated, integer
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.partitioners import DEFAULT_PARTITIONER
from spark_eos.kafka.producer.partitioner import Partitioner
from spark_eos.kafka.producer.refusals import DeadLetterTopic, Refusals, Splitting
from spark_eos.kafka.producer.sender import Sender
from spark_eos.kafka.records.batches import RecordBatch
from spark_eos.kafka.records.encode import BATCH_BYTES, SEQUENCES, Encoder, Rows, Sealed, Tails
from spark_eos.kafka.records.passing import reseal
from spark_eos.kafka.requests.end_txn import endtxn_version
from spark_eos.kafka.requests.init_producer_id import init_producer_id
from spark_eos.kafka.transactions import FENCING_END, ProducerIdentity

#: Unacknowledged bytes above which a call waits.
IN_FLIGHT_BYTES = 8 * 1024 * 1024

#: With keys, rows are collected until there is about a batch for each partition, or so many bytes.
_MOST_COLLECTED = 8 * BATCH_BYTES
#: For all topics together. A single batch of rows may be larger.
_MOST_HELD = 16 * 1024 * 1024
#: A broker closes the connection without a reason if a request is larger (socket.request.max.bytes).
_LARGEST_REQUEST = 100 * 1024 * 1024


@dataclass
class _Topic:
    """Rows of a topic that are not encoded yet, and the next sequence number of each partition."""

    partitioner: Partitioner
    sequences: np.ndarray
    held: list[pa.RecordBatch] = field(default_factory=list)
    bytes: int = 0


class ArrowProducer:
    """A producer with the transactional id ``name`` and a transaction timeout of ``timeout_ms``. With ``two_phase``,
    its transaction never expires, and ``timeout_ms`` limits only the wait for acknowledgements.

    ``endtxn_version``: the version of EndTxn that ends the transaction, known after `init`. ``in_flight_bytes``:
    maximum of unacknowledged bytes. ``dead_letters``: the topic for rows that brokers refuse for good; without it, they
    are an error. From the client's properties it takes ``batch.size``, the size of a record batch before compression,
    and ``compression.*``.
    """

    def __init__(
        self,
        client: BrokerClient,
        name: str,
        timeout_ms: int,
        *,
        partitioner: str = DEFAULT_PARTITIONER,
        two_phase: bool = False,
        in_flight_bytes: int = IN_FLIGHT_BYTES,
        dead_letters: DeadLetterTopic | None = None,
    ) -> None:
        self.name = name
        self._two_phase = two_phase
        self.client = client
        self._timeout_ms = timeout_ms
        self._partitioner = partitioner
        self._in_flight_bytes = in_flight_bytes
        self._dead_letters = dead_letters
        user = canonical(client.properties)
        level = integer(user, "compression.level", -1)
        self._batch_bytes = integer(user, "batch.size", BATCH_BYTES)
        codec = cast(Codec, enumerated(user, "compression.type", "none"))
        self._make_encoder = partial(
            Encoder, codec=codec, level=None if level < 0 else level, max_bytes=self._batch_bytes
        )
        self._identity: ProducerIdentity | None = None
        self._topics: dict[str, _Topic] = {}
        self._held_bytes = 0
        self._sender = Sender(client, name, timeout_ms / 1000)
        self.endtxn_version = FENCING_END

    def init(self) -> None:
        """Send InitProducerId, which fences the previous producer with this name, and aborts its open transaction."""
        self.endtxn_version = endtxn_version(self.client)
        identity = init_producer_id(self.client, self.name, self._timeout_ms, two_phase=self._two_phase)
        self._identity = identity
        self._sender.begin(identity, self.endtxn_version)
        self._encoder = self._make_encoder(identity.producer_id, identity.epoch)
        letters = self._dead_letters
        refusals = Splitting(self._encoder) if letters is None else Refusals(letters.topic, self._encoder)
        self._refusals = self._sender.refusals = refusals

    def identity(self) -> ProducerIdentity:
        """This producer's producer id and epoch; known after `init`."""
        assert self._identity is not None
        return self._identity

    def firsts(self) -> Mapping[TopicPartition, int]:
        """Return the first record's offset in each partition, {(topic, number): offset}, as far as brokers have
        returned it."""
        return self._sender.firsts

    def lasts(self) -> Mapping[TopicPartition, int]:
        """Return, after `flush`, the last record's sequence number in each partition."""
        return self._sender.lasts

    def runs(self, topic: str, partition: int) -> Sequence[tuple[int, int]]:
        """Return, after `flush`, (first offset, number) of the rows in a partition, where they lie without a gap. See
        `Sender.runs`."""
        return self._sender.runs((topic, partition))

    def bytes_written(self, besides: Collection[str] = ()) -> int:
        """Return, after `flush`, the size of the record batches in the log, except in the topics ``besides``."""
        return self._sender.bytes_written(besides)

    def empty(self) -> Collection[TopicPartition]:
        """Return, after `flush`, partitions without rows, as all were refused, that may be part of the transaction all
        the same."""
        return self._sender.empty

    @property
    def refused(self) -> int:
        """Number of rows in the dead-letter topic, after `flush`."""
        return self._refusals.rows

    def limit(self, topic: str, max_bytes: int) -> None:
        """Set the largest batch that a topic accepts: larger batches are split, and larger rows become dead letters,
        without a request."""
        self._refusals.limits[topic] = max_bytes

    def write(
        self,
        topic: str,
        partitions: int,
        *,
        value: pa.Array,
        key: pa.Array | None = None,
        time_ms: pa.Array | None = None,
        partition: pa.Array | None = None,
        headers: pa.BinaryArray | None = None,
    ) -> None:
        """Write rows to a topic with this number of ``partitions``, as columns of the same length.

        ``key`` and ``value``: binary or string; ``time_ms``: int64, null for now; ``partition``: int32 below
        ``partitions``, null for any; ``headers``: from `encode_headers`, in every call for a topic or in none. Returns
        before the rows are written; blocks only while ``in_flight_bytes`` are unacknowledged. Raises as `flush`.
        """
        self._hold(topic, partitions, _batch(key, value, time_ms, partition, headers))
        self._write_letters()

    def write_whole(self, topic: str, partition: int, data: bytearray, batches: Sequence[RecordBatch]) -> None:
        """Write record batches, for which `passes` is true, as they are except for their headers, after all rows
        written so far.

        ``data``, which contains them, belongs to the producer from now on. Blocks and raises as `write`.
        """
        for batch in batches:
            sequence = self._take_sequences(topic, partition, batch.count)
            self._add_all((topic, partition), [reseal(data, batch, self._encoder, sequence)])
        self._sender.advance()
        self._write_letters()

    def write_rows(self, topic: str, partition: int, rows: Rows | Tails, codec: int) -> None:
        """Write rows to one partition, after all rows written so far. ``codec``: its number in a batch's attributes.
        Blocks and raises as `write`."""
        count = len(rows)
        sequence = self._take_sequences(topic, partition, count)
        encoder = self._encoder_for(topic).with_codec(codec)
        self._add_all((topic, partition), (sealed for _, sealed in encoder.encode(rows, [count], [sequence])))
        self._sender.advance()
        self._write_letters()

    def _take_sequences(self, topic: str, partition: int, count: int) -> int:
        """Return the sequence number of the first of so many rows for a partition, after the rows that are held for the
        topic."""
        held = self._topic(topic, partition + 1)
        self._encode(topic, held)
        sequence = int(held.sequences[partition])
        held.sequences[partition] = (sequence + count) % SEQUENCES
        return sequence

    def _topic(self, topic: str, partitions: int) -> _Topic:
        """Return the state of a topic that has so many partitions, or more."""
        held = self._topics.get(topic)
        if held is None:
            partitioner = Partitioner(partitions, self._partitioner)
            held = self._topics[topic] = _Topic(partitioner, np.zeros(partitions, np.int64))
        if partitions > len(held.sequences):
            self._encode(topic, held)
            held.partitioner = Partitioner(partitions, self._partitioner)
            held.sequences = np.append(held.sequences, np.zeros(partitions - len(held.sequences), np.int64))
        return held

    def _hold(self, topic: str, partitions: int, rows: pa.RecordBatch) -> None:
        """Collect rows; encode and send them when there are enough."""
        held = self._topic(topic, partitions)
        if held.held and held.held[0].schema != rows.schema:
            self._encode(topic, held)  # dead letters have headers, and the query's own rows may have none
        if self._held_bytes + rows.nbytes > _MOST_HELD:
            self._encode_all()
        enough = self._enough(rows, partitions)
        if held.bytes + rows.nbytes > enough:
            self._encode(topic, held)  # without these rows: the rest would be a small batch
        held.held.append(rows)
        held.bytes += rows.nbytes
        self._held_bytes += rows.nbytes
        if held.bytes >= enough:
            self._encode(topic, held)
        elif self._sender.size:
            self._sender.advance()  # encoded batches are sent while more rows come

    def flush(self) -> None:
        """Wait until every row, or its dead letter, is acknowledged.

        Raises RowError (EOS_ROW_TOO_LARGE), ProtocolStop (EOS_FENCED), KafkaError (EOS_DELIVERY_FAILED) or TopicError
        (EOS_DEAD_LETTER_TOPIC).
        """
        while True:
            self._encode_all()
            self._sender.wait_until_below(0)
            if not self._write_letters():
                return

    def _write_letters(self) -> bool:
        """Write dead letters for the rows refused so far. Returns whether there were any."""
        letters = self._refusals.letters()
        for letter in letters:
            assert self._dead_letters is not None
            rows = _batch(letter.key, letter.value, letter.time_ms, None, letter.headers)
            self._hold(self._dead_letters.topic, self._dead_letters.partitions, rows)
        return bool(letters)

    def abort(self) -> None:
        """Try to abort this producer's open transaction; otherwise the coordinator does so after its timeout."""
        if self._identity is not None:
            self._sender.abort(self._identity)

    def close(self) -> None:
        """Release the connections; an open transaction stays open."""
        self._sender.close()

    def _enough(self, rows: pa.RecordBatch, partitions: int) -> int:
        """Return the bytes to collect for a topic before encoding: rows without keys go to one partition, others to all
        of them."""
        if rows["key"].null_count == rows.num_rows:
            return self._batch_bytes
        return min(_MOST_COLLECTED, self._batch_bytes * partitions)

    def _encode_all(self) -> None:
        for topic, held in self._topics.items():
            self._encode(topic, held)

    def _encode(self, topic: str, held: _Topic) -> None:
        if not held.held:
            return
        rows = held.held[0] if len(held.held) == 1 else pa.concat_batches(held.held)  # which copies even a single one
        self._held_bytes -= held.bytes
        held.held, held.bytes = [], 0
        partition = held.partitioner.choose(rows["key"], rows["partition"])
        counts = np.bincount(partition, minlength=held.partitioner.count)
        present = np.flatnonzero(counts)
        if len(present) > 1:
            narrow = (
                partition.astype(np.uint16) if held.partitioner.count <= 1 << 16 else partition
            )  # sorts much faster
            rows = rows.take(pa.array(np.argsort(narrow, kind="stable")))
        headers = rows["headers"] if "headers" in rows.schema.names else None
        columns = Rows(rows["key"], rows["value"], rows["time"].to_numpy(), headers)
        encoder, sequences = self._encoder_for(topic), held.sequences[present].tolist()
        for place, sealed in encoder.encode(columns, counts[present].tolist(), sequences):
            self._add_all((topic, int(present[place])), [sealed])
        held.sequences = (held.sequences + counts) % SEQUENCES
        self._sender.advance()

    def _encoder_for(self, topic: str) -> Encoder:
        """Return the encoder for a topic, with batches no larger than its limit, if that is known."""
        most = self._refusals.limits.get(topic)
        if most is None or most >= self._encoder.max_bytes:
            return self._encoder
        return replace(self._encoder, max_bytes=most)

    def _add_all(self, target: TopicPartition, batches: Iterable[Sealed]) -> None:
        for sealed in batches:
            self._add(target, sealed)
            if self._sender.size >= self._in_flight_bytes:
                self._sender.wait_until_below(self._in_flight_bytes)

    def _add(self, target: TopicPartition, sealed: Sealed) -> None:
        if not self._refusals.fits(target, sealed):
            parts = self._refusals.take(target, sealed, Code.MESSAGE_TOO_LARGE)
            for part in parts:
                self._add(target, part)
            if not parts:
                self._sender.leave_out(target, sealed.count)
            return
        if len(sealed.data) + self._in_flight_bytes > _LARGEST_REQUEST:
            topic, partition = target
            raise stop(
                "EOS_ROW_TOO_LARGE.request",
                topic=topic,
                partition=partition,
                rows=sealed.count,
                bytes=len(sealed.data),
                most=_LARGEST_REQUEST - self._in_flight_bytes,
            )
        self._sender.add(target, sealed)


def _batch(
    key: pa.Array | None,
    value: pa.Array,
    time_ms: pa.Array | None,
    partition: pa.Array | None,
    headers: pa.BinaryArray | None,
) -> pa.RecordBatch:
    """Return the rows with all columns except absent headers, each cast to one type."""
    now, count = int(system.time_of_day() * 1000), len(value)
    columns = {
        "key": pa.nulls(count, pa.binary()) if key is None else key.cast(pa.binary()),
        "value": value.cast(pa.binary()),
        "time": pa.array(np.full(count, now)) if time_ms is None else pc.fill_null(time_ms, now),
        "partition": pa.nulls(count, pa.int32()) if partition is None else partition,
    }
    if headers is not None:
        columns["headers"] = headers
    return pa.RecordBatch.from_pydict(columns)
