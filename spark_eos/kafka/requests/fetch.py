"""Fetch: record batches as the broker sends them, without a copy of their bytes.

Sending a request and receiving its response are two calls, so that the broker works while the caller does.

Versions 12 and 13 have the same fields, but that 12 names a topic by its name (since Kafka 2.7), and 13 by its id
(since Kafka 3.1): a broker then answers with records of the log that has this id, or with an error, even if another
topic has the name by then. It compares the id with its log's, not only with its metadata.

A follower answers consumers as the leader does, though it may lag behind (KIP-392). So a request to the leader has its
epoch (KIP-320): a broker that leads no longer knows a newer one, and refuses.

A request may contain the leader epoch of the record before the offset, as followers' requests do (KIP-595). If a
broker's log has no record of that epoch up to there, the response has no records, and names the epoch and offset where
the log differs. The broker checks this before it reads, under the same lock.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spark_eos.base import system
from spark_eos.base.topic_partition import TopicPartition
from spark_eos.kafka.codes import LEADER_MOVED, OK
from spark_eos.kafka.config.properties import Isolation
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.connection import Connection
from spark_eos.kafka.net.schema import NO_TAGS, FieldReader, text, varint
from spark_eos.kafka.net.threads import begin_each

_FETCH = 1
_BY_NAME, _BY_ID = 12, 13
_NO_SESSION = (0, -1)
_ID_BYTES = 16
#: Bytes a second, on average after the first seconds; a slower response is given up.
_SLOWEST = 1024

#: In the request: replica, wait, least and most bytes, isolation, session …
_LIMITS = struct.Struct(">iiiibii")
#: … and a partition: number, leader epoch, offset, epoch of the record before it, log start, most bytes, no tags.
_WANTED = struct.Struct(">iiqiqib")
#: In the response: throttle time, error, session …
_BEGIN = struct.Struct(">ihi")
#: … and a partition: number, error, high watermark, last stable offset, log start; aborted transactions, each without
#: tags; the replica to prefer; the records; tags.
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qqB")
_REPLICA = struct.Struct(">i")
#: The number and the form of the tagged field DivergingEpoch.
_DIVERGING = 0
_EPOCH_AND_END = struct.Struct(">iq")


@dataclass(frozen=True)
class FetchResponse:
    """The response for one partition. ``error`` is Kafka's code. The records are ``size`` bytes of ``data`` from ``at``
    on; the next response of the connection overwrites them, unless `FetchConnection.take_buffer` is called before.
    ``aborted``: aborted transactions as (producer id, first offset); none for read_uncommitted.

    ``begin``, ``stable`` and ``high_watermark``: the partition's log start offset, last stable offset and high
    watermark; -1 with an error. ``preferred``: the replica that the leader prefers for the reader's rack (KIP-392), in
    a response without records; else -1. ``throttle_ms``: with a response that a quota has left empty, the milliseconds
    until the broker reads the next request; else 0. ``diverging``: the epoch and offset from which the broker's log
    differs from the one that the request assumes (KIP-595), in a response without records. ``lists_aborted``: whether
    the broker looked for aborted transactions.
    """

    error: int
    size: int
    aborted: tuple[tuple[int, int], ...] = ()
    begin: int = -1
    stable: int = -1
    high_watermark: int = -1
    preferred: int = -1
    throttle_ms: int = 0
    diverging: tuple[int, int] | None = None
    lists_aborted: bool = True
    data: bytes | bytearray = field(default=b"", compare=False, repr=False)
    at: int = field(default=0, compare=False, repr=False)

    @property
    def records(self) -> bytes:
        """The records, copied."""
        return bytes(memoryview(self.data)[self.at : self.at + self.size])


class FetchConnection(Connection[None]):
    """One connection to one broker, for one request at a time."""

    kept_each = 1
    #: A response is as large as requested, or as one record batch.
    largest = 1 << 30
    #: Only the size of a response: the rest is received into the buffer.
    ahead = 4

    def __init__(self, broker: socket.socket, node: int, client_id: str = "spark-eos") -> None:
        super().__init__(broker, node, client_id)
        #: The requested topics, by name or id as the response has them: name and partitions.
        self._wanted: dict[str | bytes, tuple[str, frozenset[int]]] = {}
        #: Sent by `send`: the epoch in which this broker leads the partition, or -1 to fetch from any replica.
        self.leader_epoch = -1

    def send(
        self,
        topic: str,
        partition: int,
        offset: int,
        *,
        isolation: Isolation,
        max_bytes: int,
        max_wait_ms: int,
        rack: str = "",
        topic_id: bytes = b"",
        last_epoch: int = -1,
    ) -> None:
        """Request records from ``offset`` on: about ``max_bytes``, but always one whole record batch.

        ``topic_id``: 16 bytes; the broker answers only if its log is of this topic (needs `is_supported_by_id`).
        ``last_epoch``: it returns records only if its log has this leader epoch right before the offset.
        """
        self._wanted = {topic_id or topic: (topic, frozenset([partition]))}
        wanted = _WANTED.pack(partition, self.leader_epoch, offset, last_epoch, -1, max_bytes, 0)
        self._ask(
            _BY_ID if topic_id else _BY_NAME,
            _LIMITS.pack(-1, max_wait_ms, 1, max_bytes, isolation == "read_committed", *_NO_SESSION),
            [(topic_id or text(topic), [wanted])],
            rack,
        )

    def send_many(
        self,
        wanted: Mapping[str, Sequence[tuple[int, int, int, int]]],
        *,
        isolation: Isolation,
        max_bytes: int,
        max_wait_ms: int,
        ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """Request records of many partitions, {topic: [(partition, leader epoch, offset, bytes)]}: about ``bytes`` of
        each, and ``max_bytes`` in all, in this order, so that the last ones may come without records. ``ids``: the id
        of each topic, to fetch by id."""
        named: dict[str, str | bytes] = {topic: ids[topic] if ids else topic for topic in wanted}
        self._wanted = {named[topic]: (topic, frozenset(number for number, *_ in of)) for topic, of in wanted.items()}
        self._ask(
            _BY_ID if ids else _BY_NAME,
            _LIMITS.pack(-1, max_wait_ms, 1, max_bytes, isolation == "read_committed", *_NO_SESSION),
            [
                (
                    ids[topic] if ids else text(topic),
                    [_WANTED.pack(number, epoch, offset, -1, -1, size, 0) for number, epoch, offset, size in of],
                )
                for topic, of in wanted.items()
            ],
        )

    def _ask(self, version: int, limits: bytes, topics: Collection[tuple[bytes, list[bytes]]], rack: str = "") -> None:
        """Send a request. ``topics``: the name or id of each, as this version has it, with its encoded partitions."""
        body = [limits, varint(len(topics) + 1)]
        for name, partitions in topics:
            body += name, varint(len(partitions) + 1), *partitions, NO_TAGS
        nothing_forgotten = varint(1)
        self.ask(_FETCH, version, [*body, nothing_forgotten, text(rack), NO_TAGS], None)
        self.push()

    def receive_one(self, timeout_s: float) -> FetchResponse:
        """Return the response to `send`. The broker may be silent for ``timeout_s``; a large response may take longer.
        Raises OSError."""
        throttle_ms, found = self.answer(self._read, timeout_s, _SLOWEST)
        if found:
            (response,) = found.values()
            return response
        if throttle_ms > 0:
            return FetchResponse(OK, 0, throttle_ms=throttle_ms)
        raise OSError("the broker's answer is not one to this request")

    def receive_many(self, timeout_s: float) -> dict[TopicPartition, FetchResponse]:
        """Return the response to `send_many`, for the partitions that it has; empty if a quota throttles the user. The
        broker may be silent for ``timeout_s``. Raises OSError."""
        return self.answer(self._read, timeout_s, _SLOWEST)[1]

    def take_buffer(self) -> bytearray:
        """Return the memory with the last response, which belongs to the caller from now on."""
        taken, self.buffer = self.buffer, bytearray()
        return taken

    def _read(self, fields: FieldReader) -> tuple[int, dict[TopicPartition, FetchResponse]]:
        """Return the throttle time in milliseconds, and the response for each partition. Raises OSError if it is
        malformed, or has a partition that was not requested."""
        throttle_ms, error, _ = fields.unpack(_BEGIN)
        if error:
            raise OSError(f"the broker refuses to fetch (error {error})")
        responses: dict[TopicPartition, FetchResponse] = {}
        by_id = any(isinstance(name, bytes) for name in self._wanted)
        for _ in range(fields.count()):
            name = fields.skip(_ID_BYTES) if by_id else fields.text()
            topic, wanted = self._wanted.get(name, ("", frozenset()))
            for _ in range(fields.count()):
                partition, response = _read_partition(fields)
                if partition not in wanted:
                    raise OSError("the broker's answer is not one to this request")
                responses[topic, partition] = response
            fields.skip_tags()
        fields.skip_tags()
        if fields.left:
            raise OSError("the broker's answer is not one to this request")
        return throttle_ms, responses


def _read_partition(fields: FieldReader) -> tuple[int, FetchResponse]:
    partition, error, high_watermark, stable, begin = fields.unpack(_PARTITION)
    count = fields.varint() - 1
    listed = fields.skip(fields.possible(max(0, count)) * _ABORTED.size)
    aborted = tuple([(producer, first) for producer, first, _ in _ABORTED.iter_unpack(listed)])
    (preferred,) = fields.unpack(_REPLICA)
    size = fields.count()
    at = fields.pass_over(size)
    tag = fields.tags().get(_DIVERGING)
    diverging = _EPOCH_AND_END.unpack_from(tag) if tag is not None else None
    return partition, FetchResponse(
        error,
        size,
        aborted,
        begin,
        stable,
        high_watermark,
        preferred,
        diverging=diverging if diverging is not None and diverging[0] >= 0 else None,
        lists_aborted=count >= 0,
        data=fields.data,
        at=at,
    )


_LARGEST_KEPT = 4 * 1024 * 1024


def connect(client: BrokerClient, topic: str, partition: int, replica: int | None = None) -> FetchConnection:
    """Return a connection to the partition's leader or to that replica, from the pool or new. Raises OSError."""
    node = client.leader(topic, partition) if replica is None else replica
    if node is None:
        raise OSError(f"{topic}-{partition} has no leader that is known")
    try:
        connection = client.connection(FetchConnection, node)
    except OSError:
        client.forget_leader(topic, partition)
        raise
    connection.leader_epoch = client.leader_epoch(topic, partition, node)
    return connection


def give_back(client: BrokerClient, connection: FetchConnection) -> None:
    """Give a connection back to the pool, without the memory of a large response."""
    if len(connection.buffer) > _LARGEST_KEPT:
        connection.take_buffer()
    client.pool.give_back(connection)


def is_supported_by_id(client: BrokerClient) -> bool:
    """Return whether the brokers have the version of Fetch that takes topic ids. Raises ConnectionFailed."""
    return client.supports(_FETCH, _BY_ID)


#: By (topic, partition), with the records' bytes.
Answers = dict[TopicPartition, tuple[FetchResponse, bytes]]


def fetch_many(
    client: BrokerClient,
    wanted: Mapping[TopicPartition, tuple[int, int]],
    *,
    isolation: Isolation,
    max_bytes: int,
    timeout_s: float,
    ids: Mapping[str, bytes] | None = None,
) -> Answers:
    """Fetch from many partitions, {(topic, partition): (offset, bytes)}, with one request to each leader, all at once.
    A leader returns about ``max_bytes`` at most, and does not wait for more records; leaders that do not answer in time
    are left out. ``ids``: the id of each topic, to fetch by id.

    Raises ConnectionFailed if no broker answers.
    """
    deadline = system.monotonic() + timeout_s
    by_leader: dict[int, dict[str, list[tuple[int, int, int, int]]]] = {}
    for (topic, partition), node in client.leaders(wanted, timeout_s)[0].items():
        epoch = client.leader_epoch(topic, partition, node)
        by_leader.setdefault(node, {}).setdefault(topic, []).append((partition, epoch, *wanted[topic, partition]))

    def left_s() -> float:
        return max(0.1, deadline - system.monotonic())

    def fetch(node: int) -> Answers:
        connection: FetchConnection | None = None
        try:
            connection = client.connection(FetchConnection, node, left_s())
            connection.send_many(by_leader[node], isolation=isolation, max_bytes=max_bytes, max_wait_ms=0, ids=ids)
            answers = connection.receive_many(min(client.silence_s, left_s()))
        except OSError:
            if connection is not None:
                client.pool.lost(connection)
            return {}
        responses = {at: (answer, answer.records) for at, answer in answers.items()}
        give_back(client, connection)
        return responses

    # In threads where there are several: a host that drops packets would take the time of the others.
    fetched = map(fetch, by_leader) if len(by_leader) == 1 else begin_each(fetch, by_leader)()
    responses = {at: answer for answers in fetched for at, answer in answers.items()}
    for at in wanted:
        if at not in responses or responses[at][0].error in LEADER_MOVED:
            client.forget_leader(*at)
    return responses


def fetch_once(
    client: BrokerClient,
    topic: str,
    partition: int,
    offset: int,
    max_bytes: int,
    *,
    isolation: Isolation = "read_committed",
    max_wait_ms: int = 0,
) -> tuple[FetchResponse, bytes] | None:
    """Fetch from one partition; where no record can be read yet, the broker waits for ``max_wait_ms``. Returns the
    response and the records' bytes; None without a response."""
    try:
        connection = connect(client, topic, partition)
        try:
            connection.send(topic, partition, offset, isolation=isolation, max_bytes=max_bytes, max_wait_ms=max_wait_ms)
            answer = connection.receive_one(client.silence_s + max_wait_ms / 1000)
            data = answer.records
        except BaseException:
            connection.close()
            raise
    except OSError:
        client.forget_leader(topic, partition)
        return None
    give_back(client, connection)
    if answer.error in LEADER_MOVED:
        client.forget_leader(topic, partition)
    return None if answer.throttle_ms else (answer, data)
