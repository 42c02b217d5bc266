"""Fetch on a socket of its own: the bytes of record batches as the broker sends them, without a copy.

A request is sent when the caller says so and its answer taken later, so that the broker reads and sends while the
caller is busy.

Versions 12 and 13 have the same fields, but that 12 names a topic by its name (since Kafka 2.7), and 13 by its id
(since Kafka 3.1): a broker then answers with records of the log that has this id, or with an error, whatever topic has
the name by then. It compares the id with that of its log, not only with its metadata.

A request may tell the leader epoch of the record before the offset, as followers do (KIP-595). Where a broker's log
has no record of that epoch up to there, it answers without records, and says where its log is another one. It does so
before it reads, under the same lock.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from spark_eos import system
from spark_eos.kafka.codes import LEADER_MOVED, OK
from spark_eos.kafka.config.properties import Isolation
from spark_eos.kafka.net.client import BrokerClient
from spark_eos.kafka.net.connection import Connection
from spark_eos.kafka.net.schema import NO_TAGS, FieldReader, text, varint
from spark_eos.topic_partition import TopicPartition

_FETCH = 1
_BY_NAME, _BY_ID = 12, 13
_NO_SESSION = (0, -1)
_ID_BYTES = 16
#: Bytes a second, on average after the first seconds: a broker that sends less keeps a connection for nothing.
_SLOWEST = 1024

#: Of the request: replica, wait, least and most bytes, isolation, session …
_LIMITS = struct.Struct(">iiiibii")
#: … and a partition: number, leader epoch, offset, epoch of the record before it, log start, most bytes, no tags.
_WANTED = struct.Struct(">iiqiqib")
#: Of the answer: throttle time, error, session …
_BEGIN = struct.Struct(">ihi")
#: … and a partition: number, error, high watermark, last stable offset, log start; aborted transactions, each without
#: tags; the replica to prefer; the records; tags.
_PARTITION = struct.Struct(">ihqqq")
_ABORTED = struct.Struct(">qqB")
_REPLICA = struct.Struct(">i")
#: The number of the tagged field in which a broker says where its log is another one, and what is in it.
_DIVERGING = 0
_EPOCH_AND_END = struct.Struct(">iq")


@dataclass(frozen=True)
class FetchResponse:
    """What is said of one partition. ``error`` is Kafka's code. The records are ``size`` bytes of ``data`` from ``at``
    on, which change when the connection takes its next answer, unless `FetchConnection.take_buffer` is called before.
    ``aborted`` are transactions by (producer id, first offset), none for read_uncommitted.

    ``begin``, ``stable`` and ``high_watermark`` are the partition's first offset, last stable offset and high watermark
    at that moment; -1 with an error. ``preferred``: the replica that the leader names as the nearest to the rack that
    asks (KIP-392), without any records; -1 where it is itself to be asked. ``throttle_ms``: by the user's quota the
    broker answers without a word of the partition, and reads the next request after this time; 0 else. ``diverging``:
    epoch and offset from which on the log is another one than that of the request, without any records.
    ``lists_aborted``: whether the broker has looked for aborted transactions at all.
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
    #: An answer is as large as asked for, or as one record batch.
    largest = 1 << 30
    #: Only an answer's size: all else is received where it stays.
    ahead = 4

    def __init__(self, broker: socket.socket, node: int, client_id: str = "spark-eos") -> None:
        super().__init__(broker, node, client_id)
        #: What was asked for: the partitions of each topic, by its name or id as the answer has it; and its name.
        self._wanted: dict[str | bytes, tuple[str, frozenset[int]]] = {}

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
        """Ask for records from ``offset`` on: about ``max_bytes``, but a first batch that is larger comes whole.

        With ``topic_id``, of 16 bytes, only those of the topic that has it; brokers have to speak `is_supported_by_id`.
        With ``last_epoch``, only those of a log that has a record of that leader epoch before the offset.
        """
        self._wanted = {topic_id or topic: (topic, frozenset([partition]))}
        self._ask(
            _BY_ID if topic_id else _BY_NAME,
            _LIMITS.pack(-1, max_wait_ms, 1, max_bytes, isolation == "read_committed", *_NO_SESSION),
            [(topic_id or text(topic), [_WANTED.pack(partition, -1, offset, last_epoch, -1, max_bytes, 0)])],
            rack,
        )

    def send_many(
        self,
        wanted: Mapping[str, Sequence[tuple[int, int, int]]],
        *,
        isolation: Isolation,
        max_bytes: int,
        max_wait_ms: int,
        rack: str = "",
        ids: Mapping[str, bytes] | None = None,
    ) -> None:
        """Ask for records of partitions: topic → (partition, offset, bytes), about so many of each, and ``max_bytes``
        in all, in their order: some may come without records then. With ``ids``, of all these topics, as in `send`."""
        named: dict[str, str | bytes] = {topic: ids[topic] if ids else topic for topic in wanted}
        self._wanted = {named[topic]: (topic, frozenset(number for number, _, _ in of)) for topic, of in wanted.items()}
        self._ask(
            _BY_ID if ids else _BY_NAME,
            _LIMITS.pack(-1, max_wait_ms, 1, max_bytes, isolation == "read_committed", *_NO_SESSION),
            [
                (
                    ids[topic] if ids else text(topic),
                    [_WANTED.pack(number, -1, offset, -1, -1, size, 0) for number, offset, size in of],
                )
                for topic, of in wanted.items()
            ],
            rack,
        )

    def _ask(self, version: int, limits: bytes, topics: Collection[tuple[bytes, list[bytes]]], rack: str) -> None:
        """``topics``: each as it is named in this version, with its partitions."""
        body = [limits, varint(len(topics) + 1)]
        for name, partitions in topics:
            body += name, varint(len(partitions) + 1), *partitions, NO_TAGS
        nothing_forgotten = varint(1)
        self.ask(_FETCH, version, [*body, nothing_forgotten, text(rack), NO_TAGS], None)
        self.push()

    def receive_one(self, timeout_s: float) -> FetchResponse:
        """The answer to `send`. The broker may be silent for so long, and has more time for more bytes."""
        throttle_ms, found = self.answer(self._read, timeout_s, _SLOWEST)
        if found:
            (response,) = found.values()
            return response
        if throttle_ms > 0:
            return FetchResponse(OK, 0, throttle_ms=throttle_ms)
        raise OSError("the broker's answer is not one to this request")

    def receive_many(self, timeout_s: float) -> dict[TopicPartition, FetchResponse]:
        """The answer to `send_many`, in the same time, about those partitions of which there is one; empty where the
        user is throttled."""
        return self.answer(self._read, timeout_s, _SLOWEST)[1]

    def take_buffer(self) -> bytearray:
        """The memory in which the last answer is, which is the caller's from now on."""
        taken, self.buffer = self.buffer, bytearray()
        return taken

    def _read(self, fields: FieldReader) -> tuple[int, dict[TopicPartition, FetchResponse]]:
        """The milliseconds for which the user is throttled, and what is said of partitions that were asked for. Raises
        OSError for anything else."""
        throttle_ms, error, _ = fields.of(_BEGIN)
        if error:
            raise OSError(f"the broker refuses to fetch (error {error})")
        found: dict[TopicPartition, FetchResponse] = {}
        by_id = any(isinstance(name, bytes) for name in self._wanted)
        for _ in range(fields.count()):
            name = fields.skip(_ID_BYTES) if by_id else fields.text()
            topic, wanted = self._wanted.get(name, ("", frozenset()))
            for _ in range(fields.count()):
                partition, response = _read_partition(fields)
                if partition not in wanted:
                    raise OSError("the broker's answer is not one to this request")
                found[topic, partition] = response
            fields.skip_tags()
        fields.skip_tags()
        if fields.left:
            raise OSError("the broker's answer is not one to this request")
        return throttle_ms, found


def _read_partition(fields: FieldReader) -> tuple[int, FetchResponse]:
    partition, error, high_watermark, stable, begin = fields.of(_PARTITION)
    count = fields.varint() - 1
    listed = fields.skip(fields.possible(max(0, count)) * _ABORTED.size)
    aborted = tuple([(producer, first) for producer, first, _ in _ABORTED.iter_unpack(listed)])
    (preferred,) = fields.of(_REPLICA)
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
    """A connection to the partition's leader, or to that replica; one that was given back or a new one. Raises
    OSError."""
    if replica is not None:
        return client.connection(FetchConnection, replica)
    leader = client.leader(topic, partition)
    if leader is None:
        raise OSError(f"{topic}-{partition} has no leader that is known")
    try:
        return client.connection(FetchConnection, leader)
    except OSError:
        client.forget_leader(topic, partition)
        raise


def give_back(client: BrokerClient, connection: FetchConnection) -> None:
    """Keep a connection for the next who reads from its broker, without the memory that a large answer took."""
    if len(connection.buffer) > _LARGEST_KEPT:
        connection.take_buffer()
    client.pool.give_back(connection)


def is_supported(client: BrokerClient) -> bool:
    """Whether the brokers speak this version. Raises ConnectionFailed."""
    return client.supports(_FETCH, _BY_NAME)


def is_supported_by_id(client: BrokerClient) -> bool:
    """Whether the brokers let topics be fetched by their ids. Raises ConnectionFailed."""
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
    """What partitions hold, as far as it is there: from an offset on, about so many bytes, and ``max_bytes`` of each
    leader. One request to each, all at once; leaders that do not answer in time are left out. With ``ids``, of all
    these topics, as in `FetchConnection.send`. Raises ConnectionFailed if no broker responds."""
    deadline = system.monotonic() + timeout_s
    by_leader: dict[int, dict[str, list[tuple[int, int, int]]]] = {}
    for (topic, partition), node in client.leaders(wanted, timeout_s)[0].items():
        by_leader.setdefault(node, {}).setdefault(topic, []).append((partition, *wanted[topic, partition]))
    asked: list[FetchConnection] = []
    for node, places in by_leader.items():
        try:
            connection = client.connection(FetchConnection, node)
        except OSError:
            continue
        asked.append(connection)
        try:
            connection.send_many(places, isolation=isolation, max_bytes=max_bytes, max_wait_ms=0, ids=ids)
        except OSError:
            connection.close()  # what follows finds it so
    found: Answers = {}
    for connection in asked:
        try:
            answers = connection.receive_many(max(0.1, min(client.silence_s, deadline - system.monotonic())))
        except OSError:
            connection.close()
            continue
        found |= {place: (answer, answer.records) for place, answer in answers.items()}
        give_back(client, connection)
    for place in wanted:
        if place not in found or found[place][0].error in LEADER_MOVED:
            client.forget_leader(*place)
    return found


def fetch_once(
    client: BrokerClient,
    topic: str,
    partition: int,
    offset: int,
    max_bytes: int,
    *,
    isolation: Isolation = "read_committed",
) -> tuple[FetchResponse, bytes] | None:
    """What a partition holds from ``offset`` on, not waiting for more, and the records' bytes; None without an
    answer."""
    try:
        connection = connect(client, topic, partition)
        try:
            connection.send(topic, partition, offset, isolation=isolation, max_bytes=max_bytes, max_wait_ms=0)
            answer = connection.receive_one(client.silence_s)
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
