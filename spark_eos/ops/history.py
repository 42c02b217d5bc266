"""What topics hold, read by plain consumers and spilled to disk.

Nothing here is of the source or the sink: a checker that shared their fetch path would share their mistakes. Rows pass
once, as Arrow batches; what is kept of a row is its id and its place.
"""

from __future__ import annotations

import gc
import json
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from hashlib import blake2b
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka import KafkaError as ClientError

from spark_eos.errors import KafkaError, OptionError
from spark_eos.kafka.config import librdkafka_config
from spark_eos.kafka.metadata import Isolation
from spark_eos.options import KafkaProperties

#: Bytes of an id that are kept. Of a longer one it is the 128-bit digest: two of n such ids are taken for one with a
#: probability of n² / 2^129, which would read as a double, or hide a loss.
MAX_ID = 64
#: Rows that wait in memory to be written out together.
RUN_ROWS = 262_144
_POLL_ROWS = 8192
_POLL_S = 0.25

_TUNING = {
    # While messages are taken in, the queue is full for a moment; by default the next fetch then waits for 1 s.
    "fetch.queue.backoff.ms": "2",
    "queued.max.messages.kbytes": "16384",
    "max.partition.fetch.bytes": str(4 * 1024 * 1024),
    "fetch.wait.max.ms": "5",
}
_OURS = {
    "enable.partition.eof": "true",  # how a partition ends whose last records are aborted or control records
    "auto.offset.reset": "error",
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
}


@dataclass(frozen=True)
class Place:
    """One partition, and which of its offsets count: ``begin`` (inclusive), ``stable`` (its last stable offset) and
    ``end`` (its high watermark), both exclusive."""

    topic: str
    partition: int
    begin: int
    stable: int
    end: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


# Ids


@dataclass(frozen=True)
class Where:
    """Where a row has its id. ``kind``: key, value, header or json; ``name``: of the header, or the field's path."""

    kind: str
    name: str = ""

    @classmethod
    def parse(cls, text: str) -> Where:
        """``key``, ``value``, ``header:NAME`` or ``json:FIELD``. Raises OptionError (EOS_VERIFY_ID)."""
        kind, _, name = text.partition(":")
        if (kind in ("key", "value") and text == kind) or (kind in ("header", "json") and name):
            return cls(kind, name)
        raise OptionError(
            "EOS_VERIFY_ID",
            f"'{text}' does not say where a row has its id.",
            hint="It takes key, value, header:NAME or json:FIELD (a field of a JSON value, or a path such as a.b).",
            value=text,
        )

    def ids(self, messages: list[Message]) -> list[bytes | None]:
        """The id of each message; None where it has none that can be read."""
        if self.kind == "key":
            return list(map(Message.key, messages))
        if self.kind == "value":
            return list(map(Message.value, messages))
        if self.kind == "header":
            return [dict(message.headers() or ()).get(self.name) for message in messages]
        path = tuple(self.name.split("."))
        return [_json_id(message.value(), path) for message in messages]

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}" if self.name else self.kind


def _json_id(value: bytes | None, path: tuple[str, ...]) -> bytes | None:
    """Text as it is, numbers and booleans as JSON writes them: so 7 and "7" are one id."""
    try:
        found: Any = json.loads(value)  # type: ignore[arg-type]  # None has no id either
        for field in path:
            found = found[field]
        if type(found) is str:
            return found.encode(errors="surrogatepass")
        return json.dumps(found).encode() if isinstance(found, int | float) else None
    except (ValueError, TypeError, KeyError, RecursionError):
        return None


def shortened(key: bytes) -> bytes:
    """Itself, or a digest where it is longer than `MAX_ID`."""
    return key if len(key) <= MAX_ID else b"blake2b:" + blake2b(key, digest_size=16).hexdigest().encode()


# Spilled rows


class Spill:
    """Rows of one schema in a file, to be had back bucket by bucket.

    ``run_rows`` of them are in memory at a time, and later one bucket. One file takes all buckets: rows are sorted by
    bucket within a run, and each run's share of a bucket is a record batch of its own.
    """

    def __init__(self, path: Path, schema: pa.Schema, run_rows: int = RUN_ROWS) -> None:
        self.rows = 0
        self.schema = schema
        self._path, self._run_rows = path, run_rows
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._batches: dict[int, list[int]] = {}
        self._written = 0
        self._writer = pa.ipc.new_file(pa.OSFile(str(path), "wb"), schema)
        self._reader: pa.ipc.RecordBatchFileReader | None = None

    def add(self, columns: Mapping[str, pa.Array], bucket: pa.Array) -> None:
        """Rows as columns of the schema, and the number of each row's bucket."""
        arrays = [columns[name] for name in self.schema.names]
        self._pending.append(pa.record_batch([*arrays, bucket], names=[*self.schema.names, "bucket"]))
        self.rows += len(bucket)
        self._pending_rows += len(bucket)
        if self._pending_rows >= self._run_rows:
            self._flush()

    def _flush(self) -> None:
        if not self._pending_rows:
            return
        run = pa.Table.from_batches(self._pending)
        self._pending, self._pending_rows = [], 0
        run = run.take(pc.sort_indices(run["bucket"])).combine_chunks()
        runs = pc.run_end_encode(run["bucket"].chunk(0))
        rows = run.drop_columns(["bucket"])
        start = 0
        for number, end in zip(runs.values.to_pylist(), runs.run_ends.to_pylist(), strict=True):
            (batch,) = rows.slice(start, end - start).to_batches()
            self._writer.write_batch(batch)
            self._batches.setdefault(number, []).append(self._written)
            self._written += 1
            start = end

    def finish(self) -> Spill:
        """No more rows; from here on they can be had back."""
        self._flush()
        self._writer.close()
        self._reader = pa.ipc.open_file(pa.OSFile(str(self._path)))
        return self

    @property
    def buckets(self) -> list[int]:
        """Numbers of the buckets that hold rows, ascending."""
        return sorted(self._batches)

    def bucket(self, number: int) -> pa.Table:
        """All rows of one bucket, in the order in which each run had them."""
        assert self._reader is not None, "finish() first"
        batches = [self._reader.get_batch(index) for index in self._batches.get(number, ())]
        return pa.Table.from_batches(batches, self.schema).combine_chunks()


def row_schema(key: bool = False, value: bool = False) -> pa.Schema:
    """A row of a topic: its id, the index of its place, its offset; its key and its value's hash where asked for."""
    fields = [("id", pa.binary()), ("place", pa.int32()), ("offset", pa.int64())]
    return pa.schema(fields + [("key", pa.binary())] * key + [("value", pa.int64())] * value)


def buckets_of(ids: list[bytes], count: int) -> pa.Array:
    """Equal ids are in one bucket of ``count``, a power of two. Differs from process to process."""
    return pc.bit_wise_and(pa.array(list(map(hash, ids)), pa.int64()), count - 1)


def row_columns(messages: list[Message], place: int, ids: list[bytes], schema: pa.Schema) -> dict[str, pa.Array]:
    """Messages of one partition as columns of `row_schema`. A pass for each field, no Python for each row."""
    columns = {
        "id": pa.array(ids, pa.binary()),
        "place": pa.repeat(pa.scalar(place, pa.int32()), len(messages)),
        "offset": pa.array(list(map(Message.offset, messages)), pa.int64()),
    }
    if "key" in schema.names:
        keys = [key and shortened(key) for key in map(Message.key, messages)]
        columns["key"] = pa.array(keys, pa.binary())
    if "value" in schema.names:
        columns["value"] = pa.array(list(map(hash, map(Message.value, messages))), pa.int64())
    return columns


# Reading


class Reader:
    """Reads partitions from begin to end, one after the other. ``told``: called with each number of rows. Close it."""

    def __init__(
        self, kafka: KafkaProperties, isolation: Isolation, stall_s: float, told: Callable[[int], None]
    ) -> None:
        ours = {**_OURS, "isolation.level": isolation}
        self._consumer = Consumer(librdkafka_config(kafka, "consumer", ours=ours, defaults=_TUNING))
        self._stall_s, self._told = stall_s, told

    def __enter__(self) -> Reader:
        return self

    def __exit__(self, *_: object) -> None:
        self._consumer.close()

    def read(self, place: Place, end: int) -> Iterator[list[Message]]:
        """The partition's rows from its begin up to ``end``, in order. Raises KafkaError (EOS_VERIFY_READ)."""
        self._consumer.assign([TopicPartition(place.topic, place.partition, place.begin)])
        position, deadline, error = place.begin, time.monotonic() + self._stall_s, None
        while position < end:
            messages = self._poll()
            if any(map(Message.error, messages)):
                for event in filter(Message.error, messages):
                    if event.error().code() == ClientError._PARTITION_EOF:
                        position = max(position, event.offset())
                    else:
                        error = event.error()
                messages = [message for message in messages if message.error() is None]
            if messages:
                deadline = time.monotonic() + self._stall_s
                position = max(position, messages[-1].offset() + 1)  # the end may have come with them
                if messages[-1].offset() >= end:
                    messages = [message for message in messages if message.offset() < end]
                self._told(len(messages))
                yield messages
            elif position < end and time.monotonic() > deadline:
                raise _stalled(place, position, end, self._stall_s, error)
        self._consumer.unassign()

    def _poll(self) -> list[Message]:
        """Wait for one message, then take what came with it: `consume` alone waits for all that it was asked for."""
        collects = gc.isenabled()
        gc.disable()  # messages form no cycles; looking for some among thousands doubles the cost of a row
        try:
            first = self._consumer.poll(_POLL_S)
            return [] if first is None else [first, *self._consumer.consume(_POLL_ROWS, 0)]
        finally:
            if collects:
                gc.enable()


def _stalled(place: Place, position: int, end: int, waited_s: float, error: ClientError | None) -> KafkaError:
    return KafkaError(
        "EOS_VERIFY_READ",
        f"Nothing came from {place} at offset {position}, of {place.begin} to {end}, for {waited_s:.0f} s "
        f"({error.str() if error else 'no error from the broker'}).",
        hint="Check that the user may read the topic and that its leaders are up; retention may just have taken rows: "
        "then run it again.",
        topic=place.topic,
        partition=place.partition,
        position=position,
    )
